"""The stacks of all ranks merged into one tree, live or from files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from whichrank.cli._output import write
from whichrank.cli._progress import ProgressLine
from whichrank.cli.diagnose import evidence
from whichrank.model.errors import UsageError

SEEN, NOTHING = 0, 3
FORMATS = ("html", "json", "text")
SUFFIXES = {".json": "json", ".html": "html"}


@click.command(name="stacks")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, help="The launcher or a rank of a live job.")
@click.option("--native", is_flag=True, help="With the frames of C++; each process pauses while it is read.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=4.0, show_default=True, help="Seconds per process.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="How to tell it (default: text).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the tree to this file.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    pids: tuple[int, ...],
    native: bool,
    timeout: float,
    format_: str | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Show where all ranks are, as one tree: frames that ranks share are told once, forks show who is elsewhere.

    PATH is a file with stacks (py-spy, faulthandler, gdb), a folder, a bundle or an archive. Without PATH the
    stacks of a live job are read with py-spy: that of --pid, or the one that `whichrank run` watches here.

    \b
    whichrank stacks --pid 4711            all ranks of the job of process 4711
    whichrank stacks bundle/               what a bundle holds
    whichrank stacks --pid 4711 --native   with the frames of C++
    """
    if paths and pids:
        raise UsageError("give files or --pid, not both", "whichrank stacks --help shows examples.")
    from importlib import import_module

    from whichrank.flows import stacks

    with closing(ProgressLine(quiet=quiet)) as progress:
        if paths:
            report = stacks.stacks_of_files(evidence(paths), progress=progress)
        else:
            from whichrank.run.watch.live_stacks import live_stacks

            report = stacks.report(*live_stacks(pids, native=native, limit_s=timeout, progress=progress))
    name = format_ or SUFFIXES.get(output.suffix if output else "", "text")
    write(import_module(f"whichrank.report.stacks.{name}").render(report), output)
    ctx.exit(SEEN if report.tree else NOTHING)
