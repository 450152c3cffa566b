"""A GPU's memory has uncorrectable errors that the next job would meet.

What it finds: uncorrectable ECC errors since the driver was loaded, a row remap or page retirement that waits for a
reset, a failed remap, an exceeded SRAM threshold.

Why it happens: memory cells fail; the GPU replaces rows, but only at its next reset, and it has few spare rows.

How it decides: only what is open counts. Errors of the board's life (aggregate) that were dealt with are history, and
so are corrected errors.

Example: `GPU 3: row remap pending: the next reset applies it`

Fix: pending: reset the GPU before the job. Failed remap or SRAM threshold: have the board replaced.

Limits: without ECC (consumer boards) memory errors are not counted by anybody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unknown
from whichrank.records.inspection import HostProbes
from whichrank.rules.preflight_gpus import Sign, states, worst

CODE = "PREH102"
CAUSE = "ecc-error"
CHECK = "gpu-memory"
PROBE = "gpus"
FIX = ("Reset the GPU (nvidia-smi --gpu-reset -i N, no process on it) or reboot the host.",)
_YES = ("yes", "1", "true", "pending")
_REPLACE = ("Have the board replaced: it has no spare rows left or its SRAM is failing.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    told = 0
    signs: list[Sign] = []
    for index, state in states(values):
        told += any(key in state for key in ("ecc_unc_volatile", "remap_pending", "retired_pending"))
        if words := _replace(state):
            signs.insert(0, Sign(index, words, fix=_REPLACE))
        elif words := _pending(state):
            signs.append(Sign(index, words))
    if bad := worst(signs):
        return bad
    if not told:
        return unknown("no GPU here tells its ECC counters")
    return healthy("no open errors")


def _replace(state: Mapping[str, Any]) -> str:
    if _yes(state, "remap_failure"):
        return "a row remap failed"
    return "the SRAM error threshold is exceeded" if _yes(state, "sram_threshold") else ""


def _pending(state: Mapping[str, Any]) -> str:
    if _yes(state, "remap_pending"):
        return "a row remap waits for the next reset"
    if _yes(state, "retired_pending"):
        return "a page retirement waits for the next reset"
    count = str(state.get("ecc_unc_volatile", "0"))
    return f"{count} uncorrectable errors since the driver was loaded" if count.isdigit() and int(count) else ""


def _yes(state: Mapping[str, Any], key: str) -> bool:
    return str(state.get(key, "")).lower() in _YES
