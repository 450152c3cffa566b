"""A GPU is split by MIG: its parts can't talk to each other directly.

What it finds: MIG mode enabled on a GPU.

Why it happens: a host that served several users was given to a training job.

How it decides: by the driver's report.

Example: `GPU 0: MIG is enabled`

Fix: nvidia-smi -i 0 -mig 0, then reset the GPU.

Limits: a job of one rank per slice that needs no peer-to-peer works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy
from whichrank.records.inspection import HostProbes, items

CODE = "PREH128"
CAUSE = "p2p-disabled"
CHECK = "mig"
PROBE = "gpus"
FIX = ("nvidia-smi -i N -mig 0, then reset the GPU.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    states = [(gpu.get("index"), str((gpu.get("values") or {}).get("mig", ""))) for gpu in items(values, "gpus")]
    split = [index for index, mode in states if mode.lower() == "enabled" and isinstance(index, int)]
    if split:
        return unhealthy("enabled", f"GPU {split[0]}: MIG is enabled", severity="warning", gpus=tuple(split))
    return healthy("disabled") if any(mode for _, mode in states) else None
