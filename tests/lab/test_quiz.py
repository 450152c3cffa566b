"""The person's own answer."""

import pytest

from whichrank.lab.quiz import closest, parse
from whichrank.lab.truth import Truth

TRUTH = Truth("hang", "rank-frozen", (2,))


@pytest.mark.parametrize(
    ("words", "cause"),
    [("rank-frozen", "rank-frozen"), ("Rank Frozen", "rank-frozen"), ("port in use", "port-in-use"), ("xyzzy", None)],
)
def test_a_cause_is_found_by_its_words(words, cause):
    assert closest(words) == cause


def test_a_right_and_a_wrong_guess():
    right, wrong = parse("2", "rank frozen", TRUTH), parse("0, 1", "port in use", TRUTH)
    assert right.mark.right
    assert right.mark.exact
    assert not wrong.mark.right
    assert wrong.mark.accused
    assert parse("", "unknown", TRUTH).answer.ranks == ()
