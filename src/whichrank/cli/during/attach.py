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
@click.option("--quiet", is_flag=True, help="Nothing on stderr.")
def command(pid: int | None, out: Path | None, quiet: bool, **wishes: Any) -> None:
    """Watch the job of PID (its launcher, or a rank) until it ends; it goes on as before.

    Without PID, the one job that runs here.

    A job that `whichrank run` started is watched as `run` would. Any other job is seen from
    outside: /proc, py-spy, torch's own pipe.
    """
    from whichrank.run.monitoring.monitors import Monitors, Wishes
    from whichrank.run.watch.attach import attach

    def tell(text: str) -> None:
        if not quiet:
            if "\n" in text:  # a report, which is safe and may have colours
                click.echo(text, err=True)
            else:
                output.tell(f"whichrank: {text}")

    audience = Monitors(Wishes(**wishes), f"process {pid}" if pid is not None else "attached", tell)
    try:
        attach(pid, out, tell, audience)
    finally:
        audience.close()
