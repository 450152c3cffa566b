"""The referee: takes every rank's calls, completes those that fit, and knows when nothing can go on.

No time-out decides about collectives. A rank runs until it tells that it waits; when every rank waits or has ended and
no call can be completed, that is the divergence.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from whichrank.worker.rehearsal import wire
from whichrank.worker.rehearsal.calls import Call, Group, disagreement, made_up, matches
from whichrank.worker.rehearsal.keys import Keys
from whichrank.worker.rehearsal.values import results

KEPT = 200
"""Calls of each rank that are remembered."""
TOGETHER_S = 0.1
"""Sleepers that would wake within this of each other wake together."""
ALWAYS_S = 86_400.0


@dataclass(slots=True)
class Wait:
    """Something that a thread of a rank waits for."""

    number: int
    kind: str
    what: str
    at: list[Any]
    main: bool
    since: float
    wake: float | None = None
    call: Call | None = None
    polled: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Seat:
    """One process that is connected, and the rank that it plays."""

    key: int
    pid: int
    rank: int | None
    outbox: deque[memoryview] = field(default_factory=deque)
    waits: dict[int, Wait] = field(default_factory=dict)
    threads: int = 0
    offset: float = 0.0
    open: dict[int, Call] = field(default_factory=dict)
    history: deque[Call] = field(default_factory=lambda: deque(maxlen=KEPT))
    after: list[Call] = field(default_factory=list)
    calls: int = 0
    steps: int = 0
    joined: bool = False
    left: bool = False
    """The connection is closed."""
    code: int | None = None
    error: dict[str, Any] | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    heard: float = field(default_factory=time.monotonic)

    @property
    def ended(self) -> bool:
        return self.left or self.code is not None

    @property
    def blocked(self) -> bool:
        """Whether its main thread waits for others."""
        return any(wait.main for wait in self.waits.values())

    def put(self, header: dict[str, Any], payload: Any = b"") -> None:
        data = memoryview(payload)
        head = wire.pack(header, len(data))
        if len(data) < wire.SMALL:
            self.outbox.append(memoryview(head + bytes(data)))
        else:
            self.outbox += [memoryview(head), data]


class Referee:
    """Knows nothing of sockets: messages come in, answers go into the seats' outboxes."""

    def __init__(self, world: int | None) -> None:
        self.world = world
        self.seats: dict[int, Seat] = {}
        self.by_rank: dict[int, Seat] = {}
        self.groups: dict[str, Group] = {}
        self.keys = Keys()
        self.made: dict[int, list[dict[str, Any]]] = {}
        self.inits: dict[int, tuple[Seat, int, dict[str, Any]]] = {}
        self.mismatch: dict[str, Any] | None = None
        self.late: dict[str, Any] | None = None
        self.speculating = False
        self.replicas: dict[str, Any] | None = None
        self.prints: dict[tuple[int, int], dict[int, Any]] = {}
        self.notes: list[dict[str, Any]] = []
        self.activity = 0

    def ranks(self) -> dict[int, Seat]:
        return self.by_rank

    def seat(self, key: int, pid: int, rank: int | None) -> None:
        """A process has connected."""
        self.seats[key] = Seat(key, pid, rank)
        if rank is not None:
            self.by_rank[rank] = self.seats[key]

    # Messages.
    def hear(self, seat: Seat, header: dict[str, Any], payload: bytearray) -> None:
        self.activity += 1
        seat.heard = time.monotonic()
        if header.get("b"):
            seat.threads, seat.offset = header["threads"], max(seat.offset, header["off"])
        getattr(self, f"hear_{header['t']}")(seat, header, payload)

    def hear_group(self, _seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        name = header["g"]
        if name not in self.groups:
            self.groups[name] = Group(name, header["members"], header["timeout"], header["backend"])
        elif self.groups[name].members != header["members"] and self.groups[name].broken is None:
            self.groups[name].broken = {"what": "members"}

    def hear_join(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        seat.rank, seat.joined = header["rank"], True
        self.by_rank[header["rank"]] = seat
        self.world = self.world or header["world"]

    def hear_init(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        self.inits[header["rank"]] = (seat, header["id"], header)
        self.block(seat, header, "init", "init_process_group")
        worlds = {asked["world"] for _, _, asked in self.inits.values()}
        if self.speculating or (len(worlds) == 1 and len(self.inits) == worlds.pop()):
            for waiting, number, _ in self.inits.values():
                self.answer(waiting, number)
            self.inits.clear()

    def hear_new_group(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        if seat.rank is not None and not self.speculating:
            self.made.setdefault(seat.rank, []).append({"members": header["members"], "at": header["at"]})

    def hear_call(self, seat: Seat, header: dict[str, Any], payload: bytearray) -> None:
        rank = seat.rank if seat.rank is not None else -1
        group = self.groups[header["g"]]
        paired = header["sig"]["op"] in ("send", "recv")
        counts = group.pairs if paired else group.counts
        counts[rank] = counts.get(rank, 0) + 1
        call = Call(header["id"], rank, group.name, counts[rank], header["sig"], header["at"], payload)
        seat.calls += 1
        if self.speculating:
            seat.after.append(call)
            seat.put({"id": call.number}, made_up(call, 1))
            return
        seat.open[call.number] = call
        seat.history.append(call)
        if paired:
            (group.sends if call.op == "send" else group.receives).append(call)
            self.pair(group)
        else:
            group.queues.setdefault(rank, deque()).append(call)
            self.meet(group)

    def hear_wait(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        call = seat.open.get(header["id"])
        if call is None:
            return  # complete: the answer is on its way
        if self.speculating:
            seat.put({"id": call.number}, made_up(call, 1))
            return
        call.waited_at = header["at"]
        self.block(seat, header, "call", call.op)
        seat.waits[header["id"]].call = call

    def hear_poll(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        if self.speculating or any(number not in seat.open for number in header["ids"]):
            seat.put({"id": header["id"]})
            return
        self.block(seat, header, "poll", "is_completed", wake=seat.offset + 0.05)
        seat.waits[header["id"]].polled = header["ids"]

    def hear_sleep(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        if self.speculating:
            seat.put({"id": header["id"]})
            return
        self.block(seat, header, "sleep", f"sleep({header['s']:g})", wake=seat.offset + header["s"])

    def hear_store(self, seat: Seat, header: dict[str, Any], payload: bytearray) -> None:
        answer = self.keys.ask(header, bytes(payload))
        if answer is not None:
            seat.put({"id": header["id"], **answer[0]}, answer[1])
        else:
            patience = header.get("patience")
            wake = seat.offset + patience if patience is not None and patience < 600 else None
            self.block(seat, header, "store", f"store.{header['op']}({header['key']!r})", wake=wake)
            self.keys.wait(header, (seat.key, header["id"]))
        for key, number, data in self.keys.ready():
            waiting = self.seats[key]
            waiting.waits.pop(number, None)
            waiting.put({"id": number, "off": waiting.offset}, data)

    def hear_note(self, seat: Seat, header: dict[str, Any], _payload: bytearray) -> None:
        kind = header["kind"]
        if kind == "step":
            seat.steps = header["step"]
            for model, fingerprint in enumerate(header.get("prints", ())):
                self.compare_replicas(seat, model, header["step"], fingerprint, header)
        elif kind == "end":
            seat.code, seat.error = header["code"], header.get("error")
        else:
            facts = {key: value for key, value in header.items() if key not in ("t", "kind")}
            seat.notes[kind] = {**facts, "calls": seat.calls}
            if len(self.notes) < 500:
                self.notes.append({"rank": seat.rank, "kind": kind, "calls": seat.calls, "steps": seat.steps, **facts})

    # Completion.
    def block(self, seat: Seat, header: dict[str, Any], kind: str, what: str, wake: float | None = None) -> None:
        wait = Wait(header["id"], kind, what, header["at"], header["main"], seat.offset, wake)
        seat.waits[header["id"]] = wait

    def answer(self, seat: Seat, number: int, payload: Any = b"", **facts: Any) -> None:
        seat.waits.pop(number, None)
        seat.open.pop(number, None)
        seat.put({"id": number, "off": seat.offset, **facts}, payload)
        for wait in [wait for wait in seat.waits.values() if number in wait.polled]:
            del seat.waits[wait.number]
            seat.put({"id": wait.number, "off": seat.offset})

    def meet(self, group: Group) -> None:
        """Complete the collectives that every member has reached."""
        ranks = self.ranks()
        while (calls := group.front()) is not None:
            wrong = disagreement(calls)
            if wrong is not None:
                group.broken = {"what": wrong}
                return
            outputs = results([call.signature for call in calls], [call.payload for call in calls])
            seats = [ranks[call.rank] for call in calls]
            latest = max(seat.offset for seat in seats)
            for call, seat, output in zip(calls, seats, outputs, strict=True):
                group.queues[call.rank].popleft()
                call.payload = bytearray()
                seat.offset = latest
                self.answer(seat, call.number, output)

    def pair(self, group: Group) -> None:
        """Complete sends and receives that belong together."""
        ranks = self.ranks()
        for send in list(group.sends):
            receive = next((r for r in group.receives if matches(send, r, group)), None)
            if receive is None or group.broken is not None:
                continue
            if send.signature["dtype"] != receive.signature["dtype"]:
                group.broken = {"what": "dtype", "pair": [send.rank, receive.rank]}
                return
            if send.signature["count"] != receive.signature["count"]:
                group.broken = {"what": "size", "pair": [send.rank, receive.rank]}
                return
            group.sends.remove(send)
            group.receives.remove(receive)
            giver, taker = ranks[send.rank], ranks[receive.rank]
            giver.offset = taker.offset = max(giver.offset, taker.offset)
            self.answer(giver, send.number)
            self.answer(taker, receive.number, send.payload, source=group.members.index(send.rank))

    def compare_replicas(self, seat: Seat, model: int, step: int, found: Any, header: dict[str, Any]) -> None:
        """Parameters of a replicated model must be equal on all ranks after the same step."""
        if self.replicas is not None or found is None or seat.rank is None or self.world is None:
            return
        said = self.prints.setdefault((model, step), {})
        said[seat.rank] = {"print": found, "rates": header.get("rates"), "at": header.get("at")}
        if len(said) == self.world:
            del self.prints[model, step]
            if len({one["print"] for one in said.values()}) > 1:
                ranks = {str(rank): one for rank, one in said.items()}
                self.replicas = {"model": model, "step": step, "ranks": ranks, "since": time.monotonic()}

    # Time.
    def wake(self) -> bool:
        """When everybody waits: let the clock jump to the earliest sleeper. False if nobody sleeps."""
        sleepers = [
            (w.wake, seat, w) for seat in self.seats.values() for w in seat.waits.values() if w.wake is not None
        ]
        if not sleepers:
            return False
        earliest = min(when for when, _, _ in sleepers)
        self.notice_late(earliest, [(seat, w) for when, seat, w in sleepers if when <= earliest + TOGETHER_S])
        for when, seat, wait in sleepers:
            if when <= earliest + TOGETHER_S:
                seat.offset = max(seat.offset, when)
                seat.waits.pop(wait.number, None)
                error = {"err": "wait timeout"} if wait.kind == "store" else {}
                self.keys.forget((seat.key, wait.number))
                seat.put({"id": wait.number, "off": seat.offset, **error})
        return True

    def notice_late(self, now: float, sleeping: list[tuple[Seat, Wait]]) -> None:
        """Whether somebody has waited in a collective for longer than its group allows."""
        if self.late is not None:
            return
        for seat in self.seats.values():
            for wait in seat.waits.values():
                limit = (
                    self.groups[wait.call.group].timeout_s if wait.call else 1800.0 if wait.kind == "init" else ALWAYS_S
                )
                if now - wait.since > limit:
                    stuck = {
                        str(one.rank): sleep.at for one, sleep in sleeping if one is not seat and one.rank is not None
                    }
                    if stuck:
                        self.late = {"ranks": stuck, "waited_s": now - wait.since, "limit_s": limit}
                    return

    def speculate(self) -> None:
        """Let everybody go on with made-up results, to see where the ranks were going."""
        self.speculating = True
        for seat in self.seats.values():
            for wait in list(seat.waits.values()):
                if wait.call is not None:
                    seat.put({"id": wait.number}, made_up(wait.call, 1))
                elif wait.kind in ("sleep", "poll"):
                    seat.put({"id": wait.number})
                else:
                    continue
                del seat.waits[wait.number]
