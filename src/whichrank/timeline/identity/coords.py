"""Coordinates of a rank (tp, dp, pp …), worked out from the groups it belongs to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from whichrank.timeline.identity.groups import Group

_WORDS = (
    ("tp", ("tp", "tensor")),
    ("pp", ("pp", "pipe", "pipeline")),
    ("cp", ("cp", "context")),
    ("ep", ("ep", "expert")),
    ("sp", ("sp", "sequence")),
    ("fsdp", ("fsdp", "shard")),
    ("dp", ("dp", "ddp", "data", "replicate")),
)
_UNNAMED = ("", "undefined")


def axis_name(desc: str) -> str:
    """The usual short name of a parallel dimension, from a group's description; "" if it has none."""
    if desc in _UNNAMED or desc == "default_pg":
        return ""
    words = set(re.split(r"[^a-z]+", desc.lower()))
    for short, spellings in _WORDS:
        if words & set(spellings):
            return short
    return desc.lower()


def _by_axis(groups: Sequence[Group], world: int) -> dict[str, list[Group]]:
    axes: dict[str, list[Group]] = {}
    unnamed: dict[tuple[int, int], list[Group]] = {}
    for group in groups:
        size = len(group.members)
        if not 1 < size < world:
            continue
        name = axis_name(group.desc)
        if name:
            axes.setdefault(name, []).append(group)
        elif size > 1:
            stride = group.members[1] - group.members[0]
            if all(b - a == stride for a, b in zip(group.members, group.members[1:], strict=False)):
                unnamed.setdefault((size, stride), []).append(group)
    # Without descriptions only the plain grid is recognised: neighbours and ranks a fixed step apart.
    near = [key for key in unnamed if key[1] == 1 and key[0] * len(unnamed[key]) == world]
    far = [key for key in unnamed if key[1] > 1 and key[0] * len(unnamed[key]) == world]
    if not axes and len(near) == len(far) == 1 and near[0][0] == far[0][1] and near[0][0] * far[0][0] == world:
        axes = {"tp": unnamed[near[0]], "dp": unnamed[far[0]]}
    return axes


def coordinates(groups: Sequence[Group], world: int) -> dict[int, dict[str, int]]:
    """Rank -> its place in each parallel dimension."""
    coords: dict[int, dict[str, int]] = {}
    for axis, members_of in _by_axis(groups, world).items():
        for group in members_of:
            for place, rank in enumerate(group.members):
                coords.setdefault(rank, {}).setdefault(axis, place)
    return coords
