"""The flight recorder's size, given in bytes instead of entries.

What it finds: buffer sizes of 100,000 entries and more.

Why it happens: the variable is called a size, and a popular how-to says 2097152 for "2 MB".

How it decides: by the number. 2000 is the default and usual; 100,000 entries are about 17 MB of dump per rank
at the measured 170 bytes, and far more in memory.

Example: `TORCH_NCCL_TRACE_BUFFER_SIZE=2097152` → 2000.

Fix: a number of collectives to remember.

Limits: somebody may really want that many.
"""

from __future__ import annotations

from whichrank.facts.variables.values import number
from whichrank.model.findings import Finding
from whichrank.records.settings import Settings, flagged

CODE = "ENV110"
CAUSE = "wrong-environment"

_NAMES = frozenset({"TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"})
_MANY = 100_000
_BYTES_PER_ENTRY = 170  # measured: 2000 entries with 25 frames each are 339 KB


def judge(settings: Settings) -> list[Finding]:
    found = []
    for assignment in settings.assignments():
        size = number(assignment.value)
        if assignment.name in _NAMES and size is not None and size >= _MANY:
            weight = size * _BYTES_PER_ENTRY // 1_000_000
            message = (
                f"{assignment.name}={assignment.value} counts entries, not bytes: "
                f"about {weight:,} MB of dump per rank, and more in memory."
            )
            found.append(flagged(CODE, assignment, "warning", message, f"Write {assignment.name}=2000."))
    return found
