"""What NCCL's own lines say of ranks: by the prefixes before them, and by the sizes of communicators."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichrank.records.nccl import NcclProcess
    from whichrank.records.ras import RasRank, RasReport


_PROXY = re.compile(r"\[Proxy Service(?: UDS)? (\d{1,7})\]")
"""How the proxy of a process calls itself in NCCL's warnings: by the rank of the process."""


def joined_by_smaller_ones(nccl: Sequence[NcclProcess], size: int) -> bool:
    """Whether there are several communicators of this size, and a smaller one has members of two of them: they are
    columns of a mesh, and not the whole job in two attempts."""
    of_size: dict[tuple[str | None, int | None], str] = {}
    smaller: dict[str, set[tuple[str | None, int | None]]] = {}
    for process in nccl:
        for init in process.inits:
            if init.comm_id is None:
                continue
            if init.nranks == size:
                of_size.setdefault((process.host, process.pid), init.comm_id)
            elif init.nranks < size:
                smaller.setdefault(init.comm_id, set()).add((process.host, process.pid))
    return any(len({of_size[p] for p in members if p in of_size}) > 1 for members in smaller.values())


def stated_ranks(nccl: Sequence[NcclProcess]) -> dict[int, NcclProcess]:
    """Ranks by the launcher's prefixes: each stands before the lines of one process, and none contradicts NCCL."""
    found: dict[int, NcclProcess] = {}
    for process in nccl:
        if process.stated_rank is None or process.pid is None:
            continue
        other = found.setdefault(process.stated_rank, process)
        of_world = {init.rank for init in process.inits if init.nranks > process.stated_rank}
        if other.label != process.label or (of_world and process.stated_rank not in of_world):
            return {}
    return found if len(found) > 1 else {}


def proxied_ranks(nccl: Sequence[NcclProcess]) -> dict[int, NcclProcess]:
    """Ranks by the names of their proxies, where several are named, each of one process: those of a group collide."""
    found: dict[int, NcclProcess] = {}
    for process in nccl:
        named = {int(number) for warning in process.warnings for number in _PROXY.findall(warning.text)}
        if not named or process.pid is None:
            continue
        joined = {init.rank for init in process.inits}
        if len(named) > 1 or (joined and not named <= joined) or found.keys() & named:
            return {}
        found[named.pop()] = process
    return found if len(found) > 1 else {}


def ranks_in_reports(reports: Sequence[RasReport], world: int) -> list[RasRank]:
    """Members of communicators of the whole job, with their processes."""
    found = [rank for report in reports for comm in report.comms if comm.size == world for rank in comm.ranks]
    return found + [rank for report in reports for rank in _listed_of_only_comm(report, world)]


def _listed_of_only_comm(report: RasReport, world: int) -> list[RasRank]:
    """The ranks that a report as text names, where its only communicator is that of the whole job."""
    groups, job = report.groups, report.job
    if job is None or len(groups) != 1 or groups[0].comms != 1 or world not in (0, job.processes):
        return []
    named = [rank for problem in report.problems if problem.comm_id is not None for rank in problem.ranks]
    named += [rank for mismatch in report.mismatches for value in mismatch.values for rank in value.listed]
    return [rank for rank in named if rank.pid is not None and rank.rank < job.processes]
