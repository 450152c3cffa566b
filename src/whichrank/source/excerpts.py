"""Lines of the training code around a place, found below a folder that the user names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from whichrank.model.findings import CodePlace
from whichrank.model.verdict import Excerpt

AROUND = 4
LARGEST = 4 << 20
# A source tree larger than this is searched no further.
MANY_FILES = 50_000


def find_excerpts(root: Path, places: Iterable[CodePlace]) -> tuple[Excerpt, ...]:
    """The code around each place whose file is found: the file whose path ends most like the recorded one."""
    wanted = list(dict.fromkeys(places))
    by_name: dict[str, list[Path]] = {}
    names = {Path(place.file).name for place in wanted}
    for number, path in enumerate(root.rglob("*.py")):
        if number >= MANY_FILES:
            break
        if path.name in names:
            by_name.setdefault(path.name, []).append(path)
    found = (_excerpt(root, place, by_name.get(Path(place.file).name, [])) for place in wanted)
    return tuple(excerpt for excerpt in found if excerpt is not None)


def _excerpt(root: Path, place: CodePlace, candidates: list[Path]) -> Excerpt | None:
    best = max(candidates, key=lambda path: (_common_ending(path, place.file), str(path)), default=None)
    if best is None or best.stat().st_size > LARGEST:
        return None
    lines = best.read_text(encoding="utf-8", errors="replace").splitlines()
    if not 1 <= place.line <= len(lines):
        return None
    first = max(1, place.line - AROUND)
    return Excerpt(place, str(best.relative_to(root)), first, tuple(lines[first - 1 : place.line + AROUND]))


def _common_ending(path: Path, recorded: str) -> int:
    """How many folders, counted from the file upwards, both paths share."""
    count = 0
    for mine, theirs in zip(reversed(path.parts), reversed(Path(recorded).parts), strict=False):
        if mine != theirs:
            break
        count += 1
    return count
