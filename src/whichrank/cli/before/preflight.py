"""Check hosts before a job starts: GPUs, fabric, limits, leftovers, and the paths between hosts."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whichrank.cli.options.fleet import engine_of, fleet_options, named, python_of
from whichrank.cli.terminal.output import must_be_writable, write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.cli.terminal.wrapping import fitted, width
from whichrank.model.errors import UsageError
from whichrank.model.preflight import DEFAULT_PORT, Launch

if TYPE_CHECKING:
    from whichrank.flows.preflight.check import Preflight, Wishes

HEALTHY, FINDINGS, NOT_ENOUGH = 0, 1, 3
FORMATS = ("text", "json", "markdown", "html", "junit")


def _port() -> int:
    """As a launcher has set it for its ranks, of which this may be one."""
    given = os.environ.get("MASTER_PORT", "")
    return int(given) if given.isdigit() and 0 < int(given) < 65536 else DEFAULT_PORT


@click.command(name="preflight")
@fleet_options
@click.option("--nproc-per-node", "ranks", type=click.IntRange(1), help="Ranks that will be started on each host.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=_port,
    help=f"Rendezvous port (default: MASTER_PORT of a launcher, or {DEFAULT_PORT}).",
)
@click.option("--folder", "folders", multiple=True, help="Where dumps and checkpoints go; may be repeated.")
@click.option("--full", is_flag=True, help="Also measure throughput (TCP, RDMA), disks and compute; disturbs jobs.")
@click.option("--iperf/--no-iperf", default=True, help="With --full: use iperf3 where both hosts have it (default).")
@click.option("--thorough", is_flag=True, help="Like --full, over every pair of hosts: finds one slow pair among many.")
@click.option("--quick", is_flag=True, help="Only the hosts themselves, nothing between them.")
@click.option("--map", "maps", metavar="FILE|here", multiple=True,
              help='Draw the topology in dumps of NCCL, nvidia-smi topo -m, ibnetdiscover; "here": hosts.')  # fmt: skip
@click.option("--verdict", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="With --map: only the ranks that this verdict.json blames, each with its cable.")  # fmt: skip
@click.option("--model-params", metavar="N", help="Budget of GPU memory for communication: 7B, 350M.")
@click.option("--strategy", type=click.Choice(("none", "ddp", "fsdp")), default="ddp", help="For the budget.")
@click.option("--units", type=click.IntRange(1), default=1, help="For the budget: parts that FSDP wraps (layers).")
@click.option("--param-bytes", type=click.IntRange(1, 8), default=2, show_default=True,
              help="For the budget: bytes of a parameter and its gradient (bfloat16: 2, float32: 4).")  # fmt: skip
@click.option("--clean", is_flag=True, help="List what dead jobs left here, ask, and remove your own.")
@click.option("--yes", is_flag=True, help="With --clean: don't ask.")
@click.option(
    "--root", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Check a recorded host instead."
)
@click.option("--fail-on", type=click.Choice(("warning", "error")), default="warning", show_default=True,
              help="Findings of this severity or worse make the exit code 1: for gates.")  # fmt: skip
@click.option("--exclude-file", type=click.Path(dir_okay=False, path_type=Path), help="Write the bad hosts here.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", help="Report format.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    ranks: int | None,
    port: int,
    folders: tuple[str, ...],
    full: bool,
    iperf: bool,
    thorough: bool,
    quick: bool,
    maps: tuple[str, ...],
    verdict: Path | None,
    model_params: str | None,
    strategy: str,
    units: int,
    param_bytes: int,
    clean: bool,
    yes: bool,
    root: Path | None,
    fail_on: str,
    exclude_file: Path | None,
    format_: str,
    output: Path | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Check hosts before a job starts. Read-only, no root needed, every probe bounded in time.

    \b
    whichrank preflight                                    this host
    whichrank preflight --hosts node[01-08] --full         eight hosts by ssh, with throughput
    whichrank preflight --slurm --exclude-file bad.txt     inside an allocation
    whichrank preflight --k8s train/job-name=llama         the pods of a job
    whichrank preflight --map here --map ibnetdiscover.txt which GPU uses which adapter, cable and switch port
    whichrank preflight --model-params 7B --strategy fsdp --units 32 --nproc-per-node 8
                                                           memory that communication will take of each GPU

    Exit code 0: nothing wrong found; 1: findings (--fail-on error: only errors count);
    3: nothing could be checked.
    """
    if quick and (full or thorough):
        raise UsageError(
            f"--quick and {'--full' if full else '--thorough'} exclude each other",
            "--quick looks at the hosts alone, without load.",
        )
    if verdict and not maps:
        raise UsageError("--verdict needs --map", "Say where GPUs, adapters and cables are: --map here, or files.")
    if clean:
        from whichrank.cli.before._clean import clean as clean_up

        if named(options) or root or format_ != "text":
            raise UsageError("--clean looks at this host only, and talks to people", "Run it on each host, alone.")
        ctx.exit(clean_up(yes=yes))
    for path in (output, exclude_file):
        must_be_writable(path)  # said now, not after minutes of measuring
    from whichrank.flows.preflight import check as flow
    from whichrank.report._preflight import FORMATS as WRITERS
    from whichrank.report._preflight import text

    engine, python = engine_of(options), python_of(options)
    agent = [python, *flow.AGENT, *(["--root", str(root)] if root else [])]
    if maps:
        from whichrank.cli.before._topology import draw

        ctx.exit(draw(maps, engine, agent, ranks, format_, output, verdict))
    if model_params:
        from whichrank.cli.before._topology import tell_budget

        ranks = ranks or next(iter(engine.slots.values()), None)
        ctx.exit(tell_budget(model_params, strategy, units, param_bytes, engine, agent, ranks, full, format_, output))
    launch = Launch(ranks_per_host=ranks or next(iter(engine.slots.values()), None), port=port, folders=folders)
    wishes = flow.Wishes(launch, full or thorough, thorough, quick, iperf=iperf)
    told = _of_copies(engine.name, wishes) if not root else None
    if told == "followed":
        ctx.exit(HEALTHY)  # rank 0 reports
    if not isinstance(told, flow.Preflight):
        line = ProgressLine(quiet=quiet)
        try:
            told = flow.preflight(engine, wishes, agent=agent, progress=line)
        finally:
            line.close()
    if format_ == "text" and output is None:
        write(fitted(text(told, width=width())), output)
    else:
        write(WRITERS[format_](told), output)
    if exclude_file is not None:
        write([f"{host}\n" for host in told.exclude], exclude_file)
    wrong = told.unfit if fail_on == "error" else told.wrong
    ctx.exit(FINDINGS if wrong else NOT_ENOUGH if told.blind else HEALTHY)


def _of_copies(engine: str, wishes: Wishes) -> Preflight | str | None:
    """What N copies of this command found together; None where this is the only one."""
    from whichrank.fleet import copies

    if engine != "local" or not copies.told():
        return None
    from whichrank.flows.preflight import check as flow

    # The port of the rendezvous itself is tested: the copies meet on the next one.
    return flow.of_copies(wishes.launch.port % 65535 + 1, wishes) or "followed"
