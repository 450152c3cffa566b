"""A barrier whose device NCCL has to guess.

What it finds: `dist.barrier()` on NCCL without `device_ids`, in a program that neither sets the device nor
gives init_process_group a `device_id`.

Why it happens: the barrier is an all-reduce on a device that torch guesses from the rank; with another
mapping of ranks to GPUs it hangs or fails.

How it decides: the file initialises NCCL, sets no device, and calls barrier without device_ids.

Example: `dist.init_process_group('nccl'); dist.barrier()`.

Fix: call torch.cuda.set_device(local_rank) first, pass device_id= to init_process_group, or device_ids= to
barrier.

Limits: only within one file.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_words import NO_PROGRAM, habit, is_program

CODE = "LINT205"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    if not is_program(case):
        return NO_PROGRAM
    fix = ("Call torch.cuda.set_device(local_rank) first, or pass device_id= to init_process_group.",)
    return [habit(CODE, CAUSE, "info", found, fix) for found in case.habits if found.what == "no device"]
