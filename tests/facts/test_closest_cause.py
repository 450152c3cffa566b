"""Texts in words of their own: the closest cause by its words."""

import pytest

from whichrank.facts.closest_cause import _model, closest, reported
from whichrank.facts.taxonomy import causes

TEXTS = {
    "unused-parameters": "Since I froze half of the heads DDP stops at the second iteration. It wants me to look for "
    "parameters that took no part in producing the loss.",
    "shm-too-small": "Works outside docker. In the container loader workers get a bus error, /dev/shm is 64M there.",
    "port-in-use": "Second job on the same box does not start: bind says the address is taken, same master port.",
    "efa-provider-missing": "p4d instances, the plugin says it finds no libfabric provider and NCCL goes over sockets.",
    "cache-not-shared": "Only the first node has the dataset in its HF cache, workers on the second say no such file.",
}


@pytest.mark.parametrize("cause", TEXTS)
def test_a_text_in_other_words_is_close_to_its_cause(cause: str) -> None:
    ranked = closest([TEXTS[cause]])
    assert cause in [found.cause for found in ranked[:2]]
    assert ranked[0].score > 0


def test_the_line_that_says_most_is_told() -> None:
    lines = ["epoch 3 begins", TEXTS["unused-parameters"], "thanks in advance"]
    assert next(found.line for found in closest(lines) if found.cause == "unused-parameters") == 1


def test_a_text_without_known_words_is_close_to_nothing() -> None:
    assert closest(["xyzzy qwop"]) == []
    assert closest([]) == []


def test_the_table_of_words_names_known_causes_and_no_word_of_a_single_report() -> None:
    weights, having, number = reported()
    assert {cause for cause, _ in weights} <= set(causes()) - {"healthy", "unknown"}
    assert min(having.values()) >= 2
    assert max(having.values()) <= number
    assert all(set(words) <= set(having) for _, words in weights)
    assert all(gain > 0 for gains in _model().gains.values() for _, gain in gains)
