"""Names that differ from a known host's in its number only."""

from __future__ import annotations

import pytest

from whichrank.facts.redaction.names import Names
from whichrank.facts.redaction.redactor import Redactor


def redacted(text, *hosts):
    names = Names()
    for host in hosts:
        names.learn_host(host, sure=True)
    names.close()
    return Redactor(names, b"k" * 32).text(text)


def test_a_neighbour_that_nothing_else_tells_of_is_a_host_too():
    assert "0413" not in redacted("see trn-gh-0413.log and TRN-GH-0414", "trn-gh-0412")


@pytest.mark.parametrize("word", ["trn-gh-04131", "xtrn-gh-0413", "sm_90", "h100", "rank-7"])
def test_other_words_stay(word):
    assert word in redacted(f"see {word} there", "trn-gh-0412", "h200", "rank-3")
