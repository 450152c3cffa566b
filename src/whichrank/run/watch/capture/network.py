"""Connections of every rank, and the interfaces and counters of the network namespaces that they live in."""

from __future__ import annotations

from collections.abc import Sequence

from whichrank.evidence.bundle import Bundle
from whichrank.run.watch.capture.files import read
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.worker import network, sockets
from whichrank.worker.surroundings import START

_MOST = 8 << 20


def keep_sockets(job_processes: JobProcesses, bundle: Bundle, member: Member, token: str) -> None:
    """Its own answer with all that TCP knows; else what /proc says of it."""
    rank, pid = member.rank, member.words.pid
    path = f"host/sockets.rank_{rank}.txt"
    own = read(job_processes.folder / f"{member.name}.{token}.sockets", _MOST)
    if own:
        bundle.add(path, own, "sockets", rank=rank, pid=pid, note="by the process itself")
    elif member.alive:
        try:
            text = sockets.of_process(pid)
        except OSError as error:
            bundle.lacks("sockets", f"/proc/{pid}/fd: {error.strerror}", rank)
        else:
            bundle.add(path, text.encode(), "sockets", rank=rank, pid=pid, note="by /proc, without TCP's own values")


def keep_namespaces(job_processes: JobProcesses, bundle: Bundle, members: Sequence[Member], token: str) -> None:
    """Every namespace as it was at the start and as it is now, in one file: counters tell by their rise."""
    living = [m for m in members if m.alive]
    people: dict[int, list[Member]] = {}
    for member in living:
        people.setdefault(network.namespace(member.words.pid), []).append(member)
    known = {int(path.name.split(".")[1]) for path in job_processes.folder.glob("net.*.*") if path.name.count(".") == 2}
    for number in sorted((known | people.keys()) - {0}):
        at_start = read(job_processes.folder / f"net.{number}.{START}", _MOST)
        now = read(job_processes.folder / f"net.{number}.{token}", _MOST) or _seen_from_here(
            number, people.get(number, [])
        )
        ranks = ", ".join(str(m.rank) for m in people.get(number, []))
        head = f"# network namespace {number}" + (f" of ranks {ranks}\n" if ranks else "\n")
        if now or not (bundle.folder / f"host/net.{number}.txt").exists():
            bundle.add(f"host/net.{number}.txt", head.encode() + at_start + now, "network")
        if not at_start:
            bundle.lacks("network at the start", f"nobody was there to look at namespace {number}")


def _seen_from_here(number: int, members: Sequence[Member]) -> bytes:
    if number == network.namespace():
        return network.own().encode()
    return network.of_process(members[0].words.pid).encode() if members else b""
