"""Names that differ from a known host's in its number only."""

from __future__ import annotations

import pytest

from tests import cost
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


def test_many_secrets_are_numbered_in_linear_time():
    names = Names()
    with cost.at_most(1.0):
        shown = [names.secret(f"secret-{number}") for number in range(50_000)]
    assert len(set(shown)) == len(shown)


def test_learned_and_later_hosts_get_different_numbers():
    names = Names()
    for host in ("b2", "a1"):
        names.learn_host(host, sure=True)
    names.close()
    assert [names.host(host) for host in ("a1", "b2", "c3", "d4", "a1")] == [
        f"host-{number:04d}" for number in (1, 2, 3, 4, 1)
    ]


def test_secrets_that_begin_alike_are_all_found():
    names = Names()
    known = [("x1" * 5000)[:size] for size in (*range(6, 150), 8000)]
    for secret in known:
        names.learn_secret(secret)
    pattern = names.spread_pattern()
    assert pattern is not None
    assert [pattern.search(f"a {secret} b")[0] for secret in known] == known
