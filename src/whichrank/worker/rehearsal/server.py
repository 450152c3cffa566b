"""The referee's ear: sockets, children, clocks; ends the rehearsal when its outcome is known."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from pathlib import Path
from typing import Any

from whichrank.worker.rehearsal.processes import cpu_ticks, tree_ticks
from whichrank.worker.rehearsal.referee import Referee, Seat
from whichrank.worker.rehearsal.wire import Inbox

QUIET_S = 2.0
"""Ranks with further threads must use no processor for this long before they count as waiting."""
IDLE_S = 12.0
"""A rank that is in no call and uses no processor for this long, while all others wait for it, is stuck."""
LOOK_S = 0.25
AFTER_CALLS, AFTER_S = 8, 4.0
"""How far the ranks may go on after a divergence, to see where they were going."""
SETTLE_S = 6.0
"""After a crash the others may run on for this long, to see whether they crash too."""


class Server:
    """Serves until the rehearsal has an outcome."""

    def __init__(self, referee: Referee, listener: socket.socket, deadline: float, steps: int | None) -> None:
        self.referee, self.listener, self.deadline, self.steps = referee, listener, deadline, steps
        self.selector = selectors.DefaultSelector()
        self.selector.register(listener, selectors.EVENT_READ)
        self.connections: dict[int, tuple[socket.socket, Inbox]] = {}
        self.children: dict[int, int | None] = {}
        self.exits: dict[int, int] = {}
        self.quiet: tuple[float, int, int] | None = None
        self.idle: tuple[float, int] | None = None
        self.looked = 0.0
        self.crashed_at: float | None = None

    def serve(self) -> str:
        """Until something is known: finished, diverged, crashed, stuck, late, steps, spawn or limit."""
        while True:
            self.turn(LOOK_S)
            self.reap()
            outcome = self.outcome()
            if outcome is not None:
                return outcome

    def turn(self, patience: float) -> None:
        ready = self.selector.select(0 if self.waiting_to_write() else patience)
        for key, _ in ready:
            if key.fileobj is self.listener:
                self.accept()
            else:
                self.read(key.fd)
        self.write()

    def accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setblocking(False)
        self.connections[connection.fileno()] = (connection, Inbox())
        self.selector.register(connection, selectors.EVENT_READ)

    def read(self, descriptor: int) -> None:
        connection, inbox = self.connections[descriptor]
        frames, alive = inbox.read(connection)
        for header, payload in frames:
            if header["t"] == "hello":
                self.referee.seat(descriptor, header["pid"], header["rank"])
            elif descriptor in self.referee.seats:
                self.referee.hear(self.referee.seats[descriptor], header, payload)
        if not alive:
            self.close(descriptor)

    def close(self, descriptor: int) -> None:
        connection, _ = self.connections.pop(descriptor)
        self.selector.unregister(connection)
        connection.close()
        seat = self.referee.seats.pop(descriptor, None)
        if seat is not None:
            # Descriptors are used again: what has ended is kept under a key of its own.
            seat.left, seat.key = True, -seat.pid
            seat.waits.clear()
            self.referee.seats[seat.key] = seat
            self.referee.activity += 1

    def waiting_to_write(self) -> bool:
        return any(seat.outbox for seat in self.referee.seats.values() if not seat.left)

    def write(self) -> None:
        for descriptor, seat in list(self.referee.seats.items()):
            while seat.outbox and not seat.left:
                try:
                    count = self.connections[descriptor][0].send(seat.outbox[0])
                except BlockingIOError:
                    break
                except OSError:
                    seat.outbox.clear()
                    break
                if count == len(seat.outbox[0]):
                    seat.outbox.popleft()
                else:
                    seat.outbox[0] = seat.outbox[0][count:]

    def reap(self) -> None:
        """The ends of our children: what a rank could not tell itself is in its exit status."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.exits[pid] = os.waitstatus_to_exitcode(status)
            self.referee.activity += 1

    # Outcomes.
    def outcome(self) -> str | None:  # noqa: PLR0911 - one line for each
        referee = self.referee
        if any(note["kind"] == "spawn" for note in referee.notes):
            return "spawn"
        if time.monotonic() > self.deadline:
            return "limit"
        if self.steps is not None and self.everybody(lambda seat: seat.steps >= (self.steps or 0)):
            return "steps"
        if referee.replicas and time.monotonic() - referee.replicas["since"] > SETTLE_S:
            return "drifted"
        if self.all_gone():
            return "crashed" if self.failed() else "unfinished" if self.leftovers() else "finished"
        if self.failed():
            self.crashed_at = self.crashed_at or time.monotonic()
            if time.monotonic() - self.crashed_at > SETTLE_S or not self.running():
                return "crashed"
            return None
        if self.waiting_to_write() or self.everybody(lambda seat: seat.ended):
            return None
        if self.running():
            return self.stuck()
        if not self.settled():
            return None
        if referee.wake():
            return "late" if referee.late else None
        return "diverged"

    def everybody(self, test: Any) -> bool:
        ranks = self.referee.ranks()
        return bool(self.referee.world) and len(ranks) == self.referee.world and all(map(test, ranks.values()))

    def all_gone(self) -> bool:
        known = [pid for pid in self.children if pid not in self.exits]
        return not known and all(seat.left for seat in self.referee.seats.values())

    def failed(self) -> list[int]:
        """Ranks that ended with an error."""
        return [rank for rank, seat in self.referee.ranks().items() if self.code(seat) not in (None, 0)]

    def code(self, seat: Seat) -> int | None:
        if seat.code is not None:
            return seat.code
        return self.exits.get(seat.pid) if seat.left else None

    def leftovers(self) -> bool:
        """Everybody ended, and yet calls were left that could not be completed."""
        return any(group.broken for group in self.referee.groups.values())

    def running(self) -> list[Seat | int]:
        """Ranks that are busy with something of their own; a child that never said hello by its pid."""
        seats = self.referee.seats.values()
        busy: list[Seat | int] = [
            seat for seat in seats if seat.rank is not None and not seat.ended and not seat.blocked
        ]
        if self.referee.world is None or len(self.referee.ranks()) < self.referee.world:
            # Ranks are missing: whoever is not a rank yet may become one, or start one.
            busy += [pid for pid in self.children if pid not in self.exits and not self.plays(pid)]
        return busy

    def plays(self, pid: int) -> bool:
        return any(seat.pid == pid and seat.rank is not None for seat in self.referee.seats.values())

    def settled(self) -> bool:
        """Whether the further threads of the ranks are quiet, too; at once where there are none."""
        threaded = [seat.pid for seat in self.referee.ranks().values() if seat.threads > 0 and not seat.ended]
        if not threaded:
            return True
        now, ticks, activity = time.monotonic(), sum(map(cpu_ticks, threaded)), self.referee.activity
        if self.quiet is None or activity != self.quiet[2] or ticks > self.quiet[1] + 2:
            self.quiet = (now, ticks, activity)
            return False
        return now - self.quiet[0] > QUIET_S

    def stuck(self) -> str | None:
        """Whether the ranks that are in no call do nothing at all while all others wait for them."""
        now = time.monotonic()
        if now - self.looked < 1.0:
            return None
        self.looked = now
        busy = self.running()
        waiting = any(seat.blocked for seat in self.referee.ranks().values())
        pids = [one if isinstance(one, int) else one.pid for one in busy]
        ticks = tree_ticks(pids)
        if not waiting or self.idle is None or self.idle[1] != hash((self.referee.activity, tuple(pids))):
            self.idle = (now, hash((self.referee.activity, tuple(pids))))
            self.ticks = ticks
            return None
        if ticks > self.ticks + 3:
            self.idle, self.ticks = (now, self.idle[1]), ticks
            return None
        return "stuck" if now - self.idle[0] > IDLE_S else None

    def look_after(self) -> None:
        """After a divergence: let the ranks go on a little, each for itself."""
        self.referee.speculate()
        end = time.monotonic() + AFTER_S
        while time.monotonic() < end:
            self.turn(0.05)
            self.reap()
            ranks = self.referee.ranks().values()
            if all(seat.left or len(seat.after) >= AFTER_CALLS or seat.blocked for seat in ranks):
                return

    def stacks(self, folder: Path) -> dict[int, list[Any]]:
        """Where the ranks are that are in no call: their own fault handlers write it."""
        seats = [seat for seat in self.running() if isinstance(seat, Seat)]
        for seat in seats:
            try:
                os.kill(seat.pid, signal.SIGUSR1)
            except OSError:
                continue
        time.sleep(0.5)
        return {seat.rank: read_stack(folder / f"stack-{seat.pid}") for seat in seats if seat.rank is not None}

    def end(self) -> None:
        """No process of the rehearsal stays behind."""
        pids = {seat.pid for seat in self.referee.seats.values() if not seat.left} | set(self.children)
        for pid in pids - set(self.exits):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue


def read_stack(path: Path) -> list[Any]:
    """faulthandler's text: `File "x.py", line 3 in f`, innermost first; the last dump, its first thread."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    frames: list[Any] = []
    current = False
    for line in text.splitlines():
        if "most recent call first" in line:
            current = line.startswith("Current thread")
        elif current and line.startswith('  File "'):
            name, _, rest = line[8:].partition('", line ')
            number, _, function = rest.partition(" in ")
            frames.append((name, int(number) if number.isdigit() else 0, function))
    return frames
