"""Watch a job that is already running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from whichrank.cli.options.monitors import monitor_options
from whichrank.cli.options.site_rules import rules_option
from whichrank.cli.terminal import output


@click.command(name="attach")
@rules_option
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where verdict and evidence go.")
@monitor_options
@click.option("--quiet", is_flag=True, help="Print nothing on stderr.")
def command(pid: int | None, out: Path | None, quiet: bool, **wishes: Any) -> None:
    """Watch the job that PID (its launcher or a rank) belongs to, until it ends. The job is not disturbed.

    Without PID: the only job that runs on this host.

    A job that was started by `whichrank run` is watched as closely as `run` does. Any other job is watched from
    outside, through /proc, py-spy and torch's own pipe.

    \b
    whichrank attach                          the job on this host
    whichrank attach 4711 --out hang-7/       the job of process 4711; verdict and evidence go to a folder
    whichrank attach 4711 --web 8080          with a live page in a browser
    """
    from whichrank.run.monitoring.monitors import Monitors, Wishes
    from whichrank.run.watch.attach import attach

    def tell(text: str) -> None:
        if not quiet:
            output.told(text)

    audience = Monitors(Wishes(**wishes), f"process {pid}" if pid is not None else "attached", tell)
    try:
        attach(pid, out, tell, audience)
    finally:
        audience.close()
