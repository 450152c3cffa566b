"""GPUDirect RDMA is not available although GPUs and RDMA adapters are there.

What it finds: neither nvidia_peermem nor DMA-BUF (open kernel module, kernel 5.12 or newer).

Why it happens: the module was not loaded after a driver update or in a new image. All traffic then is staged through
host memory.

How it decides: by the loaded modules, the kind of driver and the kernel's version.

Example: `proprietary driver, nvidia_peermem is not loaded`

Fix: modprobe nvidia_peermem, or use the open kernel module.

Limits: a container can't load modules: its host must.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items, text

CODE = "PREH127"
CAUSE = "gdr-disabled"
CHECK = "gpudirect"
PROBE = "pci"
FIX = ("modprobe nvidia_peermem on the host, or install the open kernel module.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    gpus = items(host.values("gpus") or {}, "gpus")
    if not gpus or not items(host.values("rdma") or {}, "ports"):
        return None
    modules = [str(m) for m in values.get("modules") or []]
    if any("peer" in module for module in modules):
        return healthy(modules[0])
    version = re.match(r"(\d+)\.(\d+)", text(values, "kernel"))
    if version is None:
        return unknown("the version of the kernel can't be told")
    if values.get("open_module") and (int(version[1]), int(version[2])) >= (5, 12):
        return healthy("DMA-BUF")
    return unhealthy("off", "nvidia_peermem is not loaded and DMA-BUF is not available", severity="warning")
