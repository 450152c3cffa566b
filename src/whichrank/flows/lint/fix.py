"""The mechanical fixes for what `lint` found, file by file: as patches, or written."""

from __future__ import annotations

import difflib
import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from whichrank.flows.lint.check import CodeLint
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.source.code.fixes import Wanted


class Change(Struct, frozen=True):
    """One file, before and after."""

    path: Path
    before: str
    after: str
    fixed: tuple[Wanted, ...]

    @property
    def codes(self) -> list[str]:
        return [item.code for item in self.fixed]

    def diff(self) -> str:
        name = os.path.relpath(self.path)  # as `patch -p1` and `git apply` take it from here
        old, new = self.before.splitlines(keepends=True), self.after.splitlines(keepends=True)
        return "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))

    def write(self) -> None:
        """Replace the file, unless somebody changed it meanwhile."""
        if _text(self.path) != self.before:
            raise UsageError(f"{self.path} has changed since it was read", "Run the command again.")
        with self.path.open("w", encoding="utf-8", newline="") as stream:
            stream.write(self.after)


def changes(result: CodeLint) -> list[Change]:
    """What can be fixed without a person, in the order of the files."""
    try:
        from whichrank.source.code.fixes import Wanted, can_fix, fixed
    except ImportError as error:
        raise UsageError("fixes need libcst", "Install it: pip install 'whichrank[lint]'.") from error
    wanted: dict[str, list[Wanted]] = defaultdict(list)
    for finding in result.findings:
        first = finding.evidence[0]
        if can_fix(finding.code):
            others = tuple(ref.line for ref in finding.evidence[1:] if ref.source == first.source)
            wanted[first.source].append(Wanted(finding.code, first.line, others))
    made = []
    for label, items in sorted(wanted.items()):
        path = result.files[label].path
        before = _text(path)
        after, done = fixed(before, items)
        if done:
            made.append(Change(path, before, after, tuple(done)))
    return made


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as stream:
        return stream.read()
