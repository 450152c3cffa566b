"""What came of a rehearsal, as plain values: where every rank is, what it did before, what does not fit."""

from __future__ import annotations

from typing import Any

from whichrank.worker.rehearsal.calls import Call
from whichrank.worker.rehearsal.referee import Seat
from whichrank.worker.rehearsal.server import Server

HISTORY = 120


def record(outcome: str, server: Server, stuck: dict[int, list[Any]]) -> dict[str, Any]:
    referee = server.referee
    ranks = referee.ranks()
    world = referee.world or len(ranks)
    return {
        "outcome": outcome,
        "world": world,
        "ranks": {str(rank): told(seat, server, stuck.get(rank)) for rank, seat in sorted(ranks.items())},
        "absent": [rank for rank in range(world) if rank not in ranks],
        "groups": {
            group.name: {
                "members": group.members,
                "backend": group.backend,
                "timeout_s": group.timeout_s,
                "broken": group.broken,
                "done": min((group.counts.get(m, 0) - len(group.queues.get(m, ())) for m in group.members), default=0),
            }
            for group in referee.groups.values()
        },
        "new_groups": {str(rank): made[:200] for rank, made in referee.made.items()},
        "replicas": referee.replicas,
        "late": referee.late,
        "notes": referee.notes,
        "after": {},
        "alone": next((error for error in (_alone(seat) for seat in referee.seats.values()) if error), None),
    }


def _alone(seat: Seat) -> dict[str, Any] | None:
    """How a process that never became a rank failed: the parent of `mp.spawn`, say."""
    return seat.error if seat.rank is None else None


def told(seat: Seat, server: Server, at: list[Any] | None) -> dict[str, Any]:
    waits = [wait for wait in seat.waits.values() if wait.main] or list(seat.waits.values())
    wait = waits[0] if waits else None
    code = server.code(seat)
    state = (
        "ended" if seat.ended and code in (0, None) else "crashed" if seat.ended else "waiting" if wait else "running"
    )
    return {
        "state": state,
        "code": code,
        "error": seat.error,
        "calls": seat.calls,
        "steps": seat.steps,
        "joined": seat.joined,
        "threads": seat.threads,
        "exhausted": seat.notes.get("exhausted"),
        "left_at": (seat.notes.get("left") or {}).get("at"),
        "caught": [note for note in server.referee.notes if note["kind"] == "caught" and note["rank"] == seat.rank][
            :20
        ],
        "waits": None
        if wait is None
        else {"kind": wait.kind, "what": wait.what, "at": wait.at, "call": wait.call.told() if wait.call else None},
        "running_at": at,
        "open": [call.told() for call in list(seat.open.values())[:50]],
        "history": [brief(call) for call in list(seat.history)[-HISTORY:]],
    }


def brief(call: Call) -> dict[str, Any]:
    """A call of the past: less of its stack."""
    return {**call.told(), "at": call.at[:3]}
