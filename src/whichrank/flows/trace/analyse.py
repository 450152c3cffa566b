"""What `trace` does: read the profiles, reduce each where it is read, line the ranks up, judge."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from whichrank.evidence.readers import kineto
from whichrank.evidence.trace_files import is_trace_file
from whichrank.flows.judging import judged
from whichrank.model.contracts import Item, Reader, Reading
from whichrank.model.errors import UnreadableError, UsageError
from whichrank.model.evidence import Coverage, Source
from whichrank.model.findings import Finding
from whichrank.model.step_report import StepReport
from whichrank.records.profiles.steps import RankSteps
from whichrank.records.profiles.trace import Trace
from whichrank.timeline.steps.analysis import STATES, Profiled, Steps, together
from whichrank.timeline.steps.intervals import median
from whichrank.timeline.steps.reduce import reduced

if TYPE_CHECKING:
    from whichrank.evidence.intake import Given

Progress = Callable[[str, int, int], None]
OTHERS = ("nsys", "nccl_inspector", "flight_recorder")
"""Readers of profiles that are loaded only for files that Kineto's does not claim."""
SUFFIX = "_in_profiles"
"""Rules that judge profiles are named so."""


def trace(paths: Sequence[Given], *, jobs: int | None = None, progress: Progress | None = None) -> StepReport:
    """Where the time of the steps goes, by all profiles below the paths."""
    ranks, sources = read_profiles(paths, jobs=jobs, progress=progress)
    if not ranks:
        return StepReport(coverage=Coverage(sources=tuple(sources)), notes=(_nothing(sources),))
    steps = together(_best(ranks))
    kept = {one.source for one in steps.ranks}
    sources = [
        s if s.path in kept or s.quality in ("unusable", "ignored")
        else Source(s.path, s.reader, "ignored", "a profile of this rank, or another one with more steps, is used")
        for s in sources
    ]  # fmt: skip
    return report(steps, sources)


def _best(ranks: list[RankSteps]) -> list[RankSteps]:
    """Profiles where there are any; otherwise what recorded collectives alone."""
    whole = [one for one in ranks if not one.collectives_only]
    return whole or ranks


def report(steps: Steps, sources: Sequence[Source]) -> StepReport:
    """Judge the steps and put the answer together."""
    findings, coverage = _judged(Profiled(steps), sources)
    worlds = [one.world for one in steps.ranks if one.world]
    return StepReport(
        ranks=tuple(steps.shares),
        stragglers=tuple(steps.stragglers),
        advice=tuple(steps.advice),
        collectives=tuple(steps.collectives),
        buckets=tuple(steps.buckets),
        bucket_sizes=tuple(steps.bucket_sizes),
        findings=tuple(findings),
        drawings=steps.drawings(),
        states=STATES,
        step_us=steps.step_ns / 1e3 if any(one.marked for one in steps.ranks) else None,
        world=max(worlds) if worlds else None,
        matched=int((steps.matched.first[1:] - steps.matched.first[:-1] > 1).sum()),
        replay_error_pct=100 * steps.replay_error if steps.replayed is not None else None,
        notes=tuple(_notes(steps)),
        coverage=coverage,
    )


def read_profiles(
    paths: Sequence[Given], *, jobs: int | None = None, progress: Progress | None = None
) -> tuple[list[RankSteps], list[Source]]:
    """Every profile below the paths, reduced; and what became of each file."""
    single = _single(paths)
    if single is not None:  # the commonest case needs neither archives nor workers
        return _sorted([single], [_attempted(single)], [])
    from whichrank.evidence.intake import collect
    from whichrank.fleet.local import map_ordered

    told = (lambda done, total: progress("reading", done, total)) if progress is not None else None
    with collect(paths) as intake:
        results = map_ordered(_read, intake.items, jobs=jobs, size=lambda item: item.size, progress=told)
    return _sorted(intake.items, results, intake.refused)


def _single(paths: Sequence[Given]) -> Item | None:
    """The one profile that was given, as a file or as all that a folder holds."""
    if len(paths) != 1 or paths[0] == "-":
        return None
    path = paths[0].resolve()
    if path.is_dir():
        inside = list(islice(path.iterdir(), 2))
        if len(inside) != 1:
            return None
        path = inside[0]
    if path.is_symlink() or not path.is_file():
        return None
    status = path.stat()
    item = Item(path, path.name, status.st_size, status.st_mtime_ns)
    return item if is_trace_file(item) else None


def _attempted(item: Item) -> tuple[str, Reading] | str:
    try:
        return _read(item)
    except (ValueError, TypeError, ArithmeticError, LookupError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def _sorted(
    items: Sequence[Item], results: Sequence[Any], refused: Sequence[Source]
) -> tuple[list[RankSteps], list[Source]]:
    """Profiles and sources; what gave no result says why."""
    ranks: list[RankSteps] = []
    sources = list(refused)
    several = 0
    for item, result in zip(items, results, strict=True):
        if isinstance(result, tuple):
            name, reading = result
            ranks += _numbered(reading.records, several)
            several += len(reading.records) if len(reading.records) > 1 else 0
            sources.append(Source(item.label, name, reading.quality, reading.note))
        else:
            sources.append(Source(item.label, "", "unusable", getattr(result, "message", str(result))))
    return ranks, sources


def _numbered(records: list[RankSteps], before: int) -> list[RankSteps]:
    """A file with all processes of a host numbers them from 0: those of the next such file come after them."""
    if len(records) > 1 and before:
        return [replace(one, rank=before + (one.rank or 0)) for one in records]
    return records


def _read(item: Item) -> tuple[str, Reading]:
    reader = reader_of(item)
    if reader is None:
        return "", Reading(quality="ignored", note="not a profile that whichrank knows")
    try:
        reading = reader.read(item)
    except UnreadableError as error:
        return reader.NAME, Reading(quality="unusable", note=error.message)
    reading.records = [reduced(found) for record in reading.records if (found := _profile(record, reader.NAME))]
    return reader.NAME, reading


def _profile(record: Any, reader: str) -> Trace | None:
    if isinstance(record, Trace):
        return record
    from whichrank.timeline.steps.recorded import trace_of

    return trace_of(record, reader)


def reader_of(item: Item) -> Reader | None:
    """The reader that knows this kind of profile."""
    head, name = item.head(), item.label.rsplit("/", 1)[-1]
    if is_trace_file(item):
        return cast("Reader", kineto)
    for other in OTHERS:
        reader: Any = import_module(f"whichrank.evidence.readers.{other}")
        if reader.sniff(head, name):
            return cast("Reader", reader)
    return None


def _judged(case: Profiled, sources: Sequence[Source]) -> tuple[list[Finding], Coverage]:
    findings, found, clear, skipped = judged(profile_rules(), case)
    order = {"error": 0, "warning": 1, "info": 2}
    findings.sort(key=lambda finding: (order[finding.severity], -finding.confidence))
    return findings, Coverage(tuple(sources), tuple(found), tuple(clear), tuple(skipped))


def profile_rules() -> list[Any]:
    """The rules on profiles, by the names of their files; the many others are not loaded."""
    root = Path(import_module("whichrank").__path__[0])
    names = []
    for folder, below, files in os.walk(root / "rules"):  # pathlib's glob would take longer than the rules
        below[:] = [name for name in below if name != "__pycache__"]
        names += [Path(folder, file) for file in files if file.endswith(f"{SUFFIX}.py")]
    rules = [import_module(".".join(name.relative_to(root.parent).with_suffix("").parts)) for name in names]
    return sorted(rules, key=lambda rule: str(rule.CODE))


def _nothing(sources: Sequence[Source]) -> str:
    if not sources:
        raise UsageError("the files hold no profile", "Give profiles of torch.profiler or a folder of them.")
    return "no profile could be read"


def _cost(steps: Steps) -> list[str]:
    """What the recording itself cost, where it was measured."""
    signs = [one.signs for one in steps.ranks if "unrecorded_step_ns" in one.signs]
    if not signs:
        return []
    before, then = (median([one[key] for one in signs]) / 1e6 for key in ("unrecorded_step_ns", "recorded_step_ns"))
    more = 100 * (then / before - 1)
    return [f"A step took {before:.1f} ms before the recording and {then:.1f} ms in it ({more:+.1f} %)."]


def _notes(steps: Steps) -> list[str]:
    """What a reader of the numbers must know."""
    notes = []
    if not any(one.marked for one in steps.ranks):
        notes.append("No steps are marked (profiler.step(), optimizer steps or repeated annotations): all is one step.")
    early = [one for one in steps.ranks if one.ends_early]
    if early:
        notes.append(
            f"{len(early)} of {len(steps.ranks)} files end early, and kernels may be missing anywhere in them: their"
            " compute and communication are the least there was, and idle time is not told."
        )
    if any(one.collectives_only for one in steps.ranks):
        notes.append("Collectives alone: where the time between them goes, and what a fix returns, needs profiles.")
    if not all(one.ends_known for one in steps.ranks):
        notes.append(
            "No ends of collectives (TORCH_NCCL_ENABLE_TIMING=1 records them): arrivals are compared by the hosts' own"
            " clocks."
        )
    if not any(one.on_device for one in steps.ranks):
        notes.append("No device in the profile: operators of the host count as compute.")
    worlds = [one.world for one in steps.ranks if one.world]
    if worlds and len(steps.ranks) < max(worlds):
        notes.append(f"{len(steps.ranks)} of {max(worlds)} ranks: who waits for the others is not known.")
    notes += _cost(steps)
    if steps.replayed is None and len(steps.ranks) > 1:
        notes.append("The steps could not be replayed: gains are estimates by shares alone.")
    return notes
