"""The flight recorder of every rank: the best dump that there is."""

from __future__ import annotations

from pathlib import Path

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.collectors import job_sockets, processes, worker_server
from whichrank.model import last_words as layout
from whichrank.run.watch.capture.asking import framed
from whichrank.run.watch.capture.files import document, modified_ns, read
from whichrank.run.watch.job_files import Torch
from whichrank.run.watch.job_processes import JobProcesses, Member


def dump_of(job_processes: JobProcesses, bundle: Bundle, member: Member, token: str, places: Torch) -> None:
    """The newest one, with frames where they could be had in time."""
    rank, pid = member.rank, member.words.pid
    # Its own answer is dated by the moment it was taken; torch's file by the end of the writing, seconds later.
    if _left(job_processes, bundle, member, ((framed(job_processes.folder, member), "when asked"),)):
        return
    by_torch = _fresh(places.dump_of(rank), member)
    if by_torch:
        taken_ns = modified_ns(places.dump_of(rank))
        bundle.add(
            f"dumps/rank_{rank}", by_torch, "flight recorder", rank=rank, pid=pid, note="written by torch",
            taken_ns=taken_ns,
        )  # fmt: skip
        return
    if _left(job_processes, bundle, member, ((token, "when asked, without frames"),)):
        return
    served, why = _served(job_processes, member)
    if served:
        note = "by its worker server"
        bundle.add(f"dumps/rank_{rank}", served, "flight recorder", rank=rank, pid=pid, note=note)
        return
    reserve = (("end", "when it failed, without frames"), ("kept", "in reserve, without frames"))
    if not _left(job_processes, bundle, member, reserve):
        bundle.lacks("flight recorder", _why(member, why), rank)


def keep_groups(job_processes: JobProcesses, bundle: Bundle, member: Member) -> None:
    """Who is in the rank's process groups."""
    told = read(job_processes.folder / f"{member.name}.groups")
    if told:
        bundle.add(f"groups/rank_{member.rank}.json", told, "groups", rank=member.rank, pid=member.words.pid)


def keep_variables(job_processes: JobProcesses, bundle: Bundle, member: Member, token: str) -> None:
    """The counts and flags that the rank's training code holds where it stands."""
    left = (read(job_processes.folder / f"{member.name}.{when}.variables") for when in (token, "end"))
    told = next(filter(None, left), b"")
    if told:
        bundle.add(f"variables/rank_{member.rank}.json", told, "variables", rank=member.rank, pid=member.words.pid)


def _left(job_processes: JobProcesses, bundle: Bundle, member: Member, tried: tuple[tuple[str, str], ...]) -> bool:
    """Whether one of these files was left, and is now in the bundle."""
    rank, pid = member.rank, member.words.pid
    for suffix, note in tried:
        taken = {kind: read(job_processes.folder / f"{member.name}.{suffix}.{kind}") for kind in ("nccl", "fr")}
        # A job has one recorder for GPUs and one for the rest; the one that it does not use is empty.
        used = {kind: data for kind, data in taken.items() if b"profiling_name" in data}
        for place, (kind, data) in zip(("dumps", "dumps_cpu"), used.items(), strict=False):
            # Whether what is unfinished in it was late is judged by the time at which it was taken.
            taken_ns = modified_ns(job_processes.folder / f"{member.name}.{suffix}.{kind}")
            bundle.add(
                f"{place}/rank_{rank}", data, "flight recorder", rank=rank, pid=pid, note=note, taken_ns=taken_ns
            )
        if used:
            return True
    return False


def _served(job_processes: JobProcesses, member: Member) -> tuple[bytes, str]:
    """With the interpreter held torch's own server still answers, where the job has started one."""
    path = document(job_processes.folder / f"{member.name}.places").get("worker_server")
    environ = processes.environ(member.words.pid)
    path = path or environ.get("TORCH_WORKER_SERVER_SOCKET")
    if not member.alive or member.stopped:
        return b"", ""
    if isinstance(path, str) and path:
        return worker_server.dump(Path(path), member.words.pid)
    store = environ.get("MASTER_PORT", "")
    ranks = [each.words.pid for each in job_processes.ranks() if each.alive]
    without = int(store) if store.isdigit() else 0
    return worker_server.dump_by_port(member.words.pid, job_sockets.of(ranks), without=without), ""


def _why(member: Member, server: str) -> str:
    if member.words.phase < layout.JOINED:
        return f"it had only {layout.PHASES[member.words.phase]}"
    if not member.alive:
        return "it has ended"
    return "the process is stopped" if member.stopped else "; ".join(filter(None, ("it did not answer", server)))


def _fresh(path: Path | None, member: Member) -> bytes:
    """A dump that torch itself wrote, unless an earlier job left it there."""
    try:
        if path is None or path.stat().st_mtime_ns < member.words.started_ns:
            return b""
    except OSError:
        return b""
    return read(path)
