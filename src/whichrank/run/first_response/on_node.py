"""What runs on a node: finds the job, takes its evidence, and sends it as an archive over standard output.

It travels there (see `travelling.py`): Python 3.8, standard library only. It writes no file: what it takes is kept in
memory until it is sent. Its time is limited from inside as well.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import stat
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, BinaryIO

from whichrank.evidence.bundle import MemoryBundle
from whichrank.evidence.collectors import job_sockets, packets, processes, tools
from whichrank.run.first_response.reduce_there import PACKAGE, reduce_there
from whichrank.run.watch.capture import capture, gather_machine, only_stacks
from whichrank.run.watch.collect import UNWATCHED, unwatched_processes
from whichrank.run.watch.find_jobs import FoundJob, jobs, names_of, rendezvous
from whichrank.run.watch.job_files import torch_places
from whichrank.run.watch.job_processes import JobProcesses

MARK = b"\x1ewhichrank-node "
DOCUMENT = "node.json"
_MOST_JOBS = 16
_SEND_S = 3.0
"""Of its time, to send what there is."""
_IDENTITY = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "WORLD_SIZE")


def main() -> None:
    """Standard input: the wishes, as one JSON object. Standard output: a line about the node, then the archive."""
    wishes = json.loads(sys.stdin.buffer.read(1 << 20) or b"{}")
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not get into the archive
    began, limit_s = time.monotonic(), float(wishes.get("limit_s", 20.0))
    # Whatever hangs here (a wedged driver, a dead file system): it ends by itself.
    timer = threading.Timer(limit_s + 2.0, os._exit, (1,))
    timer.daemon = True
    timer.start()
    code = 0
    try:
        answer.write(MARK + json.dumps({"token": wishes.get("token"), **about()}).encode() + b"\n")
        answer.flush()
        document, bundles = take(wishes, began + max(1.0, limit_s - _SEND_S))
        document["took_s"] = round(time.monotonic() - began, 2)
        send(bundles, document, answer)
        answer.close()
    except BrokenPipeError:  # nobody waits any more
        code = 1
    os._exit(code)  # threads that hang are left


def about() -> dict[str, Any]:
    """Who answers, and what time it is there."""
    return {
        "host": own_name(), "boot_id": processes.boot_id(), "now_ns": time.time_ns(),
        "python": ".".join(map(str, sys.version_info[:2])), "uid": os.geteuid(),
    }  # fmt: skip


def own_name() -> str:
    """As Slurm calls this node, else as it calls itself."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()


def take(wishes: dict[str, Any], deadline: float) -> tuple[dict[str, Any], list[MemoryBundle]]:
    """Take the evidence; what is not done by the deadline is left."""
    found = matching(str(wishes.get("job") or ""))
    document: dict[str, Any] = {"jobs": [_told(job) for job in found[:_MOST_JOBS]], "hidden": _hidden()}
    if len({_key(job) for job in found}) > 1:
        return document, []  # whoever asks must say which
    _know_tools(found)
    document["py_spy"] = bool(tools.py_spy())
    depth, name, most = (
        str(wishes.get("depth") or "full"),
        own_name(),
        int(wishes.get("most", 1 << 28)),
    )
    tasks: list[Callable[[MemoryBundle], None]] = [partial(_capture, job, depth) for job in found[:_MOST_JOBS]]
    if not found and depth == "full":
        tasks = [gather_machine]
    bundles = []
    watch = _Packets(found, float(wishes.get("packets") or 0.0))
    for task in tasks:
        bundles.append(MemoryBundle(name, most // len(tasks)))
        _bounded(bundles[-1], partial(task, bundles[-1]), deadline)
    watch.keep(bundles, deadline)
    if wishes.get("reduce"):
        document["not_reduced"] = _reduce(found, bundles, name, deadline)
    return document, bundles


class _Packets:
    """A capture of the job's packets, beside everything else."""

    def __init__(self, found: Sequence[FoundJob], seconds: float) -> None:
        self._result: list[tuple[bytes, str]] = []
        self._thread = threading.Thread(target=self._run, args=(found, seconds), daemon=True)
        self._wanted = bool(found) and seconds > 0
        if self._wanted:
            self._thread.start()

    def _run(self, found: Sequence[FoundJob], seconds: float) -> None:
        pids = [pid for job in found for pid in (job.launcher, *job.ranks)]
        stores = {processes.environ(job.ranks[0]).get("MASTER_PORT", "") for job in found}
        ports = packets.ports_of(job_sockets.of(pids), [int(port) for port in stores if port.isdigit()])
        self._result.append(packets.capture(ports, seconds))

    def keep(self, bundles: Sequence[MemoryBundle], deadline: float) -> None:
        if not self._wanted or not bundles:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        data, why = self._result[0] if self._result else (b"", "the time was up")
        bundles[0].add("packets.pcap", data, "packets", note=why)
        bundles[0].close()


def _reduce(found: Sequence[FoundJob], bundles: Sequence[MemoryBundle], name: str, deadline: float) -> str:
    """Why the evidence could not be reduced here; empty where it was."""
    if not bundles:
        return ""
    with zipfile.ZipFile(sys.path[0]) as archive:  # what travelled here
        package = archive.read(PACKAGE)
    own = [processes.command(pid).partition(" ")[0] for job in found for pid in job.ranks[:1] if _is_mine(pid)]
    safe = [path for path in own if path.startswith("/") and _not_writable_by_others(os.path.dirname(path))]  # noqa: PTH120
    pythons = list(dict.fromkeys([*safe, sys.executable]))
    why = [reduce_there(bundle, pythons, package, name, deadline) for bundle in bundles]
    return next((reason for reason in why if reason), "")


def _is_mine(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()  # noqa: PTH116
    except OSError:
        return False


def matching(wanted: str) -> list[FoundJob]:
    """The jobs of this host; only the one that is meant, where one is."""
    found = [job for job in jobs() if not wanted or wanted in names_of(job)]
    here = os.environ.get("SLURMD_NODENAME")  # several nodes of Slurm may share a machine
    return [
        job for job in found if here is None or processes.environ(job.ranks[0]).get("SLURMD_NODENAME", here) == here
    ]


def _key(job: FoundJob) -> tuple[str, ...]:
    known = processes.environ(job.ranks[0])
    return (rendezvous(known), known.get("TORCHELASTIC_RUN_ID", ""))


def _told(job: FoundJob) -> dict[str, Any]:
    known = processes.environ(job.ranks[0])
    ranks = [int(r) for pid in job.ranks if (r := processes.environ(pid).get("RANK", "")).isdigit() and len(r) < 8]
    return {
        "launcher": job.launcher, "ranks": sorted(ranks), "command": processes.command(job.launcher)[:120],
        "rendezvous": rendezvous(known), "watched": job.private is not None,
        **{name.lower(): known[name][:200] for name in _IDENTITY if name in known},
    }  # fmt: skip


def _hidden() -> int:
    """Python processes of other users: whether they are ranks can't be told."""
    count = 0
    for pid in processes.everybody():
        try:
            with open(f"/proc/{pid}/environ", "rb"):  # noqa: PTH123
                continue
        except PermissionError:
            count += "python" in processes.command(pid).partition(" ")[0]
        except OSError:
            continue
    return count


def _know_tools(found: Iterable[FoundJob]) -> None:
    """py-spy may be installed beside the job's Python; programs of other users are not run."""
    places = []
    for job in found:
        for pid in job.ranks[:1]:
            if not _is_mine(pid):
                continue
            known = processes.environ(pid)
            program = processes.command(pid).partition(" ")[0]
            places += [os.path.dirname(program)] if program.startswith("/") else []  # noqa: PTH120
            places += [f"{known[name]}/bin" for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if known.get(name)]
            places += known.get("PATH", "").split(":")
    safe = [place for place in dict.fromkeys(places) if place.startswith("/") and _not_writable_by_others(place)]
    os.environ["PATH"] = ":".join([os.environ.get("PATH") or os.defpath, *safe])


def _not_writable_by_others(place: str) -> bool:
    try:
        status = os.stat(place)  # noqa: PTH116
    except OSError:
        return False
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


def _capture(job: FoundJob, depth: str, bundle: MemoryBundle) -> None:
    job_processes = (
        JobProcesses(job.private) if job.private is not None else unwatched_processes(job.ranks, processes.everybody())
    )
    ranks = job_processes.look() if job.private is not None else job_processes.ranks()
    if not ranks:
        bundle.lacks("ranks", "they have gone meanwhile")
        return
    if depth == "stacks":
        only_stacks(job_processes, bundle)
    else:
        places = torch_places(processes.environ(ranks[0].words.pid))
        capture(job_processes, bundle, f"collect{os.getpid()}", places=places)
        if job.private is None:
            bundle.lacks("last words", UNWATCHED)
    bundle.manifest.job.update({"world_size": max(m.words.world for m in ranks), "ranks_seen": [m.rank for m in ranks]})
    job_processes.close()


def _bounded(bundle: MemoryBundle, call: Callable[[], None], deadline: float) -> None:
    """Beside this thread, which goes on when the time is up."""
    failed: list[str] = []

    def run() -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - told in the manifest; the rest is sent all the same
            failed.append(f"{type(error).__name__}: {error}"[:300])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.1, deadline - time.monotonic()))
    if thread.is_alive():
        bundle.lacks("the rest of the evidence", "the time was up")
    elif failed:
        bundle.lacks("the rest of the evidence", failed[0])
    bundle.close()


def send(bundles: Sequence[MemoryBundle], document: dict[str, Any], answer: BinaryIO) -> None:
    """One compressed archive; small files first: should it be cut off, words and stacks say more than dumps."""
    files = [(DOCUMENT, json.dumps(document).encode(), time.time_ns())]
    for number, bundle in enumerate(bundles, start=1):
        folder = "bundle" if number == 1 else f"bundle-{number}"
        files += [(f"{folder}/{path}", data, taken) for path, (data, taken) in list(bundle.content.items())]
    files.sort(key=lambda file: len(file[1]))
    packed = gzip.GzipFile(fileobj=answer, mode="wb", compresslevel=1, mtime=0)
    with packed, tarfile.open(fileobj=packed, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name, data, taken in files:
            entry = tarfile.TarInfo(name)
            # Whether what is unfinished in a dump was late is judged by the time at which it was taken.
            entry.size, entry.mtime, entry.mode = len(data), taken / 1e9, 0o600
            archive.addfile(entry, io.BytesIO(data))
