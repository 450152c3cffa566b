"""What Slurm has told this process in its environment, and what its `scontrol` says when asked, for a moment only."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from whichrank.evidence.collectors import tools
from whichrank.model.host_lists import expand
from whichrank.model.moments import rfc3339_ns

ASK_S = 4.0
"""For an answer of the controller: a busy one takes seconds, and a job that is being ended has few."""
NEAR_S = 5.0
"""A job that is ended so close to its limit, or later, is ended for it: Slurm looks twice a minute."""
TIME_LIMIT, PREEMPTION, REQUEUE = "time limit", "preemption", "job requeue"
NODE_FAILURE, CANCELLED = "node failure", "cancelled"
"""Why a job is ended, as slurmstepd has it in capitals."""

_WORD = re.compile(r"(?:^|\s)([A-Za-z][\w/:]{0,40})=(\S{0,4096})")
_NUMBERS = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME")
_UNSET = ("", "None", "N/A", "(null)", "Unknown")


@dataclass(frozen=True, slots=True)
class Slurm:
    """The job that this process is a part of."""

    job: str
    name: str = ""
    step: str = ""
    """"" in the batch script itself."""
    node: str = ""
    nodes: tuple[str, ...] = ()
    task: int | None = None
    """Its number among all tasks of the step."""
    tasks: int = 1
    tasks_here: int = 1
    """At the most, on any node."""
    restarts: int = 0
    """How often the job was queued again."""
    submitted: Path | None = None
    """Where it was submitted from."""
    ends_ns: int | None = None
    """When its time is over."""

    @property
    def first(self) -> bool:
        """Whether this process speaks for the job: the batch script, or the first task of a step."""
        return self.task in (None, 0)

    @property
    def shared(self) -> bool:
        """Whether other tasks of the same step do the same as this one."""
        return bool(self.step) and self.tasks > 1

    @property
    def own_name(self) -> str:
        """This node; where several tasks run on one, this task of it."""
        return self.node if self.tasks_here == 1 else f"{self.node}-task{self.task}"

    @property
    def folder(self) -> Path:
        """Where results go if nobody says: where the job was submitted, by its number."""
        name = f"whichrank-{self.job}" + (f".{self.step}" if self.step else "")
        return (self.submitted or Path.cwd()) / name

    def apart(self, out: Path) -> Path:
        """All tasks are given the same folder: each that works alone has its own in there."""
        return out / self.own_name if self.shared else out

    def meeting(self, out: Path | None) -> Path:
        """Where the tasks of this start of the step meet, unless they are told otherwise."""
        return (out or self.folder) / f".meeting-{self.job}-{self.step}-{self.restarts}"

    def told(self) -> dict[str, Any]:
        """As run.json and a bundle have it."""
        return {
            "kind": "slurm",
            "job": self.job,
            "name": self.name or None,
            "step": self.step or None,
            "node": self.node or None,
            "nodes": list(self.nodes),
            "task": self.task,
            "tasks": self.tasks,
            "restarts": self.restarts,
            "ends": rfc3339_ns(self.ends_ns) if self.ends_ns is not None else None,
        }


def here(environ: Mapping[str, str] = os.environ) -> Slurm | None:
    """The job as the environment has it; None outside of Slurm."""
    job = environ.get("SLURM_JOB_ID") or environ.get("SLURM_JOBID") or ""
    if not re.fullmatch(r"\d{1,20}", job):
        return None
    step = environ.get("SLURM_STEP_ID") or ""
    # The batch script is given numbers of a task too, and is none.
    inside = step.isdigit()
    number = {name: _number(environ.get(name)) for name in _NUMBERS}
    lists = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    nodes = next((text for name in lists[not inside :] if (text := environ.get(name))), "")
    submitted, ends = environ.get("SLURM_SUBMIT_DIR", ""), number["SLURM_JOB_END_TIME"]
    return Slurm(
        job=job,
        name=environ.get("SLURM_JOB_NAME", ""),
        step=step if inside else "",
        node=environ.get("SLURMD_NODENAME") or socket.gethostname(),
        nodes=tuple(expand(nodes)),
        task=number["SLURM_PROCID"] if inside else None,
        tasks=(number["SLURM_STEP_NUM_TASKS"] or number["SLURM_NTASKS"] or 1) if inside else 1,
        tasks_here=_most(environ.get("SLURM_STEP_TASKS_PER_NODE") or "1") if inside else 1,
        restarts=number["SLURM_RESTART_COUNT"] or 0,
        submitted=Path(submitted) if submitted.startswith("/") else None,
        ends_ns=ends * 1_000_000_000 if ends else None,
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,12}", text) else None


def _most(text: str) -> int:
    """The largest number in `2(x3),1`: tasks of a node, and in brackets on how many nodes."""
    return max((int(n) for n in re.findall(r"(?:^|,)(\d{1,6})", text)), default=1)


def ask(job: str) -> dict[str, str]:
    """What the controller says of a job now; empty where it does not answer."""
    program = shutil.which("scontrol")
    if program is None:
        return {}
    said, _ = tools.ask([program, "show", "job", "--oneliner", job], ASK_S)
    return shown(said.decode("utf-8", "replace"))


def shown(text: str) -> dict[str, str]:
    """The words of `scontrol show job --oneliner`; values with blanks are cut at the first."""
    return {name: value for name, value in _WORD.findall(text[:65_536]) if value not in _UNSET}


def limit_ns(said: Mapping[str, str]) -> int | None:
    """When the job's time is over; the controller writes times in this host's zone."""
    if said.get("TimeLimit", "UNLIMITED") == "UNLIMITED":
        return None
    return _moment(said.get("EndTime", ""))


def _moment(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1e9)
    except ValueError:
        return None


def reason(slurm: Slurm, said: Mapping[str, str], now_ns: int) -> str:
    """Why Slurm ends this job, in its own words; "" where nothing tells.

    While the processes of a job are ended its state is only COMPLETING (seen with Slurm 22.05): the reason stands in
    other words of the answer.
    """
    state = said.get("JobState", "")
    if said.get("Reason") == "TimeLimit" or state == "TIMEOUT":
        return TIME_LIMIT
    if state == "NODE_FAIL":
        return NODE_FAILURE
    if state == "PREEMPTED" or "PreemptTime" in said:
        return PREEMPTION
    if (_number(said.get("Restarts")) or 0) > slurm.restarts:
        return REQUEUE
    if state in ("CANCELLED", "COMPLETING", "DEADLINE"):
        return CANCELLED
    if slurm.ends_ns is not None and now_ns > slurm.ends_ns - NEAR_S * 1e9:
        return TIME_LIMIT
    return ""


def queue_again(job: str) -> str:
    """Ask for the job to be queued again, which ends what is left of it; why not, where that fails."""
    program = shutil.which("scontrol")
    if program is None:
        return "scontrol is not installed here"
    _, why = tools.ask([program, "requeue", job], ASK_S)
    return why
