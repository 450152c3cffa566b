"""The options of the verbs that watch a job: who is to be told of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def monitor_options(command: F) -> F:
    """Add the options; their values are what `Wishes` is made of."""
    for option in reversed(
        (
            click.option("--metrics", metavar="[ADDR:]PORT", default="", help="Serve metrics (port 0: any free one)."),
            click.option(
                "--web", metavar="[ADDR:]PORT", default="",
                help="Show the job as a live page in a browser (port 0: any); its address, with a token, is printed.",
            ),
            click.option(
                "--token-file", type=click.Path(dir_okay=False, path_type=Path),
                help="A private file with the access token for these ports (or set WHICHRANK_TOKEN).",
            ),
            click.option(
                "--notify", metavar="TARGET", multiple=True, envvar=["WHICHRANK_NOTIFY", "WHICHRANK_WEBHOOK"],
                help="Send the verdict to this target; may be repeated. A webhook URL (Slack, "
                "Teams, PagerDuty or any other), mailto:NAME@HOST, wandb[:PROJECT], mlflow[:EXPERIMENT], "
                "tensorboard:FOLDER or trackio[:PROJECT]. Prefer WHICHRANK_NOTIFY: other users can see your "
                "command line.",
            ),
            click.option("--otlp", metavar="URL", default="", help="Push metrics to this OpenTelemetry collector."),
            click.option("--history/--no-history", default=True, help="Remember verdicts (see history)."),
        )
    ):  # fmt: skip
        command = option(command)
    return command
