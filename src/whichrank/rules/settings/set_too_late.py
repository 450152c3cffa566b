"""A variable that is set after it was read.

What it finds: in Python, settings after the process group is made, after torch is imported (for the two
variables that are read then), or after CUDA is in use; in a live process, variables that changed since it
started, and those that NCCL says it read with another value.

Why it happens: libraries read a variable once and keep it. Setting it later changes nothing and says nothing.

How it decides: the program's statements are followed in the order in which they would run, through its own
functions and branches. For a live process the environment it started with is compared with its present one.

Example: `init_process_group("nccl")` on line 10, `os.environ["NCCL_DEBUG"] = "INFO"` on line 12.

Fix: set it before, best where the job is launched.

Variables that NCCL reads again for every communicator (NCCL_ALGO, NCCL_COLLNET_ENABLE…) are only mentioned.

Limits: NCCL makes its communicators at the first collective unless a device id is given, so a setting between
the two may still be read, by luck. Calls into other files are not followed.
"""

from __future__ import annotations

from whichrank.model.findings import Finding, Severity
from whichrank.records.settings import Settings, flagged

CODE = "ENV116"
CAUSE = "wrong-environment"


def judge(settings: Settings) -> list[Finding]:
    found = []
    for file in settings.files:
        for late in file.late:
            name = late.assignment.name
            message = f"{name} is set too late: {late.event} ({late.event_ref.locator}) before it."
            if not late.sure and late.assignment.how == "python":
                message = f"{name} reaches only communicators that are made after it; {late.event} before it."
            elif not late.sure:
                message = f"{name} was set after {late.event}; NCCL's log (NCCL_DEBUG=INFO) tells whether in time."
            fix = f"Set {name} before that, best where the job is launched."
            severity: Severity = "warning" if late.sure else "info"
            found.append(flagged(CODE, late.assignment, severity, message, fix, also=(late.event_ref,)))
    return found
