"""Why ranks parted: the cause and its sentence, from where each side is and how it came there."""

from __future__ import annotations

import re
from typing import Any

from whichrank.model.findings import Finding, Grade
from whichrank.rehearse import parting, view, wording
from whichrank.rehearse.building import finding_of, parting_refs
from whichrank.rehearse.positions import Made, Position

_OWN_DATA = re.compile(
    r"\.item\(\)|\bis(?:nan|inf|finite)\(|\b(?:loss|grad_norm|batch|inputs?|labels|mask)\b|\brandom\b"
)
"""What differs from rank to rank although no rank is named."""


def cause_of(parted: parting.Parting, positions: dict[int, Position]) -> tuple[str, str]:
    """The slug of the taxonomy, and what the source says about why."""
    theirs, call = parted.theirs, parted.call
    caught = _caught(parted, positions)
    if caught:
        return "conditional-collective", caught
    loops = _left_loops(parted, positions)
    if loops:
        return _left(loops, parted, positions)
    if parted.manner in ("ended", "left"):
        return (_ended if parted.manner == "ended" else _elsewhere)(parted, positions)
    if parted.manner == "differs":
        return "collective-desync", ""
    if parted.manner == "swapped":
        other = theirs is not None and theirs.group != call.group
        return ("process-group-order" if other else "collective-order"), ""
    if parted.manner == "added" and theirs is not None:
        return _alone(parted, theirs), wording.because(_around(theirs))
    return "conditional-collective", wording.because(_around(call))


def _alone(parted: parting.Parting, theirs: Made) -> str:
    """A call that the others don't make: by rank 0 or under a branch on the rank, or by some condition."""
    single, around = len(parted.deviating) == 1, _around(theirs)
    by_data = not around.on_rank and any(_OWN_DATA.search(condition) for _, condition in around.conditions)
    by_rank = (parted.deviating == (0,) and not by_data) or (single and around.on_rank)
    return "rank0-only-collective" if by_rank else "conditional-collective"


def _caught(parted: parting.Parting, positions: dict[int, Position]) -> str:
    """An error that only the deviating ranks caught, in a `try` around the call that the others wait in."""
    place = parted.call.place
    frames = [place] if place else []
    if parted.others:
        frames += positions[parted.others[0]].frames
    elsewhere = {(c["file"], c["line"]) for rank in parted.others for c in positions[rank].caught}
    for rank in parted.deviating:
        for one in positions[rank].caught:
            around = any(f.file == one["file"] and one["line"] <= f.line <= one["last"] for f in frames if f)
            if around and (one["file"], one["line"]) not in elsewhere:
                return f"Rank {rank} caught {one['error']} in the `try` of line {one['line']} and went on."
    return ""


def _left_loops(parted: parting.Parting, positions: dict[int, Position]) -> list[tuple[int, int, bool]]:
    """The loops in which the others still are, and behind which the deviating ranks are already, innermost first."""
    theirs, ours = positions[parted.deviating[0]], positions[parted.others[0]]
    if theirs.state == "ended" or parted.call.key not in {call.key for call in theirs.history}:
        return []
    lines = {(frame.file, frame.function): frame.line for frame in theirs.frames}
    loops: list[tuple[int, int, bool]] = []
    for frame in ours.frames:
        at = lines.get((frame.file, frame.function))
        around = view.around(frame.file, frame.line).loops
        if at is None:
            loops += around
        elif at != frame.line:
            left = [loop for loop in around if at > loop[1]]
            # Behind the whole call in which the others are: its loops are left, too.
            return loops + left if at > frame.line else []
    return []


def _left(
    loops: list[tuple[int, int, bool]], parted: parting.Parting, positions: dict[int, Position]
) -> tuple[str, str]:
    """They left a loop early: out of data, or by a decision of their own."""
    deviating, waiting = [positions[rank] for rank in parted.deviating], positions[parted.others[0]]
    fewer = [p for p in deviating if p.times_out > waiting.times_out]
    if fewer and fewer[0].exhausted:
        batches = fewer[0].exhausted["batches"]
        return "uneven-inputs", f"The data loader of rank {fewer[0].rank} ran out after {batches} batches."
    if any(leaves for _, _, leaves in loops):
        first = next(line for line, _, leaves in loops if leaves)
        return "conditional-collective", f"They left the loop of line {first} before the others."
    return "uneven-inputs", f"Their loop of line {loops[0][0]} ended before that of the others."


def _ended(parted: parting.Parting, positions: dict[int, Position]) -> tuple[str, str]:
    """The deviating ranks have ended."""
    call, deviating = parted.call, [positions[rank] for rank in parted.deviating]
    waiting = positions[parted.others[0]]
    if not all(call.key in {one.key for one in position.history} for position in deviating):
        return "conditional-collective", wording.because(_around(call))
    if any(p.left_at for p in deviating):
        place = next(p.left_at[0] for p in deviating if p.left_at)
        return "teardown-hang", f"They ended the program at {place}, while the others still train."
    if any(p.times_out > waiting.times_out for p in deviating):
        out = next(p for p in deviating if p.times_out > waiting.times_out)
        batches = out.exhausted["batches"] if out.exhausted else 0
        return "uneven-inputs", f"The data loader of rank {out.rank} ran out after {batches} batches."
    loops = [loop for frame in waiting.frames for loop in view.around(frame.file, frame.line).loops]
    if loops and not any(leaves for _, _, leaves in loops):
        return "uneven-inputs", f"Their loop of line {loops[0][0]} ended before that of the others."
    return ("conditional-collective" if loops else "teardown-hang"), "They left the training loop before the others."


def _elsewhere(parted: parting.Parting, positions: dict[int, Position]) -> tuple[str, str]:
    """The deviating ranks are in a call from which no way leads back to that of the others."""
    theirs = parted.theirs
    if theirs is None:
        return "conditional-collective", wording.because(_around(parted.call))
    made = {call.key for rank in positions if rank not in parted.deviating for call in positions[rank].history}
    cause = "conditional-collective" if theirs.key in made else _alone(parted, theirs)
    return cause, wording.because(_around(theirs))


def _around(made: Made) -> view.Surroundings:
    return view.around(made.place.file, made.place.line) if made.place else view.Surroundings()


def parted(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    """The finding on the first place where ranks parted."""
    found = parting.find(positions, record["groups"])
    if found is None:
        return None
    cause, why = cause_of(found, positions)
    message = wording.parted(found, why)
    refs = parting_refs(found, positions)
    deviating = found.deviating if found.certain or cause == "rank0-only-collective" else ()
    grade = Grade.PROVES if found.certain else Grade.SUPPORTS
    return finding_of(cause, deviating, found.others, message, refs, grade=grade)
