"""Expressions that are compiled when they are first used."""

import re

import pytest

from whichrank.model.late_pattern import late


def test_it_does_what_a_compiled_one_does():
    pattern, compiled = late(r"rank (\d+)", re.IGNORECASE), re.compile(r"rank (\d+)", re.IGNORECASE)
    text = "Rank 3, rank 12"
    for _ in range(2):
        assert pattern.findall(text) == compiled.findall(text)
        assert pattern.sub("r", text) == compiled.sub("r", text)
        assert pattern.fullmatch(text) is None
    assert (pattern.pattern, pattern.flags, pattern.groups) == (compiled.pattern, compiled.flags, compiled.groups)


def test_bytes_are_searched_too():
    assert late(rb"a\d").search(b"xa7")[0] == b"a7"


def test_nothing_is_compiled_before_it_is_used():
    wrong = late("(")
    with pytest.raises(re.error):
        wrong.search("")
