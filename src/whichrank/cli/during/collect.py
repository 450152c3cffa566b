"""Collect evidence from a running job, on this host or on all of its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whichrank import report
from whichrank.cli.options.fleet import engines_of, fleet_options, named
from whichrank.cli.terminal.hosts_that_answered import tell_nodes
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.run.first_response.everywhere import Gathered, Node

PACKETS_MORE_S = 8.0
"""Of a node's time, beside the capture of packets."""


@click.command(name="collect")
@click.argument("pid", type=click.IntRange(min=1), required=False)
@fleet_options
@click.option(
    "--job",
    default="",
    metavar="JOB",
    help="Which job, where nodes run several: its rendezvous HOST:PORT, run id, or Slurm job.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=click.FloatRange(min=3.0),
    default=15.0,
    show_default=True,
    help="Seconds that each node may take.",
)
@click.option(
    "--fanout", type=click.IntRange(1, 1024), default=64, show_default=True, help="Nodes to contact at the same time."
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default="whichrank-bundle",
    show_default=True,
    help="The folder of the bundle.",
)
@click.option(
    "--reduce",
    is_flag=True,
    help="With nodes: bring back summaries of some KB per rank, made there where the job's Python has numpy and "
    "msgspec; whole evidence only of the nodes in question.",
)
@click.option(
    "--packets",
    "packets_s",
    type=click.FloatRange(0.5, 60.0),
    metavar="SECONDS",
    help="With nodes: also capture the packets of the job's ports (headers only), where that is permitted.",
)
@click.option("--format", "format_", type=click.Choice(report.names()), help="With nodes: report format.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="With nodes: write the report here.")
@click.option("--quiet", is_flag=True, help="No summary on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    pid: int | None,
    job: str,
    limit_s: float,
    fanout: int,
    out: Path,
    reduce: bool,
    packets_s: float | None,
    format_: str | None,
    output: Path | None,
    quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Collect stacks, flight-recorder dumps, states and settings of every rank; the job goes on.

    On this host: PID is the launcher or a rank; without it, the job that runs here. One that was started without
    `whichrank run` gives what can be had from outside: /proc, py-spy, torch's own pipe.

    On many nodes: name them, and one command takes the evidence of all of them at the same time, brings it back
    into one bundle and gives the verdict. The nodes need Python 3.8 and a way in (ssh, srun, kubectl or Ray), nothing
    else: the collector travels there, and nothing of it stays. py-spy is used where it is installed. A node that
    does not answer is listed, and the others are collected all the same.

    \b
    whichrank collect 4711                                 the job of process 4711, on this host
    whichrank collect --hosts node[01-16]                  the job on 16 nodes, by ssh, and the verdict
    whichrank collect --hostfile hosts.txt --out hang-7/   hosts from a file, bundle in a folder of your choice
    whichrank collect --slurm-job 815                      all nodes of a Slurm job, by srun or ssh
    whichrank collect --k8s train/job-name=llama           the pods of a job
    whichrank collect --hosts a,b --job node1:29500        the job of this rendezvous, where nodes run several
    whichrank collect --hosts node[001-512] --reduce       a large job: summaries, made on the nodes
    whichrank collect --hosts node[01-16] --packets 5      with 5 seconds of the job's own packets

    Exit code with nodes: that of `diagnose` (0 healthy, 1 findings, 3 unknown).
    """
    if not named(options):
        if job or format_ or output or reduce or packets_s:
            raise UsageError(
                "--job, --reduce, --packets, --format and --output go with nodes",
                "Give --hosts, or: whichrank diagnose DIR",
            )
        _here(pid, out, quiet)
        return
    if pid is not None:
        raise UsageError("give a pid or nodes, not both", "--job says which job on the nodes is meant.")
    from whichrank.run.first_response.everywhere import Wishes, fetch_whole, gather
    from whichrank.run.watch.results_folder import put_bundle_aside

    python, slurm_job = options.pop("remote_python"), options["slurm_job"]
    engines = engines_of(options)
    put_bundle_aside(out.absolute())
    wishes = Wishes(
        limit_s=max(limit_s, packets_s + PACKETS_MORE_S) if packets_s else limit_s, at_once=fanout,
        job=job or slurm_job or "", python=python, reduce=reduce, packets_s=packets_s or 0.0,
    )  # fmt: skip
    with closing(ProgressLine(quiet=quiet)) as progress:
        gathered = gather(engines, out, wishes, progress)
    if not quiet:
        tell_nodes(gathered)
    more = partial(fetch_whole, engines, gathered, wishes=wishes, progress=None) if reduce else None
    ctx.exit(_verdict(gathered, format_, output, more, quiet=quiet))


def _here(pid: int | None, out: Path, quiet: bool) -> None:
    from whichrank.run.watch.collect import collect

    bundle = collect(pid, out)
    if not quiet:
        files, missing = len(bundle.manifest.files), bundle.manifest.missing
        click.echo(f"{files} files are in {out}; to look into them: whichrank diagnose {out}", err=True)
        for entry in missing[:20]:
            of = f" of rank {entry.rank}" if entry.rank is not None else ""
            click.echo(f"  not there: {entry.what}{of} ({entry.why})", err=True)


def _verdict(
    gathered: Gathered,
    format_: str | None,
    output: Path | None,
    more: Callable[[Sequence[int]], list[Node]] | None,
    *,
    quiet: bool,
) -> int:
    from whichrank.cli.after.diagnose import DRAWN, exit_code, format_name, rendered
    from whichrank.cli.terminal.output import write
    from whichrank.flows.diagnose.next_steps import doubtful
    from whichrank.flows.diagnose.pipeline import diagnose
    from whichrank.report._words import counted

    if not gathered.of("here"):
        hint = "Is the job running there, and are you its user (or root)?"
        if not gathered.of("no job"):
            hint = "Try: ssh NODE true. It must work without a password."
        raise UsageError(f"no rank was found on {counted(len(gathered.nodes), 'node')}", hint)
    name = format_name(format_, output)
    with closing(ProgressLine(quiet=quiet)) as progress:
        diagnosis = diagnose([gathered.folder], progress=progress, views=name in DRAWN)
        if more is not None and doubtful(diagnosis.verdict):
            culprits = diagnosis.verdict.culprits
            whole = more(culprits.ranks or culprits.candidates or [r for n in gathered.nodes for r in n.ranks])
            if whole:
                if not quiet:
                    click.echo(f"whole evidence fetched from {', '.join(node.name for node in whole)}", err=True)
                diagnosis = diagnose([gathered.folder], progress=progress, views=name in DRAWN)
    write(rendered(diagnosis, name, output), output)
    return exit_code(diagnosis)
