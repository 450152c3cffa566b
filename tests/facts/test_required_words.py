"""Words that must stand in a text before a pattern is worth searching for."""

from __future__ import annotations

import re

import pytest

from whichrank.facts.messages import signatures
from whichrank.facts.required_words import alternatives, may_match


@pytest.mark.parametrize(
    ("pattern", "needs"),
    [
        (r"out of memory", [[{"out of memory"}]]),
        (r"(?i:Out) of", [[{" of"}, {"out"}]]),
        (r"\b(?:hangs?|stuck)\b", [[{"hang"}], [{"stuck"}]]),
        (r"rank \d+ (?:died|left)", [[{"rank "}, {"died", "left"}]]),
        (r"[Ee]rror (?:x+)?y?", [[{"error "}]]),
        (r"(?:abc){2,3}", [[{"abc"}]]),
        (r"(?:abc)?", []),
        (r"\d+|loss", []),
        (r"a(?!b)c(?<!x)d", [[{"acd"}]]),
    ],
)
def test_the_words_of_a_pattern(pattern, needs):
    assert [[set(words) for words in branch] for branch in alternatives(pattern)] == needs


def test_no_known_message_is_passed_over():
    """Every example, in its own letters and in capitals where the pattern takes those."""
    for signature in signatures().values():
        for example in signature.examples:
            for text in (example, example.upper(), example.lower()):
                if re.search(signature.pattern, text):
                    assert may_match(signature.pattern, text), (signature.id, text)


def test_a_text_without_the_words_is_not_searched():
    assert not may_match(r"(?i)\b(?:hang|stuck) in (?:all_?reduce)", "the loss is stuck at 3.1")
    assert may_match(r"(?i)\b(?:hang|stuck) in (?:all_?reduce)", "STUCK IN ALLREDUCE")
