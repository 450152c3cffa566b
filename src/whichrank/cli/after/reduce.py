"""Reduce a node's evidence to a summary of a few kilobytes for `diagnose`."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import click

from whichrank.cli.options import numeric
from whichrank.cli.options.evidence import evidence
from whichrank.cli.options.remote import fetched
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.evidence.summary.head import NAME
from whichrank.model.errors import UsageError

DONE = 0
_NODE = re.compile(r"\w[\w.-]{0,120}", re.ASCII)


@click.command(name="reduce")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help=f"The summary (default: {NAME} in the folder)."
)
@click.option("--node", default="", metavar="NAME", help="The node that the files are from, to tell nodes apart.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to read with (default: one per core).")
@click.option("--quiet", is_flag=True, help="Print nothing on stderr.")
@click.pass_context
def command(
    ctx: click.Context, paths: tuple[str, ...], out: Path | None, node: str, jobs: int | None, quiet: bool
) -> None:
    """Read dumps, logs and stacks in place, and keep what a verdict needs: the last calls of every group and
    those that are not finished, events with their quotes, stacks, clocks; about 4 KB per rank.

    Run it on every node, copy the summaries to one place, and give them all to one `diagnose`. It takes summaries,
    full evidence or both: a full file beside a summary of it is read instead. Where a summary is not enough, it names
    the full dumps that it wants.

    \b
    whichrank reduce /var/job/bundle                          writes /var/job/bundle/summary.whichrank
    whichrank reduce dumps/ logs/ --node $(hostname) --out /lustre/job/$(hostname).whichrank
    srun --ntasks-per-node=1 sh -c 'whichrank reduce /tmp/fr --node $SLURMD_NODENAME --out $SLURMD_NODENAME.whichrank'
    whichrank diagnose *.whichrank                            the verdict from all of them
    """
    if node and not _NODE.fullmatch(node):
        raise UsageError(f"'{node}' is not the name of a node", "Letters, digits, dots and dashes.")
    numeric.load()
    from whichrank.flows.reduce import reduce
    from whichrank.model.files import replace_file

    if out is None and "://" in paths[0]:
        raise UsageError("say where the summary should go", "Give --out FILE.")
    first = Path(paths[0])
    target = out or (first / NAME if first.is_dir() else first.with_name(NAME))
    with closing(ProgressLine(quiet=quiet)) as progress, fetched(paths, progress) as here:
        given = [path for path in evidence(here) if path != "-"]
        found = reduce(given, node=node, jobs=jobs, progress=progress)
    if not found.files:
        raise UsageError(
            f"there is no evidence in {', '.join(map(str, paths[:4]))}",
            "Give folders or files with dumps, logs or stacks.",
        )
    try:
        replace_file(target, found.data)
    except OSError as error:
        raise UsageError(f"can't write {target}: {error.strerror}", "Give --out a file that you may write.") from error
    if not quiet:
        each = f", {len(found.data) / found.ranks / 1000:.1f} KB per rank" if found.ranks else ""
        click.echo(
            f"{found.files} files ({found.size:,} bytes) became {target} ({len(found.data):,} bytes{each})", err=True
        )
    ctx.exit(DONE)
