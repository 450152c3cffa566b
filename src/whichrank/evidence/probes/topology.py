"""Which GPU reaches which adapter how, as the driver tells it; without it the PCI tree of the probe `pci` must do."""

from __future__ import annotations

from typing import Any

from whichrank.evidence.probes import Absent, Missing, Place

NAME = "topology"
LIMIT_S = 10.0


def measure(place: Place) -> dict[str, Any]:
    """`matrix`: what `nvidia-smi topo -m` prints."""
    if not place.path("/proc/driver/nvidia/version").exists():
        raise Absent("no NVIDIA driver")
    said, why = place.output(["nvidia-smi", "topo", "-m"], 6.0)
    if why or not said.strip():
        raise Missing(why or "nvidia-smi topo -m printed nothing")
    return {"matrix": said.decode("utf-8", "replace")}
