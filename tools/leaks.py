"""Diagnose the same evidence over and over in one process: memory, open files and leftovers must not grow."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose

SECONDS = float(os.environ.get("LEAKS_SECONDS", "60"))
WARM_UP, ALLOWED_KIB = 20, 8 * 1024


def standing() -> tuple[int, int, int]:
    """Resident KiB, open files, and temporary folders of ours."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    left = len(list(Path(tempfile.gettempdir()).glob("whichrank-*")))
    return int(resident.split()[1]), len(list(Path("/proc/self/fd").iterdir())), left


def main() -> int:
    folder = Path(sys.argv[1])
    for _ in range(WARM_UP):
        first = diagnose([folder], source=None, jobs=None, progress=None)
    before, rounds, end = standing(), 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        again = diagnose([folder], source=None, jobs=None, progress=None)
        rounds += 1
        if again.verdict != first.verdict:
            print(f"round {rounds}: another verdict for the same evidence: {again.verdict.summary}")
            return 1
    after = standing()
    print(f"{rounds} rounds: {before[0]} -> {after[0]} KiB, {before[1]} -> {after[1]} open files")
    grown = after[0] - before[0] > ALLOWED_KIB or after[1:] != before[1:]
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
