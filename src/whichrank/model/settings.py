"""One environment variable that somebody recommends or has set, and for what."""

from __future__ import annotations

from typing import Literal, NamedTuple

Purpose = Literal["debug", "production", "bench"]
Fabric = Literal["nvlink", "infiniband", "roce", "efa", "ethernet"]

PURPOSES: tuple[Purpose, ...] = ("debug", "production", "bench")
FABRICS: tuple[Fabric, ...] = ("nvlink", "infiniband", "roce", "efa", "ethernet")


class Setting(NamedTuple):
    """A variable with its value, why it has that value, and where that is known from."""

    name: str
    value: str
    reason: str
    source: str
