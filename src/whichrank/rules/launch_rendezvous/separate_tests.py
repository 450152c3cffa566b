"""nccl-tests ran as several jobs beside each other, not as one.

## What it finds
Processes of nccl-tests that were started together by mpirun or srun, each of which is a world of its own.

## Why it happens
The tests were built without MPI (`MPI=1`), or with another MPI than the one that starts them: every process believes
that it is alone, takes the GPUs of its own host, and the network between the hosts is never used.

## How it decides
Rank 0 alone prints the list of devices and the average. Where one of them stands twice in an output, and the other one
not between them, two ranks 0 were at work at the same time. Where NCCL's log shows several processes, each of them
makes a communicator of one rank.

## Example
Two blocks `# Using devices`, each of which begins with rank 0, and one test that both seem to run.

## Fix
Build the tests again with `make MPI=1 MPI_HOME=…`, and start them with the mpirun of that MPI.

## Limits
Results of several runs that were pasted together without their heads look the same.
"""

from __future__ import annotations

from itertools import pairwise

from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade, NextStep, NotEvaluated
from whichrank.rules import building
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages, statements
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.statements import Statement

CODE = "LNCH203"
CAUSE = "world-size-mismatch"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="config",
    fix=(
        "Build nccl-tests with MPI: make MPI=1 MPI_HOME=/path/to/mpi, and start them with the mpirun of that MPI.",
        "One list of devices must then show the ranks of all hosts.",
    ),
    next=(NextStep("ldd TEST | grep -i mpi", "a binary without MPI has no such line", (CAUSE,), "none"),),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    if not statements.heard(case):
        return building.SILENT
    files: dict[str, list[Seen]] = {}
    for mark in known_messages.seen(case, "nccl-tests-mark"):
        files.setdefault(mark.sign.ref.source, []).append(mark)
    twice = [pair for marks in files.values() for pair in pairwise(marks) if _kind(pair[0]) == _kind(pair[1])]
    if not twice:
        return _each_alone(case) if files else []
    message = f"nccl-tests ran as separate jobs: two processes print {_kind(twice[0][0])}, which only rank 0 does."
    return [building.found(case, _CLAIM, [mark.sign for mark in twice[0]], message, Grade.SUPPORTS)]


def _each_alone(case: Case) -> list[Finding]:
    """Several processes on several hosts, and no communicator that joins two of them."""
    joined = [(process, process.inits[0]) for process in case.nccl if process.inits]
    hosts = {process.host for process, _ in joined}
    if len(hosts) < 2 or any(init.nranks > 1 for process, _ in joined for init in process.inits):
        return []
    words = "comm {0.comm} rank {0.rank} nranks {0.nranks} - Init {1}"
    signs = [
        Statement(said, Ref(process.source, f"line {init.line}", said, host=process.host))
        for process, init in joined[:2]
        for said in [words.format(init, init.phase.upper())]
    ]
    message = f"nccl-tests ran as separate jobs: each of {len(joined)} processes is rank 0 of 1."
    return [building.found(case, _CLAIM, signs, message, Grade.SUPPORTS)]


def _kind(mark: Seen) -> str:
    return "the list of devices" if "Using devices" in mark.sign.text else "the average"
