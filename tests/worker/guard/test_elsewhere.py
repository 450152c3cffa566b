"""What results of the same micro-batch on one device and another mean."""

from __future__ import annotations

import os

import pytest

from tests import needs

needs.package("torch")
elsewhere = needs.later("whichrank.worker.guard.elsewhere")


def close(one: list[float], other: list[float]) -> bool:
    return one == other


def meaning(first: float, second: float, *there: float | None) -> str:
    results = iter(there)

    def third() -> list[float] | None:
        value = next(results)
        return None if value is None else [value]

    return elsewhere.meaning([first], [second], third, close)


@pytest.mark.parametrize(
    ("results", "means"),
    [
        ((1, 1, 1), "DATA"),
        ((9, 1, 1), "SOMETIMES"),
        ((1, 9, 1), "SOMETIMES"),
        ((9, 9, 1, 1), "ALWAYS"),
        ((1, 2, 3, 4), "CODE"),
        ((1, 1, 3, 4), "CODE"),
        ((8, 9, 1, 1), "UNCLEAR"),
        ((1, 1, None), "DATA"),
        ((1, 9, None), "UNCLEAR"),
    ],
)
def test_what_results_mean(results, means):
    assert meaning(*results) == getattr(elsewhere, means)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core")
def test_a_thread_computes_on_another_core_for_a_moment():
    before = os.sched_getaffinity(0)
    here = elsewhere._core_here()
    core = elsewhere._another_core()
    assert core is not None
    with elsewhere._on(core):
        assert os.sched_getaffinity(0) == {core}
        assert elsewhere._core_here() == core
    assert os.sched_getaffinity(0) == before
    assert here in before
