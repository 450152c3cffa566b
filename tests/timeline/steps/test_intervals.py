"""The algebra of intervals against sets of single nanoseconds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from whichrank.timeline.steps.intervals import Cover, gaps, union

pairs = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1])), max_size=12)


def moments(intervals):
    return {t for start, end in intervals for t in range(start, end)}


def held(cover):
    return moments(zip(cover.start.tolist(), cover.end.tolist(), strict=True))


def made(intervals):
    return union([a for a, _ in intervals], [b for _, b in intervals])


@given(pairs, pairs)
def test_every_operation_is_that_of_sets(a, b):
    first, second = made(a), made(b)
    assert held(first) == moments(a)
    assert first.total == len(moments(a))
    assert held(first | second) == moments(a) | moments(b)
    assert held(first & second) == moments(a) & moments(b)
    assert held(first - second) == moments(a) - moments(b)


@given(pairs, st.integers(0, 80), st.integers(0, 80))
def test_what_lies_between_two_moments_is_counted(a, x, y):
    low, high = min(x, y), max(x, y)
    assert int(made(a).within(low, high)) == len({t for t in moments(a) if low <= t < high})
    assert held(gaps(made(a), low, high)) == set(range(low, high)) - moments(a)


def test_intervals_of_a_cover_are_in_order_and_apart():
    cover = union([5, 0, 3, 9, 9], [6, 2, 5, 9, 10])
    assert list(zip(cover.start.tolist(), cover.end.tolist(), strict=True)) == [(0, 2), (3, 6), (9, 10)]
    assert Cover().total == 0
