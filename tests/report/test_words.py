from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.report._words import counted, listed, percent, ranges, safe, shortened


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        ((0, 1, 2, *range(4, 64)), "0-2, 4-63"),
        ((5, 4, 4, 9), "4-5, 9"),
        (range(0, 40, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 8 more"),
    ],
)
def test_ranges(ranks, text):
    assert ranges(ranks) == text


@given(st.sets(st.integers(0, 300)))
def test_ranges_name_every_rank(ranks):
    told = set()
    for run in filter(None, ranges(ranks, limit=400).split(", ")):
        first, _, last = run.partition("-")
        told |= set(range(int(first), int(last or first) + 1))
    assert told == ranks


@given(st.text())
def test_safe_text_can_be_printed_and_obeyed_by_nothing(text):
    shown = safe(text)
    shown.encode("utf-8")
    assert all(ord(character) >= 0x20 and not 0x7F <= ord(character) < 0xA0 for character in shown)


def test_safe_spells_out_escape_sequences_and_reordering_marks():
    assert safe("a\x1b[31mb\u202ec\ud800") == "a\\x1b[31mb\\u202ec\\ud800"
    assert safe("two\nlines\tand é ✓") == "two lines and é ✓"


def test_numbers():
    assert counted(1, "rank") == "1 rank"
    assert counted(4096, "rank") == "4,096 ranks"
    assert listed(["a", "b", "c", "d"]) == "a, b, c and 1 more"
    assert shortened("x" * 1010, 10) == "x" * 10 + "… (+1,000 characters)"
    assert [percent(p) for p in (0, 0.004, 0.5, 0.92, 0.997, 1)] == [
        "0 %",
        "under 1 %",
        "50 %",
        "92 %",
        "over 99 %",
        "100 %",
    ]
