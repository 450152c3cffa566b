"""The next commands of a diagnosis, with the real process in them: nobody should have to look up a pid."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from whichrank.model.findings import NextStep
from whichrank.model.grades import SUPPORTED
from whichrank.model.late_pattern import late
from whichrank.model.verdict import Diagnosis, Verdict
from whichrank.timeline.case import Case

_PID = re.compile(r"\bPID\b")
_LIMITS = late(r"^grep '?([a-z ]+)'? /proc/PID/limits$")


WANTED = 4
"""Whole dumps that are asked for at once."""


def doubtful(verdict: Verdict) -> bool:
    """Whether more evidence may change it."""
    return verdict.category == "unknown" or bool(verdict.culprits.candidates) or verdict.confidence < SUPPORTED


def with_wanted(answer: Diagnosis, shortened: Mapping[int, str]) -> Diagnosis:
    """Where summaries leave a doubt, the whole dumps that may settle it: those of the ranks in question first."""
    if not shortened or not doubtful(answer.verdict):
        return answer
    import shlex

    verdict = answer.verdict
    meant = [rank for rank in (*verdict.culprits.ranks, *verdict.culprits.candidates) if rank in shortened]
    ranks = (meant or sorted(shortened))[:WANTED]
    files = " ".join(shlex.quote(shortened[rank]) for rank in ranks)
    why = f"the whole dumps of rank {', '.join(map(str, ranks))}: their summaries hold the last calls alone"
    step = NextStep(f"whichrank diagnose SUMMARIES {files}", why, (), "none")
    return replace(answer, next=(*answer.next, step))


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
