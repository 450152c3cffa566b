"""From the record of a rehearsal to findings: the cause by the taxonomy, both sides with their lines, the fix."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from whichrank.model.evidence import Ref
from whichrank.model.findings import Category, CodePlace, Finding, Hold, Subject
from whichrank.rehearse import ends, pairs, parting, view, wording
from whichrank.rehearse.causes import CODES
from whichrank.rehearse.positions import Made, Position, read

CATEGORY: dict[str, Category] = {
    "size-mismatch": "corruption",
    "dtype-mismatch": "corruption",
    "root-mismatch": "corruption",
    "reduce-op-mismatch": "corruption",
    "replica-divergence": "corruption",
    "rank-exception": "crash",
    "rank-native-crash": "crash",
    "unused-parameters": "crash",
    "invalid-collective-call": "crash",
}

_OWN_DATA = re.compile(
    r"\.item\(\)|\bis(?:nan|inf|finite)\(|\b(?:loss|grad_norm|batch|inputs?|labels|mask)\b|\brandom\b"
)
"""What differs from rank to rank although no rank is named."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one rehearsal showed."""

    findings: tuple[Finding, ...] = ()
    divergence: dict[str, Any] | None = None
    followed: bool = True
    """False where the rehearsal could not follow the script; `reason` says why."""
    reason: str = ""
    notes: tuple[str, ...] = field(default_factory=tuple)


def judge(record: dict[str, Any]) -> Judgement:
    """Judge one record."""
    outcome = record["outcome"]
    if outcome == "failed":
        return Judgement(followed=False, reason=f"the rehearsal itself failed: {record.get('error')}")
    if not record["ranks"]:
        return _nobody(record)
    positions = read(record)
    silent = _replicas(record)
    if outcome in ("finished", "steps", "limit", "drifted"):
        made = _groups_made(record, positions, whole=True) if outcome == "finished" else None
        return Judgement(tuple(one for one in (silent, made) if one is not None))
    if outcome == "crashed":
        return _crashed(record, positions, silent)
    if outcome in ("stuck", "late"):
        return _with(silent, _stuck(record, positions))
    return _with(silent, _diverged(record, positions))


def _with(silent: Finding | None, judgement: Judgement) -> Judgement:
    if silent is None:
        return judgement
    return Judgement((*judgement.findings, silent), judgement.divergence, judgement.followed, judgement.reason)


def _nobody(record: dict[str, Any]) -> Judgement:
    error = record.get("alone")
    if error:
        return Judgement(followed=False, reason=f"the script failed: {error['type']}: {error['message'][:300]}")
    return Judgement(followed=False, reason="no rank made a process group: nothing was rehearsed")


# Divergences.
def _diverged(record: dict[str, Any], positions: dict[int, Position]) -> Judgement:
    finding = (
        _not_joined(record, positions)
        or _groups_made(record, positions, whole=False)
        or _broken(record, positions)
        or _paired(record, positions)
        or _parted(record, positions)
        or _unexplained(positions)
    )
    return Judgement((finding,), _divergence(record, positions, finding))


def _not_joined(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    waiting = [rank for rank, position in positions.items() if position.waits == "init"]
    if not waiting:
        return None
    absent = tuple(sorted({rank for rank, p in positions.items() if p.waits != "init"} | set(record["absent"])))
    first = positions[waiting[0]]
    message = (
        f"{wording.ranks(waiting)} wait in init_process_group for {wording.ranks(absent)}, "
        f"which {wording.ended_or_elsewhere([positions[r] for r in absent if r in positions])}."
    )
    if not absent:
        message = "The ranks call init_process_group with different world sizes."
        return _finding("world-size-mismatch", (), tuple(waiting), message, [_ref(first, "init_process_group")])
    return _finding("missing-rank-at-init", absent, tuple(waiting), message, _refs(positions, waiting[:1], absent))


MISMATCH = {"dtype": "dtype-mismatch", "root": "root-mismatch", "reduce": "reduce-op-mismatch", "size": "size-mismatch"}


def _broken(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    """Ranks that met at the same call of a group, and brought what does not fit."""
    for name, group in record["groups"].items():
        what = (group["broken"] or {}).get("what")
        if what not in MISMATCH:
            continue
        pair = (group["broken"] or {}).get("pair")
        calls = _front(record, name, pair)
        if not pair and len({(call.op, call.place, call.via) for call in calls.values()}) > 1:
            # Different lines: whoever skipped a call came to the next one of the same kind.
            parted = _parted(record, positions)
            if parted is not None and parted.cause != "collective-desync":
                return parted
        return _mismatch(MISMATCH[what], what, calls, pair)
    return None


def _front(record: dict[str, Any], group: str, pair: list[int] | None) -> dict[int, Made]:
    """The oldest open call of each member of a group."""
    from whichrank.rehearse.positions import made

    calls: dict[int, Made] = {}
    for rank, told in record["ranks"].items():
        if pair and int(rank) not in pair:
            continue
        for one in told["open"]:
            if one["group"] == group and (one["sig"]["op"] in ("send", "recv")) == bool(pair):
                calls[int(rank)] = made(one)
                break
    return calls


def _mismatch(cause: str, what: str, calls: dict[int, Made], pair: list[int] | None) -> Finding:
    values: dict[str, list[int]] = {}
    for rank, call in calls.items():
        values.setdefault(wording.brought(what, call), []).append(rank)
    ordered = sorted(values.items(), key=lambda item: len(item[1]))
    minority = tuple(sorted(ordered[0][1])) if len(ordered) == 2 and len(ordered[0][1]) < len(ordered[-1][1]) else ()
    first = next(iter(calls.values()))
    said = "; ".join(f"{wording.ranks(ranks)} {value}" for value, ranks in ordered[::-1][:4])
    place = f" at {first.place}" if first.place else ""
    where = f"{first.name} #{first.seq}{place}" if not pair else f"send and recv between {wording.ranks(pair)}{place}"
    message = f"{where}: {said}."
    subject = minority or (tuple(pair) if pair else ())
    refs = [_call_ref(rank, calls[rank]) for rank in _samples(ordered, 4)]
    return _finding(cause, subject, tuple(r for r in calls if r not in subject), message, refs)


def _samples(ordered: list[tuple[str, list[int]]], limit: int) -> list[int]:
    return [ranks[0] for _, ranks in ordered][:limit]


def _paired(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    """Sends and receives that wait for each other, or for nobody."""
    found = pairs.find(positions, record["groups"])
    if found is None:
        return None
    refs = [_call_ref(rank, call) for rank in found.ranks if (call := positions[rank].call) is not None][:6]
    refs += [
        _ref(positions[rank], positions[rank].what or "ended") for rank in found.guilty if positions[rank].call is None
    ]
    certificate = tuple(
        Hold(rank, call.op, f"rank {found.waits[rank]}", call.place)
        for rank in found.ranks
        if (call := positions[rank].call) is not None and rank in found.waits
    )
    cause = "p2p-deadlock" if found.cycle else "p2p-unmatched"
    victims = tuple(rank for rank in found.ranks if rank not in found.guilty)
    message = wording.paired(found, positions)
    return _finding(cause, found.guilty, victims, message, refs, certificate=certificate if found.cycle else ())


def _parted(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    parted = parting.find(positions, record["groups"])
    if parted is None:
        return None
    cause, why = _cause(parted, positions)
    message = wording.parted(parted, why)
    refs = _parting_refs(parted, positions)
    deviating = parted.deviating if parted.certain or cause == "rank0-only-collective" else ()
    confidence = 0.9 if parted.certain else 0.6
    return _finding(cause, deviating, parted.others, message, refs, confidence=confidence)


def _cause(parted: parting.Parting, positions: dict[int, Position]) -> tuple[str, str]:
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


def _unexplained(positions: dict[int, Position]) -> Finding:
    waiting = [rank for rank, position in positions.items() if position.state == "waiting"]
    first = positions[waiting[0] if waiting else next(iter(positions))]
    message = f"All ranks wait and nothing can go on: {wording.standing(positions)}."
    return _finding(
        "collective-desync", (), tuple(waiting), message, [_ref(first, first.what or first.state)], confidence=0.5
    )


# Other ends.
def _crashed(record: dict[str, Any], positions: dict[int, Position], silent: Finding | None) -> Judgement:
    verdict = ends.crash(positions)
    if not verdict.cause:
        return Judgement((silent,) if silent else (), followed=False, reason=verdict.message)
    refs = [_ref(positions[rank], wording.error(positions[rank])) for rank in verdict.ranks[:3]]
    culprits = verdict.ranks if len(verdict.ranks) < len(positions) else ()
    victims = tuple(rank for rank, position in positions.items() if position.state == "waiting")
    finding = _finding(verdict.cause, culprits, victims, verdict.message, refs)
    return _with(silent, Judgement((finding,), _divergence(record, positions, finding) if culprits else None))


def _stuck(record: dict[str, Any], positions: dict[int, Position]) -> Judgement:
    verdict = ends.stuck(record, positions)
    if not verdict.cause:
        return Judgement(followed=False, reason=verdict.message)
    refs = [
        Ref(p.file, f"line {p.line}", view.source_line(p.file, p.line) or p.function, p.rank) for p in verdict.places
    ]
    waiting = [
        rank for rank, position in positions.items() if position.state == "waiting" and rank not in verdict.ranks
    ]
    refs += [_ref(positions[rank], positions[rank].what) for rank in waiting[:1]]
    finding = _finding(verdict.cause, verdict.ranks, tuple(waiting), verdict.message, refs, confidence=0.7)
    return Judgement((finding,), _divergence(record, positions, finding))


def _replicas(record: dict[str, Any]) -> Finding | None:
    told = record.get("replicas")
    if not told:
        return None
    by_print: dict[int, list[int]] = {}
    for rank, one in told["ranks"].items():
        by_print.setdefault(one["print"], []).append(int(rank))
    ordered = sorted(by_print.values(), key=len)
    culprits = tuple(sorted(ordered[0])) if len(ordered) == 2 and len(ordered[0]) < len(ordered[1]) else ()
    example = told["ranks"][str((culprits or ordered[0])[0])]
    message = wording.replicas(told, culprits, ordered)
    frames = [(file, line, name) for file, line, name in example.get("at") or [] if file]
    place = frames[0] if frames else ("the model", 0, "")
    quote = view.source_line(place[0], place[1]) or "optimizer.step()"
    ref = Ref(place[0], f"line {place[1]}", quote, (culprits or tuple(ordered[0]))[0])
    return _finding("replica-divergence", culprits, (), message, [ref])


def _groups_made(record: dict[str, Any], positions: dict[int, Position], *, whole: bool) -> Finding | None:
    """Groups must be created by all ranks in the same order."""
    made = {int(rank): calls for rank, calls in record["new_groups"].items()}
    if not made:
        return None
    lists = {rank: [tuple(one["members"]) for one in made.get(rank, [])] for rank in positions}
    if not whole:  # in the middle of a run, as far as all ranks have come
        shortest = min(map(len, lists.values()))
        lists = {rank: one[:shortest] for rank, one in lists.items()}
    usual = max(lists.values(), key=lambda one: sum(1 for other in lists.values() if other == one))
    odd = tuple(sorted(rank for rank, one in lists.items() if one != usual))
    if not odd:
        return None
    sample: list[Any] = next((calls for calls in made.values() if calls), [])
    place = next(((f, line, n) for f, line, n in sample[0]["at"] if f), ("", 0, "")) if sample else ("", 0, "")
    message = (
        f"{wording.ranks(odd)} created other process groups than the rest: every rank has to call new_group for every "
        f"group, in the same order, even for groups that it is not in."
    )
    ref = Ref(place[0], f"line {place[1]}", view.source_line(place[0], place[1]) or "new_group", odd[0])
    return _finding("process-group-order", odd if len(odd) * 2 < len(lists) else (), (), message, [ref], confidence=0.7)


# Building blocks.
def _finding(
    cause: str, culprits: tuple[int, ...], victims: tuple[int, ...], message: str, refs: list[Ref],
    *, confidence: float = 0.9, certificate: tuple[Hold, ...] = (),
) -> Finding:  # fmt: skip
    places = tuple(
        CodePlace(ref.source, int(ref.locator.removeprefix("line ")), "", ref.rank)
        for ref in refs
        if ref.locator.removeprefix("line ").isdigit() and ref.locator != "line 0"
    )
    return Finding(
        CODES[cause], cause, CATEGORY.get(cause, "hang"), "error", confidence, Subject(ranks=culprits, code=places[:1]),
        message, tuple(refs) or (Ref("the rehearsal", "end", message),), wording.fixes(cause), victims,
        certificate=certificate,
    )  # fmt: skip


def _call_ref(rank: int, call: Made) -> Ref:
    place = call.place
    if place is None:
        return Ref(call.via or "a library", f"call {call.seq}", call.name, rank)
    return Ref(place.file, f"line {place.line}", view.source_line(place.file, place.line) or call.name, rank)


def _ref(position: Position, what: str) -> Ref:
    place = position.place
    if place is None:
        return Ref("the script", f"rank {position.rank}", what or position.state, position.rank)
    return Ref(place.file, f"line {place.line}", view.source_line(place.file, place.line) or what, position.rank)


def _refs(positions: dict[int, Position], *sides: Any) -> list[Ref]:
    return [_ref(positions[side[0]], positions[side[0]].what) for side in sides if side and side[0] in positions]


def _parting_refs(parted: parting.Parting, positions: dict[int, Position]) -> list[Ref]:
    """The call that does not fit first: the one made too much, else the one left out."""
    ours = [_call_ref(parted.others[0], parted.call)] if parted.others else []
    theirs = [_call_ref(parted.deviating[0], parted.theirs)] if parted.theirs is not None else []
    if not theirs:
        theirs = [_ref(positions[parted.deviating[0]], "ended")]
    return theirs + ours if parted.manner == "added" else ours + theirs


def _divergence(record: dict[str, Any], positions: dict[int, Position], finding: Finding) -> dict[str, Any]:
    found = parting.find(positions, record["groups"])
    call = found.call if found is not None else next((p.call for p in positions.values() if p.call), None)
    sides = sorted(parting.sides(positions).values(), key=len, reverse=True)
    return {
        "seq": call.seq if call else None,
        "group": call.group if call else None,
        "cause": finding.cause,
        "sides": [wording.side(ranks, positions) for ranks in sides[:16]],
    }
