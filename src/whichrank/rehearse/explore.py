"""What else may happen in a real run: an error that one rank catches, a NaN, an empty batch, other seeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from whichrank.model.findings import Finding

BEYOND = 12
"""Optimizer steps to go on after the change."""
SEED = 1_000_003
HANDLERS = 8
OF_THE_CHANGE = ("size-mismatch", "dtype-mismatch")
"""What an empty batch brings about by itself; it says nothing about the way that the ranks go."""


@dataclass(frozen=True, slots=True)
class Exploration:
    what: str
    request: dict[str, Any]
    steps: int


def plan(record: dict[str, Any], most: int) -> list[Exploration]:
    """The explorations that make sense for this script, the likeliest first."""
    world = record["world"]
    victim = world - 1
    found = _exceptions(record)
    seen = {note["kind"] for note in record["notes"]}
    if "loss" in seen:
        nan = {"kind": "nan", "rank": victim, "at": 3}
        found.append(Exploration(f"the loss of rank {victim} is NaN once", nan, BEYOND))
    if "batch" in seen:
        empty = {"kind": "empty", "rank": victim, "at": 3}
        found.append(Exploration(f"a batch of rank {victim} is empty", empty, BEYOND))
    if any(told["steps"] for told in record["ranks"].values()):
        found.append(Exploration("the seeds are others", {"kind": "seed", "seed": SEED}, 200))
    return found[:most]


def _exceptions(record: dict[str, Any]) -> list[Exploration]:
    """One for each `try` that swallows errors and that ranks have passed."""
    hits: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for note in record["notes"]:
        if note["kind"] == "try" and note["rank"] is not None:
            hits.setdefault((note["file"], note["line"]), []).append(note)
    found = []
    for (file, line), notes in list(hits.items())[:HANDLERS]:
        last = max(notes, key=lambda note: int(note["rank"]))
        request = {"kind": "exception", "rank": last["rank"], "file": file, "line": line}
        name = f"{file.rpartition('/')[2]}:{line}"
        what = f"an error in the `try` at {name} strikes rank {last['rank']} alone"
        found.append(Exploration(what, request, int(last.get("steps", 0)) + BEYOND))
    return found


def counts(record: dict[str, Any], exploration: Exploration) -> bool:
    """Whether the change took place, the program went on, and the ranks parted."""
    injected = any(note["kind"] == "injected" for note in record.get("notes", ()))
    if exploration.request["kind"] == "seed":
        return record["outcome"] in ("diverged", "finished", "steps", "limit")
    return injected and record["outcome"] == "diverged"


def busy(record: dict[str, Any]) -> list[str]:
    """Ranks that were still at work when the time was over, while all others waited for them."""
    running = {rank: told for rank, told in record["ranks"].items() if told["state"] == "running"}
    waiting = [rank for rank, told in record["ranks"].items() if told["state"] == "waiting"]
    if not waiting or not running or len(running) > len(waiting):
        return []
    notes = []
    for rank, told in list(running.items())[:3]:
        frames = [
            f"{file.rpartition('/')[2]}:{line} in {name}" for file, line, name in told["running_at"] or [] if file
        ]
        if frames:
            notes.append(f"rank {rank} was still busy at {frames[0]} while {len(waiting)} ranks waited")
    return notes


def moved(finding: Finding, copy: str, original: str) -> Finding:
    """The same finding with the paths of the original instead of the scratch copy."""
    evidence = tuple(replace(ref, source=ref.source.replace(copy, original)) for ref in finding.evidence)
    code = tuple(replace(place, file=place.file.replace(copy, original)) for place in finding.subject.code)
    return replace(finding, evidence=evidence, subject=replace(finding.subject, code=code))
