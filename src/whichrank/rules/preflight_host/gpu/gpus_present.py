"""Fewer GPUs answer than the host has, or than the job needs.

What it finds: a GPU on the PCIe bus that the driver does not show, one that answers "lost" or "error", fewer visible
GPUs than ranks will be started.

Why it happens: a GPU fell off the bus (Xid 79), its driver failed to load, the container was given fewer devices,
or CUDA_VISIBLE_DEVICES hides some.

How it decides: the GPUs that the driver lists are compared with NVIDIA's display controllers on the PCIe bus and with
the ranks per host.

Example: `8 GPUs on the bus, the driver shows 7: 0000:9b:00.0 is missing`

Fix: reset or reboot the host, check the seating of the GPU; give the container all GPUs; correct
CUDA_VISIBLE_DEVICES.

Limits: without the number of ranks per host (--nproc-per-node) only the bus is compared. In a virtual machine or a
container the bus shows only what was passed through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.hardware import address
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH101"
CAUSE = "gpu-fell-off-bus"
CHECK = "gpus"
PROBE = "gpus"
FIX = ("Look for Xid 79 in the kernel log, then reset the GPU or reboot the host.",)


_MISMATCH = "The driver was updated while its old module stays loaded: reboot, or reload the nvidia modules."


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check:  # noqa: ARG001
    gpus, bus = items(values, "gpus"), [b for b in values.get("pci") or [] if isinstance(b, str)]
    if trouble := text(values, "trouble"):
        if "no answer" in trouble:
            return unhealthy(None, f"{trouble}: the driver is stuck", quote=trouble)
        if "version mismatch" in trouble:
            return unhealthy(None, trouble, fix=(_MISMATCH,), quote=trouble)
        if "not installed" in trouble or "not recorded" in trouble:
            return unknown(trouble)
        return unhealthy(None, f"the driver does not answer: {trouble}", quote=trouble)
    lost = [gpu for gpu in gpus if gpu.get("trouble")]
    if lost:
        words = f"GPU {lost[0].get('index')}: {lost[0]['trouble']}"
        return unhealthy(len(gpus) - len(lost), words, gpus=_indices(lost), quote=words)
    if values.get("cut"):
        return unknown("the report of nvidia-smi is cut: it names fewer GPUs than it announces")
    shown = {address(text(gpu, "bus_id")) for gpu in gpus}
    missing = [place for place in bus if address(place) not in shown]
    if missing and gpus:
        are = "is" if len(missing) == 1 else "are"
        words = f"{len(bus)} GPUs on the bus, the driver shows {len(gpus)}: {', '.join(missing)} {are} missing"
        return unhealthy(len(gpus), words, quote=words)
    return _against_launch(values, len(gpus), launch)


def _against_launch(values: Mapping[str, Any], count: int, launch: Launch) -> Check:
    visible = values.get("visible")
    usable = count
    if isinstance(visible, str):
        usable = len([word for word in visible.split(",") if word.strip() and word.strip() != "-1"])
    if launch.ranks_per_host is not None and usable < launch.ranks_per_host:
        hidden = f" (CUDA_VISIBLE_DEVICES={visible})" if usable < count else ""
        words = f"{launch.ranks_per_host} ranks will start here, {usable} GPUs are visible{hidden}"
        fix = ("Start one rank per visible GPU, or correct CUDA_VISIBLE_DEVICES.",)
        return unhealthy(usable, words, fix=fix, quote=words)
    return healthy(usable)


def _indices(gpus: list[Mapping[str, Any]]) -> tuple[int, ...]:
    return tuple(index for gpu in gpus if isinstance(index := gpu.get("index"), int))
