"""From the record of a rehearsal to findings: the cause by the taxonomy, both sides with their lines, the fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade
from whichrank.rehearse import ends, mismatches, parting, view, wording
from whichrank.rehearse.building import finding_of, rank_ref, rank_refs
from whichrank.rehearse.positions import Position, read
from whichrank.rehearse.why import parted


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
        or mismatches.broken(record, positions)
        or mismatches.paired(record, positions)
        or parted(record, positions)
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
        return finding_of("world-size-mismatch", (), tuple(waiting), message, [rank_ref(first, "init_process_group")])
    return finding_of(
        "missing-rank-at-init", absent, tuple(waiting), message, rank_refs(positions, waiting[:1], absent)
    )


def _unexplained(positions: dict[int, Position]) -> Finding:
    waiting = [rank for rank, position in positions.items() if position.state == "waiting"]
    first = positions[waiting[0] if waiting else next(iter(positions))]
    message = f"All ranks wait and nothing can go on: {wording.standing(positions)}."
    return finding_of(
        "collective-desync",
        (),
        tuple(waiting),
        message,
        [rank_ref(first, first.what or first.state)],
        grade=Grade.HINTS,
    )


# Other ends.
def _crashed(record: dict[str, Any], positions: dict[int, Position], silent: Finding | None) -> Judgement:
    verdict = ends.crash(positions)
    if not verdict.cause:
        return Judgement((silent,) if silent else (), followed=False, reason=verdict.message)
    refs = [rank_ref(positions[rank], wording.error(positions[rank])) for rank in verdict.ranks[:3]]
    culprits = verdict.ranks if len(verdict.ranks) < len(positions) else ()
    victims = tuple(rank for rank, position in positions.items() if position.state == "waiting")
    finding = finding_of(verdict.cause, culprits, victims, verdict.message, refs)
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
    refs += [rank_ref(positions[rank], positions[rank].what) for rank in waiting[:1]]
    finding = finding_of(verdict.cause, verdict.ranks, tuple(waiting), verdict.message, refs, grade=Grade.SUPPORTS)
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
    return finding_of("replica-divergence", culprits, (), message, [ref])


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
    return finding_of(
        "process-group-order", odd if len(odd) * 2 < len(lists) else (), (), message, [ref], grade=Grade.SUPPORTS
    )


# Building blocks.


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
