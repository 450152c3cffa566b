"""A value that hangs or ends the job.

What it finds: texts that PyTorch can't read where it insists: switches of its process groups and of the
flight recorder, numbers, debug levels.

Why it happens: PyTorch raises for a value it does not know. Gloo meets the recorder's error in a place where
nobody sees it and waits forever instead.

How it decides: by PyTorch's own parsing (getCvarBool, getCvarInt), tried on 2.13.0.

Example: `TORCH_FR_BUFFER_SIZE=abc` or `TORCH_FR_CPP_STACK=on` hang init_process_group with Gloo.

Fix: a whole number, or 1 or 0.

Limits: what NCCL process groups do with it was read in the source, not tried.
"""

from __future__ import annotations

from whichrank.facts.variables.environment import catalogue, others
from whichrank.facts.variables.values import problem
from whichrank.model.findings import Finding
from whichrank.records.settings import Settings, flagged

CODE = "ENV106"
CAUSE = "wrong-environment"


def judge(settings: Settings) -> list[Finding]:
    found = []
    for assignment in settings.assignments():
        variable = catalogue().get(assignment.name) or others().get(assignment.name)
        if variable is None or assignment.value is None:
            continue
        wrong = problem(variable, assignment.value, settings.versions(assignment)[1])
        if wrong is not None and wrong.fatal:
            message = f"{variable.name}={assignment.value}: {wrong.message}."
            fix = f"Values that are read: {variable.allowed}." if variable.allowed else "Give a value that is read."
            found.append(flagged(CODE, assignment, "error", message, fix))
    return found
