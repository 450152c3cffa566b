"""Calls that meet but don't fit: other operations, sizes, types or roots, and sends without their receive."""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, Hold
from whichrank.rehearse import pairs, why, wording
from whichrank.rehearse.building import call_ref, finding_of, rank_ref
from whichrank.rehearse.positions import Made, Position

MISMATCH = {"dtype": "dtype-mismatch", "root": "root-mismatch", "reduce": "reduce-op-mismatch", "size": "size-mismatch"}


def broken(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    """Ranks that met at the same call of a group, and brought what does not fit."""
    for name, group in record["groups"].items():
        what = (group["broken"] or {}).get("what")
        if what not in MISMATCH:
            continue
        pair = (group["broken"] or {}).get("pair")
        calls = _front(record, name, pair)
        if not pair and len({(call.op, call.place, call.via) for call in calls.values()}) > 1:
            # Different lines: whoever skipped a call came to the next one of the same kind.
            parted = why.parted(record, positions)
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
    refs = [call_ref(rank, calls[rank]) for _, (rank, *_) in ordered[:4]]
    return finding_of(cause, subject, tuple(r for r in calls if r not in subject), message, refs)


def paired(record: dict[str, Any], positions: dict[int, Position]) -> Finding | None:
    """Sends and receives that wait for each other, or for nobody."""
    found = pairs.find(positions, record["groups"])
    if found is None:
        return None
    refs = [call_ref(rank, call) for rank in found.ranks if (call := positions[rank].call) is not None][:6]
    refs += [
        rank_ref(positions[rank], positions[rank].what or "ended")
        for rank in found.guilty
        if positions[rank].call is None
    ]
    certificate = tuple(
        Hold(rank, call.op, f"rank {found.waits[rank]}", call.place)
        for rank in found.ranks
        if (call := positions[rank].call) is not None and rank in found.waits
    )
    cause = "p2p-deadlock" if found.cycle else "p2p-unmatched"
    victims = tuple(rank for rank in found.ranks if rank not in found.guilty)
    message = wording.paired(found, positions)
    return finding_of(cause, found.guilty, victims, message, refs, certificate=certificate if found.cycle else ())
