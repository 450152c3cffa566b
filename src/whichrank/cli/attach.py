"""Watch a job that runs already: one whose watcher has gone."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="attach")
@click.argument("pid", type=click.IntRange(min=1))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Where verdict and evidence go.")
@click.option("--quiet", is_flag=True, help="Nothing on stderr.")
def command(pid: int, out: Path | None, quiet: bool) -> None:
    """Take up the watch of the job of PID until it ends; it must have been started by `whichrank run`.

    A job that was started without it has nobody inside to ask: `whichrank collect PID` takes what can be had.
    """
    from whichrank.run.attach import attach

    def tell(text: str) -> None:
        if not quiet:
            click.echo(text if "\n" in text else f"whichrank: {text}", err=True)

    attach(pid, out, tell)
