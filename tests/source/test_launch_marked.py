"""Small launch files of many formats; a line with a mistake ends in `#~~ NAME`: each is found, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.each import over
from whichrank.flows.env.lint import lint
from whichrank.source import launch

SAMPLES = Path(__file__).parents[1] / "samples"
_MARK = re.compile(r" #~~ ([\w.,=/-]*)$")
PARTS = re.split(r"^=== \d+_(\S+)\n", (SAMPLES / "launch_marked.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
FILES = [(f"{at:03d}", name, text) for at, (name, text) in enumerate(zip(PARTS[1::2], PARTS[2::2], strict=True), 1)]


@over(FILES, lambda number, name, _text: f"{number}_{name}")
def test_every_marked_line_and_nothing_else(number: str, name: str, text: str) -> None:
    marked = [(at, mark[1]) for at, line in enumerate(text.splitlines(), 1) if (mark := _MARK.search(line))]
    plain = "\n".join(_MARK.sub("", line) for line in text.splitlines()) + "\n"
    found = [f for f in lint([launch.read(plain.encode(), name)]).findings if f.severity != "info"]
    fits = {
        (at, index)
        for at, (line, variable) in enumerate(marked)
        for index, f in enumerate(found)
        if line in {ref.line for ref in f.evidence} or (variable and variable in f.message)
    }
    missed = [marked[at] for at in range(len(marked)) if at not in {pair[0] for pair in fits}]
    stray = [f.message for index, f in enumerate(found) if index not in {pair[1] for pair in fits}]
    assert (missed, stray) == ([], []), number


def test_right_and_wrong_files_are_both_there() -> None:
    wrong = [name for _, name, text in FILES if "#~~" in text]
    assert 0.5 <= len(wrong) / len(FILES) <= 0.85
