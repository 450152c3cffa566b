"""A log or dump file that all ranks of a host would share.

What it finds: NCCL_DEBUG_FILE with anything but %h, %p and %% after a "%", or without %p at all; patterns in
the flight recorder's prefix, which has none.

Why it happens: %d, %r and %i are written as if they meant the rank.

How it decides: by NCCL's own expansion (src/debug.cc): unknown letters stay as they are, every process
truncates the file on open.

Example: `NCCL_DEBUG_FILE=/tmp/nccl-rank%d.log` → `/tmp/nccl.%h.%p.log`.

Fix: %h for the host and %p for the process.

Limits: a name that the script builds from the rank is not judged.
"""

from __future__ import annotations

import re

from whichrank.model.findings import Finding
from whichrank.records.settings import UNKNOWN, Assignment, Settings, flagged

CODE = "ENV109"
CAUSE = "wrong-environment"

_PREFIXES = frozenset({
    "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
})  # fmt: skip


_PER_RANK = re.compile(r"RANK|PROCID|LOCALID|\$\$|HOSTNAME|rank", re.IGNORECASE)


def judge(settings: Settings) -> list[Finding]:
    return [finding for assignment in settings.assignments() for finding in _judge(assignment)]


def _judge(assignment: Assignment) -> list[Finding]:
    name, value = assignment.name, (assignment.value or assignment.partial).replace(UNKNOWN, "…")
    if not value or (name != "NCCL_DEBUG_FILE" and name not in _PREFIXES):
        return []
    if name in _PREFIXES:
        if "%" not in value:
            return []
        message = f"{name}={value}: nothing is expanded in this prefix; the rank is appended to it as it is."
        return [flagged(CODE, assignment, "warning", message, "Leave the % out.")]
    wrong = [found for found in re.findall(r"%(.?)", value) if found not in {"h", "p", "%"}]
    fix = f"Write {_suggested(value)}."
    if wrong:
        message = f"{name}={value}: only %h, %p and %% are expanded; %{wrong[0]} stays, and ranks share the file."
        return [flagged(CODE, assignment, "warning", message, fix)]
    named = assignment.value or ("…" not in value.rpartition("/")[2] and not _PER_RANK.search(assignment.ref.quote))
    if "%p" not in value and named and not value.startswith("/dev/"):
        message = f"{name}={value}: without %p all processes of a host write the same file, each truncating it."
        return [flagged(CODE, assignment, "warning", message, fix)]
    return []


def _suggested(value: str) -> str:
    stem = re.sub(r"[-_.]?(?:rank)?%.?", "", value.removesuffix(".log")).rstrip("._-") or "nccl"
    return f"{stem}.%h.%p.log"
