"""Merge the stacks of all ranks into one tree, live or from files."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whichrank.cli.options.evidence import evidence
from whichrank.cli.options.fleet import engines_of, fleet_options, named
from whichrank.cli.terminal.output import tell, write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.model.views import StackReport

SEEN, NOTHING = 0, 3
FORMATS = ("html", "json", "text")
SUFFIXES = {".json": "json", ".html": "html"}


@click.command(name="stacks")
@click.argument("paths", metavar="[PATH]...", nargs=-1)
@fleet_options
@click.option(
    "--job", default="", metavar="JOB", help="Which job, where several run: its run id, Slurm job or rendezvous."
)
@click.option("--pid", "pids", type=click.IntRange(min=1), multiple=True, help="The launcher or a rank of a live job.")
@click.option("--native", is_flag=True, help="Include C++ frames; each process pauses while it is read.")
@click.option("--timeout", type=click.FloatRange(min=0.1), default=4.0, show_default=True, help="Seconds per process.")
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Report format (default: text).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the tree to this file.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    paths: tuple[str, ...],
    pids: tuple[int, ...],
    native: bool,
    timeout: float,
    format_: str | None,
    output: Path | None,
    quiet: bool,
    job: str,
    **options: Any,
) -> None:
    """Show where all ranks are, as one tree: shared frames appear once, branches show which ranks are elsewhere.

    PATH is a file with stacks (py-spy, faulthandler, gdb), a folder, a bundle or an archive. Without PATH the
    stacks of a live job are read with py-spy: that of --pid or --job, else the one that runs on this host. With
    --hosts, --slurm-job, --k8s or --ray they are read on all nodes of a job at once; the nodes need Python 3.8 and
    py-spy, not whichrank.

    \b
    whichrank stacks                       all ranks of the job on this host
    whichrank stacks --pid 4711            all ranks of the job of process 4711
    whichrank stacks bundle/               what a bundle holds
    whichrank stacks --pid 4711 --native   with C++ frames
    whichrank stacks --hosts node[01-16]   all ranks of the job on 16 nodes, by ssh
    whichrank stacks --slurm-job 815       all ranks of a Slurm job
    """
    if bool(paths) + bool(pids) + named(options) > 1:
        raise UsageError("give files, --pid or nodes, not several of them", "whichrank stacks --help shows examples.")
    if native and named(options):
        raise UsageError(
            "--native works on this host only", "Run it on the node in question: whichrank stacks --native"
        )
    from importlib import import_module

    from whichrank.flows import stacks

    with closing(ProgressLine(quiet=quiet)) as progress:
        if paths:
            report = stacks.stacks_of_files(evidence(paths), progress=progress)
        elif named(options):
            report = _of_nodes(options, job, timeout, progress, quiet=quiet)
        else:
            from whichrank.run.watch.live_stacks import live_stacks

            report = stacks.report(*live_stacks(pids, native=native, limit_s=timeout, job=job, progress=progress))
    name = format_ or SUFFIXES.get(output.suffix if output else "", "text")
    write(import_module(f"whichrank.report.stacks.{name}").render(report), output)
    if output is not None and not quiet:
        from whichrank.report._stacks import heading

        tell(f"{heading(report).rstrip('.')}. The report is in {output}.")
    ctx.exit(SEEN if report.tree else NOTHING)


def _of_nodes(options: dict[str, Any], job: str, limit_s: float, progress: ProgressLine, *, quiet: bool) -> StackReport:
    """From all nodes into a folder that goes again, and merged."""
    from tempfile import TemporaryDirectory

    from msgspec.structs import replace

    from whichrank.cli.terminal.hosts_that_answered import tell_nodes
    from whichrank.flows.stacks import stacks_of_files
    from whichrank.run.first_response.everywhere import Wishes, gather

    python, slurm_job = options.pop("remote_python"), options["slurm_job"]
    wishes = Wishes(depth="stacks", limit_s=max(10.0, 3 * limit_s), job=job or slurm_job or "", python=python)
    with TemporaryDirectory(prefix="whichrank-stacks-") as folder:
        gathered = gather(engines_of(options), Path(folder), wishes, progress)
        if not quiet:
            tell_nodes(gathered)
        found = stacks_of_files([Path(folder)], progress=progress)
        return replace(found, missing=(*found.missing, *gathered.without_stacks()))
