"""A barrier whose device NCCL has to guess.

What it finds: `dist.barrier()` on NCCL without `device_ids`, before the program sets the device, where
init_process_group got no `device_id` either.

Why it happens: the barrier is an all-reduce on a device that torch guesses from the rank; with another
mapping of ranks to GPUs it hangs or fails.

How it decides: the statements are followed in the order in which they run, calls into other files included: NCCL is
initialised, no device is chosen, and barrier is called without device_ids.

Example: `dist.init_process_group('nccl'); dist.barrier()`.

Fix: call torch.cuda.set_device(local_rank) first, pass device_id= to init_process_group, or device_ids= to
barrier.

Limits: methods of objects whose class is not known are not followed; a barrier on a group is judged within its file
only.
"""

from __future__ import annotations

from typing import Any

from whichrank.model.findings import Finding, NotEvaluated
from whichrank.rules.code_findings import on_habits

CODE = "LINT205"
CAUSE = ""


def judge(case: Any) -> list[Finding] | NotEvaluated:
    return on_habits(case, (CODE, CAUSE), "no device", "info", FIX)


FIX = "Call torch.cuda.set_device(local_rank) first, or pass device_id= to init_process_group."
