"""The end of every report: what was looked at, what could not be, and what was missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from whichrank.model.evidence import Coverage, Quality
from whichrank.report._words import counted, listed

NOTES = 6
TITLES: dict[Quality, str] = {
    "complete": "read",
    "partial": "read in part",
    "unusable": "could not be read",
    "ignored": "ignored",
}


def lines(coverage: Coverage) -> Iterator[str]:
    """One line per kind of source and note, then the rules."""
    if not coverage.sources:
        yield "No evidence was looked at."
    for quality in TITLES:
        yield from _sources(coverage, quality)
    yield from _failed(coverage)
    yield from _rules(coverage)


def short(coverage: Coverage) -> Iterator[str]:
    """The same in two or three lines."""
    if not coverage.sources:
        yield "No evidence was looked at."
        return
    files = {quality: sum(s.quality == quality for s in coverage.sources) for quality in TITLES}
    told = [f"read {counted(files['complete'] + files['partial'], 'file')}"]
    told += [f"{files['ignored']:,} ignored"] if files["ignored"] else []
    told += [f"{files['unusable']:,} could not be read"] if files["unusable"] else []
    lacking = [skipped for skipped in coverage.not_evaluated if not skipped.failed]
    if lacking:
        missing = sorted({skipped.missing.split(":")[0] for skipped in lacking}, key=lambda m: (len(m), m))
        told.append(f"{counted(len(lacking), 'rule')} not evaluated, missing {listed(missing, 2)}")
    yield "; ".join(told) + " (--verbose)"
    yield from _failed(coverage)
    nothing = not files["complete"] + files["partial"]
    unread = [f"{s.path}: {s.note}" for s in coverage.sources if s.quality == "unusable" or nothing]
    if unread:
        yield f"not read: {listed(unread, 2)}"


def _failed(coverage: Coverage) -> Iterator[str]:
    """Rules with a defect: the verdict may be wrong without them."""
    codes = [skipped.code for skipped in coverage.not_evaluated if skipped.failed]
    if codes:
        yield f"failed by a bug in whichrank: {listed(codes, 8)}; the verdict lacks what they say. Please report it."


def _sources(coverage: Coverage, quality: Quality) -> Iterator[str]:
    """Files with the same reader and note are told together."""
    alike: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for source in coverage.sources:
        if source.quality == quality:
            alike[source.reader, source.note].append(source.path)
    for (reader, note), paths in list(alike.items())[:NOTES]:
        by = f" as {reader}" if reader else ""
        why = f": {note}" if note else ""
        yield f"{TITLES[quality]}{by}: {counted(len(paths), 'file')} ({listed(paths)}){why}"
    left = sum(len(paths) for paths in list(alike.values())[NOTES:])
    if left:
        yield f"{TITLES[quality]}: {counted(left, 'more file')} (in the JSON)"


def _rules(coverage: Coverage) -> Iterator[str]:
    if coverage.found:
        yield f"rules that found something: {listed(coverage.found, 8)}"
    if coverage.clear:
        yield f"rules that found nothing: {listed(coverage.clear, 8)}"
    alike: defaultdict[str, list[str]] = defaultdict(list)
    for skipped in sorted(coverage.not_evaluated, key=lambda skipped: not skipped.failed):
        alike[skipped.missing].append(skipped.code)
    for missing, codes in list(alike.items())[:NOTES]:
        yield f"not evaluated: {listed(codes, 8)}; missing: {missing}"
    left = sum(len(codes) for codes in list(alike.values())[NOTES:])
    if left:
        yield f"not evaluated: {counted(left, 'more rule')} (in the JSON)"
