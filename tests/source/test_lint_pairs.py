"""Pairs of programs, one with a mistake and its twin without: the mistake is named, the twin is left alone.

In `pairs.txt` a line `-|…` belongs to the wrong program alone, `+|…` to the right one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.each import over
from tests.source.lint_programs import SAMPLES, Score, score_file

KNOWN = {
    "712_nan_guard_decorator_wrong": "the object that a wrapper's `self` is of is not known",
    "719_budget_tokens_right": "the number of elements of a batch counts as local, whatever is computed of it",
    "5q03_try_finally_unlock_wrong": "that a method of a parameter may fail on one rank is not assumed",
    "5q05_sampler_len_wrong": "a class with the word `pad` in it counts as one that pads",
    "215_two_groups_order_wrong": "two groups of all ranks, swapped by a condition, count as groups of a half",
}
_LABEL = re.compile(r"\s*#\s*(?:wrong:.*|near)\s*$")


def pairs() -> Iterator[tuple[str, str]]:
    """Names and texts, the wrong program before the right one."""
    parts = re.split(r"^=== (\S+)\n", (SAMPLES / "pairs.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for name, text in zip(parts[1::2], parts[2::2], strict=True):
        lines = text.splitlines()
        yield f"{name}_wrong", _joined(line.removeprefix("-|") for line in lines if not line.startswith("+|"))
        right = (line.removeprefix("+|") for line in lines if not line.startswith("-|"))
        yield f"{name}_right", _joined(_LABEL.sub("", line) for line in right)


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(lines) + "\n"


@over(list(pairs()), lambda name, _text: name)
def test_a_program_is_judged_as_labelled(name, text, tmp_path):
    (tmp_path / "program.py").write_text(text, encoding="utf-8")
    score = Score()
    score_file(tmp_path / "program.py", score)
    right = (score.misses, score.false) == ([], [])
    assert right == (name not in KNOWN), (score.misses, score.false)
