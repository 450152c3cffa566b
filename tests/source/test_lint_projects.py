"""Small projects in the styles that people use: every mistake named, nobody accused wrongly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.each import over
from tests.source.lint_programs import SAMPLES
from whichrank.flows.lint.check import lint

MARK = re.compile(r" #([!?])(\S+)$")
KNOWN_MISSES = {
    "x06_multi_return": "a file that another function did not find counts as missing on all ranks: they resume alike",
}
KNOWN_EXTRAS = {
    "w39_env_late_timeout": "NCCL_DEBUG after init_process_group: NCCL reads it with its first communicator",
}


@dataclass
class Program:
    """`=== name wrong|ok`, then `--- file` and its lines; `#!cause` marks a mistake, `#?cause` a line as good."""

    name: str
    wrong: bool
    files: dict[str, list[str]] = field(default_factory=dict)
    marks: list[tuple[str, str, int, frozenset[str]]] = field(default_factory=list)


def programs() -> Iterator[Program]:
    parts = re.split(r"^=== (\S+) (\S+)\n", (SAMPLES / "projects.txt").read_text(), flags=re.MULTILINE)
    for name, kind, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        program = Program(name, kind == "wrong")
        pieces = re.split(r"^--- (\S+)\n", text, flags=re.MULTILINE)
        for file, body in zip(pieces[1::2], pieces[2::2], strict=True):
            lines = program.files[file] = body.split("\n")
            for number, line in enumerate(lines):
                if match := MARK.search(line):
                    program.marks.append((match[1], file, number + 1, frozenset(match[2].split("|"))))
                    lines[number] = line[: match.start()]
        yield program


PROGRAMS = list(programs())


def judge(program: Program, folder: Path) -> tuple[list[str], list[str]]:
    """Mistakes that were not named, and findings that are none."""
    for name, lines in program.files.items():
        (folder / name).write_text("\n".join(lines))
    found = [(f.evidence[0].source, f.evidence[0].line, f.cause, f.code) for f in lint([folder]).findings]
    missed, used = [], set()
    for sign, file, line, causes in program.marks:
        if sign == "!":
            places = {(file, line)} | {(f, n) for s, f, n, c in program.marks if s == "?" and c == causes}
            hits = {i for i, (f, n, cause, code) in enumerate(found) if (f, n) in places and {cause, code} & causes}
            used |= hits
            if not hits:
                missed.append(f"{file}:{line}")
    marked = {(file, line) for _, file, line, _ in program.marks}
    extra = [f for i, f in enumerate(found) if i not in used and f[2] and (f[0], f[1]) not in marked]
    return missed, [f"{f[0]}:{f[1]} {f[3]}" for f in extra]


@over([(program,) for program in PROGRAMS], lambda program: program.name)
def test_a_project_is_judged_as_marked(program: Program, tmp_path: Path) -> None:
    missed, extra = judge(program, tmp_path)
    assert bool(missed) == (program.name in KNOWN_MISSES), missed
    assert bool(extra) == (program.name in KNOWN_EXTRAS), extra


def test_there_are_right_and_wrong_projects() -> None:
    wrong = sum(program.wrong for program in PROGRAMS)
    assert len(PROGRAMS) >= 200
    assert wrong >= 100
    assert len(PROGRAMS) - wrong >= 50
    assert all(bool(program.marks) == program.wrong for program in PROGRAMS)
