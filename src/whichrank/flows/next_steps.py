"""The next commands of a diagnosis, with the real process in them: nobody should have to look up a pid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from whichrank.model.findings import NextStep
from whichrank.timeline.case import Case

_PID = re.compile(r"\bPID\b")
_LIMITS = re.compile(r"^grep '?([a-z ]+)'? /proc/PID/limits$")


def filled(step: NextStep, ranks: Sequence[int], case: Case) -> NextStep:
    """The step for the process of the rank that is meant; where no pid is known, a command that finds it."""
    if not _PID.search(step.command):
        return step
    known = [case.people.by_rank[rank] for rank in ranks if rank in case.people.by_rank]
    process = next((process for process in known if process.pid is not None), None)
    if process is None:
        return replace(step, command=_without_pid(step.command))
    where = f" (on {process.host})" if process.host and process.host != "localhost" else ""
    return replace(step, command=_PID.sub(str(process.pid), step.command), why=f"{step.why}{where}")


def _without_pid(command: str) -> str:
    if command.startswith("whichrank attach"):
        return "whichrank attach"
    if command.startswith("py-spy"):
        return "whichrank stacks --native" if "--native" in command else "whichrank stacks"
    if command.startswith("coredumpctl"):
        return "coredumpctl gdb"
    if limits := _LIMITS.match(command):
        return f"ulimit -a | grep '{limits[1]}'"
    return _PID.sub("$(pgrep -n python)", command)
