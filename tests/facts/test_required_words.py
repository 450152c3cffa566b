"""Words that must stand in a text before a pattern is worth searching for."""

from __future__ import annotations

import random
import re

import pytest

from whichrank.evidence.readers import pulse
from whichrank.evidence.readers.reports import prose, symptoms
from whichrank.evidence.readers.torch_output import completion
from whichrank.facts.messages import signatures
from whichrank.facts.required_words import Phrases, alternatives, may_match


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


@pytest.mark.parametrize("seed", range(20))
def test_some_phrases_find_what_all_would(seed):
    said = ("the job hangs", "hung", "never returns", "crash", "killed", "Error", "slow", "卡住", "no", "stuck")
    text = " ".join(random.Random(seed).choices(said, k=40))
    for phrases in symptoms._SEEN.values():
        for asked in (text, text.upper(), text[:200], text * 40, ""):
            spans = [match.span() for match in phrases.finditer(asked)]
            assert spans == [match.span() for match in phrases.whole.finditer(asked)]
    assert not list(Phrases("hangs", "stuck").finditer("all is well"))


def covered(pattern, listed):
    """Whether every text that the pattern matches has one of the listed words."""
    branches = alternatives(pattern)
    return bool(branches) and all(
        any(all(any(one in word for one in listed) for word in words) for words in branch) for branch in branches
    )


def test_words_that_readers_look_for_first_are_in_all_that_their_patterns_match():
    for pattern in completion._WORDS:
        assert covered(pattern.pattern, completion._ENDS), pattern.pattern
    assert covered(pulse._WORKS.pattern, pulse._WORDS)
    assert covered(prose._PRINTED_WITHIN.pattern, [word.lower() for word in prose._MARKS])
    assert not covered(r"loss|\d+ it/s|reward", pulse._WORDS[:1])
