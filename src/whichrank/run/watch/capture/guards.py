"""The records that the guards of the ranks have written."""

from __future__ import annotations

from whichrank.evidence.bundle import Bundle
from whichrank.run.watch.capture.files import read
from whichrank.run.watch.job_processes import JobProcesses

SUFFIX = ".guard"


def keep_guards(job_processes: JobProcesses, bundle: Bundle) -> None:
    """The records of every process, into the bundle."""
    for member in sorted(job_processes.members.values(), key=lambda m: m.rank):
        for suffix in (f"{SUFFIX}.older", SUFFIX):
            data = read(job_processes.folder / f"{member.name}{suffix}")
            if data:
                name = f"guard/rank_{max(member.rank, 0)}.{member.words.pid}{suffix.replace('.guard', '')}.guard.jsonl"
                bundle.add(name, data, "guard", rank=member.rank, pid=member.words.pid)
