"""The jobs that run on this host: which ranks belong together, who started them, and who watches them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whichrank.evidence.collectors import processes
from whichrank.evidence.collectors.processes import Stat
from whichrank.model.errors import UsageError
from whichrank.run.watch import private
from whichrank.run.watch.results_folder import read_state
from whichrank.worker.startup import FOLDER

_TOGETHER = ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", FOLDER)
"""What all ranks of one job have in common."""
_LISTED, _WIDE = 8, 90


@dataclass(frozen=True, slots=True)
class FoundJob:
    """The ranks that one process has started."""

    launcher: int
    ranks: tuple[int, ...]
    """Their processes."""
    private: Path | None = None

    def __str__(self) -> str:
        count = f"{len(self.ranks)} rank{'s' if len(self.ranks) != 1 else ''}"
        return f"{self.launcher}  {count}  {processes.command(self.launcher)[:_WIDE]}"


def jobs(root: int | None = None) -> list[FoundJob]:
    """The jobs of this host, or those with a process at or below this one."""
    everyone = processes.everybody()
    environs = {pid: processes.environ(pid) for pid in everyone}
    together: dict[tuple[object, ...], list[int]] = {}
    ranks = [pid for pid in sorted(everyone) if _is_rank(pid, everyone, environs)]
    for pid in _without_daemons(ranks, everyone, environs):
        key = (everyone[pid].parent, *(environs[pid].get(name) for name in _TOGETHER))
        together.setdefault(key, []).append(pid)
    found = [_job(ranks, everyone, environs) for ranks in together.values()]
    if root is None:
        return found
    inside = {root, *processes.below(root, everyone)}
    below = [job for job in found if job.launcher in inside or any(rank in inside for rank in job.ranks)]
    return below or [job for job in found if any(root in processes.below(rank, everyone) for rank in job.ranks)]


def names_of(job: FoundJob) -> set[str]:
    """By what a job can be meant: its Slurm job, its run id, its rendezvous, the pid of its launcher or of a rank."""
    known = processes.environ(job.ranks[0])
    names = {known.get("SLURM_JOB_ID"), known.get("TORCHELASTIC_RUN_ID"), known.get("MASTER_PORT"), rendezvous(known)}
    return {name for name in names if name} | {str(pid) for pid in (job.launcher, *job.ranks)}


def rendezvous(known: Mapping[str, str]) -> str:
    """Where the ranks of a job meet, by their environment."""
    return f"{known.get('MASTER_ADDR', '')}:{known.get('MASTER_PORT', '')}"


def the_job(pid: int | None, name: str = "") -> FoundJob | None:
    """The one that is meant; None where no rank is there. Where several may be meant, they are listed."""
    found = [job for job in jobs(pid) if not name or name in names_of(job)]
    if pid is not None:
        exact = [job for job in found if pid == job.launcher or pid in job.ranks]
        found = exact if len(exact) == 1 else found
    if len(found) > 1:
        where = f"below process {pid}" if pid is not None else "here"
        listed = "\n".join(f"    {job}" for job in found[:_LISTED])
        raise UsageError(f"{len(found)} jobs run {where}", f"Give the pid of one of them:\n{listed}")
    return found[0] if found else None


def watched() -> dict[Path, Path]:
    """Private folder -> results folder of the jobs of this user that somebody watches."""
    folders = {Path(name) for pid in processes.everybody() if (name := processes.environ(pid).get(FOLDER))}
    folders |= set(Path(tempfile.gettempdir()).glob(f"{private.PREFIX}*"))
    found = {}
    for folder in sorted(folders):
        try:
            mine = folder.lstat().st_uid == os.geteuid()
            out = private.results_of(folder) if mine and private.in_use(folder) else None
        except (OSError, ValueError):
            continue
        if out is not None and out.is_dir() and read_state(out).get("state") != "ended":
            found[folder] = out
    return found


def the_results() -> Path:
    """The results folder of the one watched job."""
    found = list(dict.fromkeys(watched().values()))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            "no job is watched here", "Start one with whichrank run, or attach to a running one: whichrank attach PID"
        )
    listed = "\n".join(f"    whichrank watch {out}" for out in found[:_LISTED])
    raise UsageError(f"{len(found)} jobs are watched here", f"Say which one:\n{listed}")


def _is_rank(pid: int, everyone: Mapping[int, Stat], environs: Mapping[int, Mapping[str, str]]) -> bool:
    """Whether it was given a rank that its parent does not have."""
    rank = environs[pid].get("RANK", "")
    if not rank.isdigit() or len(rank) > 7 or everyone[pid].state in "ZX":
        return False
    return environs.get(everyone[pid].parent, {}).get("RANK") != rank


def _without_daemons(
    ranks: Iterable[int], everyone: Mapping[int, Stat], environs: Mapping[int, Mapping[str, str]]
) -> list[int]:
    """What a rank has set free has its environment, and lives below one of the rank's ancestors: it is not a rank."""
    first: dict[tuple[object, ...], int] = {}
    kept = []
    for pid in sorted(ranks, key=lambda pid: (everyone[pid].start_ticks, pid)):
        holder = first.setdefault(_seat(environs[pid]), pid)
        above = _ancestors(everyone[holder].parent, everyone) if holder != pid else ()
        if everyone[pid].parent not in above:
            kept.append(pid)
    return sorted(kept)


def _ancestors(pid: int, everyone: Mapping[int, Stat]) -> set[int]:
    """Those above a process, init among them."""
    found = {1}
    while (row := everyone.get(pid)) is not None and row.parent not in found:
        pid = row.parent
        found.add(pid)
    return found


def _seat(known: Mapping[str, str]) -> tuple[object, ...]:
    return (*(known.get(name) for name in _TOGETHER), known.get("RANK"), known.get("TORCHELASTIC_RESTART_COUNT"))


def _job(ranks: Sequence[int], everyone: Mapping[int, Stat], environs: Mapping[int, Mapping[str, str]]) -> FoundJob:
    parent = everyone[ranks[0]].parent
    launcher = parent if parent > 1 and parent in everyone and _started_all(ranks, environs) else ranks[0]
    folder = environs[ranks[0]].get(FOLDER)
    known = Path(folder) if folder else None
    return FoundJob(launcher, tuple(ranks), known if known is not None and _mine(known) else None)


def _started_all(ranks: Iterable[int], environs: Mapping[int, Mapping[str, str]]) -> bool:
    """Whether what is above them is a launcher: one rank alone may as well be the user's own command."""
    ranks = list(ranks)
    return (
        len(ranks) > 1
        or environs[ranks[0]].get("WORLD_SIZE", "1") != "1"
        or "TORCHELASTIC_RUN_ID" in environs[ranks[0]]
    )


def _mine(folder: Path) -> bool:
    try:
        return folder.is_dir() and folder.stat().st_uid == os.geteuid()
    except OSError:
        return False
