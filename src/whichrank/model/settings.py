"""One environment variable that somebody recommends or has set, and for what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Purpose = Literal["debug", "production", "bench"]
Fabric = Literal["nvlink", "infiniband", "roce", "efa", "ethernet"]

PURPOSES: tuple[Purpose, ...] = ("debug", "production", "bench")
FABRICS: tuple[Fabric, ...] = ("nvlink", "infiniband", "roce", "efa", "ethernet")


@dataclass(frozen=True, slots=True)
class Setting:
    """A variable with its value, why it has that value, and where that is known from."""

    name: str
    value: str
    reason: str
    source: str
