"""Programs and packages whose faulty lines end in `#!`: one of these lines is named, and nothing else is."""

from __future__ import annotations

import re
from pathlib import Path

from tests.each import over
from tests.source.lint_programs import SAMPLES
from whichrank.flows.lint.check import lint

_MARK = re.compile(r"[ \t]*#!$", re.MULTILINE)


def _parts(packed: str, separator: str) -> dict[str, str]:
    parts = re.split(rf"^{separator} (\S+)\n", packed, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _programs() -> dict[str, dict[str, str]]:
    """Name -> the files of a program."""
    single = _parts((SAMPLES / "marked.txt").read_text(encoding="utf-8"), "===")
    several = _parts((SAMPLES / "packages.txt").read_text(encoding="utf-8"), "===")
    programs = {name: {"program.py": text} for name, text in single.items()}
    return programs | {f"package_{name}": _parts(text, "---") for name, text in several.items()}


PROGRAMS = _programs()


@over([(name,) for name in sorted(PROGRAMS)], str)
def test_a_marked_line_is_named_and_nothing_else(name: str, tmp_path: Path) -> None:
    marked = set()
    for file, text in PROGRAMS[name].items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_MARK.sub("", text), encoding="utf-8")
        marked |= {(file, number) for number, line in enumerate(text.splitlines(), 1) if _MARK.search(line)}
    told = {(f.evidence[0].source, f.evidence[0].line) for f in lint([tmp_path]).findings}
    assert told <= marked
    assert bool(told) == name.endswith("_wrong")


def test_right_and_wrong_programs_are_of_like_number() -> None:
    wrong = [name for name in PROGRAMS if name.endswith("_wrong")]
    assert len(PROGRAMS) >= 250
    assert 0.5 <= len(wrong) / len(PROGRAMS) <= 0.7
