"""A rank prepared data while the others timed out, by the output.

## What it finds
Lines of tokenising, mapping, index building or downloading as the last thing before a time-out; or code and words
that say that one rank does it while the others wait.

## Why it happens
One rank prepares the data while the others wait in a barrier, whose timeout runs.

## How it decides
The last thing that the output says before the time-out is of this kind. A reduction of barrier size with a low
sequence number makes it surer: that is the barrier behind which the data is prepared. Code in which the others wait
in a barrier while one rank maps the data set counts too. Dumps, stacks and counters tell more; where there are any,
this rule is silent.

## Example
`Map (num_proc=16):  35%|███▌`, then `Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, …)`

## Fix
Prepare the data once before the job, so that it is found in the cache. Or give the waiting group a longer timeout:
init_process_group(timeout=timedelta(hours=2)).

## Limits
A progress bar does not say which rank drew it.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, NextStep, NotEvaluated
from whichrank.rules import busy_ranks
from whichrank.rules.building import Claim
from whichrank.timeline.case import Case

CODE = "SLOW201"
CAUSE = "rank-stuck-in-preprocessing"

_CLAIM = Claim(
    CODE,
    CAUSE,
    category="hang",
    fix=(
        "Prepare the data once before the job, so that it is found in the cache.",
        "Or give the waiting group a longer timeout: init_process_group(timeout=timedelta(hours=2)).",
    ),
    alternatives=(
        ("timeout-too-short", 0.2, "the work was going on"),
        ("rank-stuck-in-user-code", 0.08, "something else may hold the rank"),
    ),
    next=(
        NextStep(
            "py-spy dump --nonblocking --pid PID", "the stack of the late rank shows what it does", (CAUSE,), "none"
        ),
    ),
)


def judge(case: Case) -> list[Finding] | NotEvaluated:
    return busy_ranks.judge(case, _CLAIM, "{who} was still preparing data when the others had waited too long: {what}.")
