"""The options of `run` that have to do with starting again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.run.resume.decision import Plan

F = TypeVar("F", bound=Callable[..., Any])


def restart_options(command: F) -> F:
    """Add the options; their values are what `plan_of` takes."""
    for option in reversed(
        (
            click.option("--restart", type=click.IntRange(0), default=0, metavar="N", help="Start a failed job again."),
            click.option(
                "--escalate", is_flag=True,
                help="With --restart: after an unexplained failure, record more evidence on each restart.",
            ),
            click.option(
                "--checkpoints", type=click.Path(file_okay=False, path_type=Path),
                help="Folder of the job's checkpoints: a restart resumes from the newest complete one.",
            ),
            click.option(
                "--resume-arg", default="", metavar="TEXT",
                help="Argument added to the command to resume, such as '--resume {path}'.",
            ),
            click.option("--resume-env", default="", metavar="NAME", help="Variable with the checkpoint to resume."),
            click.option(
                "--gpu-hours", type=click.FloatRange(0, min_open=True), help="Stop after this many GPU-hours."
            ),
            click.option(
                "--requeue", is_flag=True,
                help="Requeue the Slurm job when it is about to be ended, or when it fails.",
            ),
            click.option(
                "--exclude-bad-nodes", is_flag=True, help="Exclude hosts with a proven hardware fault."
            ),
        )
    ):  # fmt: skip
        command = option(command)
    return command


def plan_of(options: dict[str, Any]) -> Plan | None:
    """Take the options out; None where nothing was asked for."""
    times, folder = options.pop("restart"), options.pop("checkpoints")
    argument, variable = options.pop("resume_arg"), options.pop("resume_env")
    hours, exclude, requeue = options.pop("gpu_hours"), options.pop("exclude_bad_nodes"), options.pop("requeue")
    escalate = options.pop("escalate")
    if escalate and not times:
        raise UsageError("--escalate needs --restart", "Say how often to restart: --restart 3 --escalate.")
    if (argument or variable) and folder is None:
        raise UsageError("there is no checkpoint to resume from", "Say where they are: --checkpoints DIR.")
    if argument and not _has_path(argument):
        raise UsageError(f"--resume-arg '{argument}' has no {{path}}", "Write it as '--resume {path}'.")
    if variable and not variable.isidentifier():
        raise UsageError(f"'{variable}' is not a variable name", "Write it as --resume-env RESUME_FROM.")
    if requeue and not os.environ.get("SLURM_JOB_ID"):
        raise UsageError("--requeue is for jobs of Slurm", "Use --restart N to start a failed job again right here.")
    if not times and folder is None and not exclude and not requeue:
        return None
    from whichrank.run.resume.decision import Plan

    return Plan(times, folder, argument, variable, hours, exclude, requeue, escalate)


def _has_path(argument: str) -> bool:
    try:
        return any("{path}" in part for part in shlex.split(argument))
    except ValueError:
        return False
