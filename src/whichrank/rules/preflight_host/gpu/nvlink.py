"""An NVLink is down, was retrained, or collects errors now.

What it finds: links that are inactive while their siblings are active; links with recovery errors; a link whose
replay or CRC count stands far above its siblings'; counters that grow while preflight looks.

Why it happens: a bad connector, a failing NVSwitch, a fabric that was not set up.

How it decides: links of one GPU are compared with each other, and the number of active links between GPUs of one
host. A small static replay count is normal: the hardware sends again and no data is lost. Counters are read twice, a
second apart: on an idle GPU none should grow.

Example: `GPU 2: link 3 is inactive, 17 others are active`

Fix: reset the GPUs and the fabric together (reboot); reseat or replace the board if it comes back.

Limits: a link that fails only under load shows nothing within an idle second; look again after `whichrank bench`.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Any

from whichrank.model.findings import Severity
from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH106"
CAUSE = "nvlink-fault"
CHECK = "nvlink"
PROBE = "gpus"
FIX = ("Reboot the host so that GPUs and NVSwitches are set up together; if it comes back have the board checked.",)
_ERRORS = ("recover", "replay", "crc", "symbol", "error")
_FAR = 1000
"""Replays that many more than on the median sibling: own threshold, far above what healthy boards collect."""


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    gpus = [(gpu.get("index"), items(gpu, "links")) for gpu in items(values, "gpus")]
    if stuck := text(values, "links_why"):
        return unhealthy("no answer", f"{stuck}: the driver is stuck", quote=stuck)
    if not any(links for _, links in gpus):
        return None
    active = {index: sum(1 for link in links if _active(link)) for index, links in gpus}
    most = max(active.values())
    for index, links in gpus:
        named = (index,) if isinstance(index, int) else ()
        down = [link.get("link") for link in links if not _active(link)]
        if (down and active[index]) or active[index] < most:
            links_down = ", ".join(f"link {n}" for n in down) or f"{most - active[index]} links"
            words = f"GPU {index}: {links_down} inactive, {active[index]} active (others have up to {most})"
            return unhealthy(f"{active[index]} of {most}", words, gpus=named, quote=words)
        if words := _grown(links):
            severity: Severity = "error" if "recover" in words else "warning"
            return unhealthy(words, f"GPU {index}: {words}", severity=severity, gpus=named, quote=words)
        if words := _counted(links):
            return unhealthy(words, f"GPU {index}: {words}", severity="warning", gpus=named, quote=words)
    return healthy(f"{most} links per GPU")


def _active(link: Mapping[str, Any]) -> bool:
    return link.get("active") is not False


def _grown(links: list[Mapping[str, Any]]) -> str:
    """Errors that came while preflight looked, in a second."""
    for link in links:
        growth = link.get("growth")
        for key, value in growth.items() if isinstance(growth, dict) else ():
            if _count(value) and any(word in str(key).lower() for word in _ERRORS):
                return f"link {link.get('link')}: {str(key).replace('_', ' ')} +{value} while looking"
    return ""


def _counted(links: list[Mapping[str, Any]]) -> str:
    for link in links:
        recovered = sum(v for k, v in link.items() if "recover" in k.lower() and "fail" not in k.lower() and _count(v))
        if recovered:
            return f"link {link.get('link')} was retrained ({recovered} recovery errors)"
    for key in {k for link in links for k in link if "replay" in k.lower() or "crc" in k.lower()}:
        counts = [(int(link[key]), link.get("link")) for link in links if _count(link.get(key))]
        if len(counts) > 2:
            value, worst = max(counts)
            if value - median([count for count, _ in counts]) > _FAR:
                return f"link {worst} has {value} {key.replace('_', ' ')}, its siblings far fewer"
    return ""


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
