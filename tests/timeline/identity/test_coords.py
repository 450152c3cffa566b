"""Coordinates of ranks, from the groups they are in."""

from __future__ import annotations

import pytest

from whichrank.timeline.identity.coords import axis_name, coordinates
from whichrank.timeline.identity.groups import Group


def groups(desc: str, *members: tuple[int, ...]) -> list[Group]:
    return [Group(f"{desc}{n}", str(n), desc, ranks, True) for n, ranks in enumerate(members)]


@pytest.mark.parametrize(
    ("desc", "axis"),
    [
        ("mesh_tp", "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", "tp"),
        ("data_parallel", "dp"),
        ("mesh_dp_replicate", "dp"),
        ("pipe", "pp"),
        ("default_pg", ""),
        ("undefined", ""),
        ("stripes", "stripes"),
    ],
)
def test_names_of_axes(desc: str, axis: str) -> None:
    assert axis_name(desc) == axis


def test_a_grid_by_description() -> None:
    tp = groups("mesh_tp", (0, 1), (2, 3))
    dp = groups("mesh_dp", (0, 2), (1, 3))
    assert coordinates([*tp, *dp], 4) == {n: {"tp": n % 2, "dp": n // 2} for n in range(4)}


def test_a_plain_grid_without_descriptions() -> None:
    near = groups("undefined", (0, 1, 2), (3, 4, 5))
    far = groups("undefined", (0, 3), (1, 4), (2, 5))
    assert coordinates([*near, *far], 6) == {n: {"tp": n % 3, "dp": n // 3} for n in range(6)}


def test_no_guess_where_the_groups_are_no_grid() -> None:
    assert coordinates(groups("undefined", (0, 1, 2), (1, 2, 3)), 4) == {}
    assert coordinates(groups("default_pg", (0, 1, 2, 3)), 4) == {}
