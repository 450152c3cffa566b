"""Gather the evidence of a running job into a bundle, now."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(name="collect")
@click.argument("pid", type=click.IntRange(min=1), required=False)
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), default="whichrank-bundle", show_default=True,
    help="The folder of the bundle.",
)  # fmt: skip
@click.option("--quiet", is_flag=True, help="No summary on stderr.")
def command(pid: int | None, out: Path, quiet: bool) -> None:
    """Stacks, flight-recorder dumps, states and settings of every rank; the job goes on.

    PID is the launcher or a rank; without it, the job that `whichrank run` watches here. A job that was
    started without it gives what can be had from outside: /proc, py-spy, torch's own pipe.
    """
    from whichrank.run.watch.collect import collect

    bundle = collect(pid, out)
    if not quiet:
        files, missing = len(bundle.manifest.files), bundle.manifest.missing
        click.echo(f"{files} files are in {out}; to look into them: whichrank diagnose {out}", err=True)
        for entry in missing[:20]:
            of = f" of rank {entry.rank}" if entry.rank is not None else ""
            click.echo(f"  not there: {entry.what}{of} ({entry.why})", err=True)
