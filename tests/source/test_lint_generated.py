"""The generated programs, class by class: recall and precision stay where they are."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.source.lint_generated import Generated, programs
from whichrank.flows.lint.check import lint
from whichrank.source.code.index import read_module

CLASSES = ("call ordering", "call matching", "groups", "roots", "other parameters")


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Class -> hits, misses, false findings and silence, by name."""
    folder = tmp_path_factory.mktemp("generated")
    result = defaultdict(lambda: {"hit": [], "missed": [], "false": [], "silent": []})
    for program in programs():
        read_module(program.text, "program.py", "program")  # it is Python
        path = folder / "program.py"
        path.write_text(program.text)
        result[program.kind][_verdict(program, path)].append(program.name)
    return result


def _verdict(program: Generated, path) -> str:
    causes = {finding.cause for finding in lint([path]).findings if finding.cause}
    if program.causes:
        return "hit" if causes & program.causes else "missed"
    return "false" if causes else "silent"


@pytest.mark.parametrize("kind", CLASSES)
def test_a_class_is_told_right_from_wrong(judged, kind):
    found = judged[kind]
    hits, misses, false = len(found["hit"]), found["missed"], found["false"]
    assert hits + len(misses) >= 8
    assert len(found["silent"]) + len(false) >= 8
    assert hits / (hits + len(misses)) >= 0.95, misses
    assert hits / (hits + len(false)) >= 0.95, false
