"""The nodes of a Slurm allocation, by srun."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from whichrank.fleet.engines import Engine
from whichrank.model.errors import UsageError


def engine(job: str | None = None) -> Engine:
    """The allocation that this command runs in, or the job of that number."""
    job = job or os.environ.get("SLURM_JOB_ID")
    if not job or not job.isdigit():
        raise UsageError("this is not inside a Slurm allocation", "Run it under salloc or sbatch, or give --slurm-job.")
    nodes = os.environ.get("SLURM_JOB_NODELIST") if job == os.environ.get("SLURM_JOB_ID") else None
    nodes = nodes or _ask("squeue", "--noheader", "--job", job, "--format", "%N").strip()
    if not nodes:
        raise UsageError(f"Slurm job {job} has no nodes", "Is it running? Check with squeue.")
    hosts = _ask("scontrol", "show", "hostnames", nodes).split()

    def wrap(host: str, command: Sequence[str]) -> list[str]:
        return [
            "srun", f"--jobid={job}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--unbuffered",
            "--quiet", "--kill-on-bad-exit=0", *command,
        ]  # fmt: skip

    return Engine("slurm", tuple(hosts), wrap)


def _ask(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip().split("\n")[-1]
        hint = (
            "Are Slurm's commands on the path?" if isinstance(error, FileNotFoundError) else f"Try: {' '.join(command)}"
        )
        raise UsageError(f"{command[0]} failed: {said[:200]}", hint) from error
    return done.stdout
