"""A line that was meant to set something and does not.

What it finds: shell variables that are never exported (`set` of csh); exports in a Dockerfile's RUN or on a line of
their own in a recipe; lines of nccl.conf with "export", spaces or quotes; commas that Slurm's --export splits at; bare
numbers as values in Kubernetes; values that are no strings in os.environ or env=; env= that replaces the whole
environment; sudo, ssh, srun and mpirun that don't pass a variable on; `$NAME` where nothing expands it (Environment= of
systemd, variables of pods, commands without a shell) or something else does (make, compose); `$(hostname)` in values
that no shell reads (.env files, ENV of Dockerfiles, manifests, os.environ); texts of Python's lists and truth values;
settings that come after the copy of os.environ which the workers get; env= of an ssh client; a prefix in envFrom;
values that a template puts in without quotes; the index of a pod that has none; settings that only an init container, a
container beside the one with the GPUs, the head of a Ray cluster or tasks of Determined without GPUs have; copies of
os.environ that are filled and thrown away; ConfigMaps and blocks of compose that no container takes; `${NAME}` in files
that docker run --env-file or systemd read; settings in front of the entry point of a Ray job, which its driver alone
gets; names that a script's own list for other hosts leaves out; options that hand over variables with another launcher
(`-genv` for Open MPI, `-x` for srun); values that a `;`, `|` or `&` without quotes ends; lists and null as values;
settings that only a service of compose without GPUs has.

Why it happens: every format has its own way of reading NAME=VALUE.

How it decides: by how bash, csh, fish, make, just, Docker, compose, NCCL, Slurm, systemd, Kubernetes and Python read
the line. A shell variable that the script itself uses is taken for a helper.

Example: `NCCL_DEBUG=INFO` on a line of its own, then `torchrun train.py`.

Fix: said with each finding.

Limits: a variable that was already exported outside stays exported when it is assigned.
"""

from __future__ import annotations

import re

from whichrank.facts.variables.environment import is_read
from whichrank.model.findings import Finding
from whichrank.records.settings import Assignment, Settings, flagged

CODE = "ENV117"
CAUSE = "wrong-environment"


# Read by ranks that srun or MPI starts; torchrun and its like take options instead.
_MEETING = frozenset({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"})


def judge(settings: Settings) -> list[Finding]:
    found = []
    for file in settings.files:
        by_variables = bool(file.launches) and not any(launch.program for launch in file.launches)
        for lost in file.lost:
            holder = Assignment(lost.name, None, lost.ref, file.label, "local")
            found.append(flagged(CODE, holder, lost.severity, f"{lost.name}: {lost.why}.", lost.fix))
        handed_over = {a.name for a in file.assignments if a.how != "local"}
        for a in file.assignments:
            if a.name in handed_over:
                continue  # ranks get another value, by `env NAME=VALUE` or a remote command
            if a.how == "local" and not a.used and (is_read(a.name) or (a.name in _MEETING and by_variables)):
                message = f"{a.name} is set but never exported: the programs that the script starts don't see it."
                found.append(flagged(CODE, a, "warning", message, f"Write: {_exported(a.ref.quote)}"))
    return found


def _exported(quote: str) -> str:
    """The line as it has to be written; csh exports with setenv."""
    csh = re.fullmatch(r"set\s+(\w+)\s*=\s*(.*)", quote)
    return f"setenv {csh[1]} {csh[2]}" if csh else f"export {quote}"
