"""Measure collectives, and compare them with what the hardware should give."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from whichrank.cli.options.fleet import engine_of, fleet_options, python_of
from whichrank.cli.terminal.output import must_be_writable, write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.cli.terminal.wrapping import fitted
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.flows.bench.measure import Plan
    from whichrank.records.bench import BenchResult, BenchRun

HEALTHY, FINDINGS = 0, 1
FORMATS = ("text", "json", "markdown", "html")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "barrier")
_GPU_SIZES, _CPU_SIZES = "1M:1G:4", "4K:16M:8"


@click.command(name="bench")
@fleet_options
@click.option("--nproc-per-node", "ranks", type=click.IntRange(1), help="Ranks on each host (default: its GPUs, or 2).")
@click.option("--collective", "collectives", type=click.Choice(COLLECTIVES), multiple=True, help="Default: all.")
@click.option("--sizes", "sizes_text", metavar="FROM:TO:FACTOR", help="1M:1G:4, or a list: 1M,64M.")
@click.option("--backend", type=click.Choice(("auto", "nccl", "gloo")), default="auto", help="Default: NCCL with GPUs.")
@click.option("--dtype", type=click.Choice(("float32", "bfloat16", "float16", "int32")), default="float32")
@click.option("--seconds", type=click.FloatRange(0.01), default=0.5, show_default=True, help="For each size.")
@click.option("--limit", type=click.FloatRange(1), default=600.0, show_default=True,
              help="Seconds for the whole run; what is not measured by then is left out.")  # fmt: skip
@click.option("--stragglers", is_flag=True, help="Also measure compute, memory and copies of each rank.")
@click.option("--scaling", is_flag=True, help="Repeat with 2, 4, 8 … ranks: how it scales.")
@click.option("--sweep", is_flag=True, help="Try settings and print those that really help.")
@click.option("--budget", type=click.FloatRange(5), default=300.0, show_default=True, help="Seconds for --sweep.")
@click.option("--read", "files", type=click.Path(exists=True, dir_okay=False, path_type=Path), multiple=True,
              help="Judge the output of nccl-tests (text or JSON) instead of running anything.")  # fmt: skip
@click.option("--nccl-tests", metavar="[FOLDER]", is_flag=False, flag_value="",
              help="Run the programs of nccl-tests, in this folder or where they are found.")  # fmt: skip
@click.option(
    "--gpu",
    "device",
    default="",
    help='For --read: the GPU it ran on ("NVIDIA H100 80GB HBM3"), if the file does not say.',
)
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep the results for --compare.")
@click.option("--compare", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="An earlier --save.")
@click.option("--png", type=click.Path(dir_okay=False, path_type=Path), help="Curves as a picture.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), help="Curves and table as a page.")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", help="Report format.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file.")
@click.option("--quiet", is_flag=True, help="No results while it runs.")
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    """Measure collectives through torch, check their results, and compare with what the hardware should give.

    \b
    whichrank bench --nproc-per-node 8                        this host
    whichrank bench --hosts node1,node2 --nproc-per-node 8    two hosts by ssh
    torchrun … -m whichrank bench                             as N copies of any launcher
    whichrank bench --read all_reduce.txt                     judge the output of nccl-tests
    whichrank bench --save before.json; … ; whichrank bench --compare before.json

    It loads the GPUs and the network: don't run it next to a training job.
    """
    from whichrank.flows.bench import measure as flow
    from whichrank.report import _bench as report

    keep = {name: options.pop(name) for name in ("save", "compare", "png", "page", "format_", "output")}
    sweep, budget = options.pop("sweep"), options.pop("budget")
    if sweep:
        from whichrank.cli.before._sweep import sweep_command

        ctx.exit(sweep_command(options, budget, keep["format_"], keep["output"]))
    # What can't be read or written is said now, not after minutes of measuring.
    baseline = flow.load(keep["compare"]) if keep["compare"] else []
    for name in ("save", "page", "png", "output"):
        must_be_writable(keep[name])
    run = _run(options)
    if run is None:
        ctx.exit(HEALTHY)  # one of N copies; rank 0 reports
    run = replace(run, baseline=baseline)
    told = flow.bench(run)
    lines = report.FORMATS[keep["format_"]](told)
    write(fitted(lines) if keep["format_"] == "text" and not keep["output"] else lines, keep["output"])
    if keep["save"]:
        write(report.as_json(told), keep["save"])
    if keep["page"]:
        write(report.html(told), keep["page"])
    if keep["png"]:
        _picture(run, keep["png"])
    ctx.exit(FINDINGS if told.wrong else HEALTHY)


def _run(options: dict[str, Any]) -> BenchRun | None:
    from whichrank.flows.bench import measure as flow

    engine, python = engine_of(options), python_of(options)
    if options["files"]:
        from whichrank.flows.bench import nccl_tests

        return nccl_tests.read(options["files"], options["device"])
    plan = plan_of(options)
    if options["nccl_tests"] is not None:
        from whichrank.flows.bench import nccl_tests

        return nccl_tests.drive(nccl_tests.folder(options["nccl_tests"]), plan)
    copies = {"RANK", "WORLD_SIZE", "MASTER_ADDR"} <= os.environ.keys() and engine.name == "local"
    if copies and not options["ranks"]:
        with _shown(plan, quiet=options["quiet"]) as tell:
            return flow.in_place(plan, python, tell)
    with _shown(plan, quiet=options["quiet"]) as tell:
        return (flow.scaling if options["scaling"] else flow.measure)(engine, plan, python, tell)


def plan_of(options: dict[str, Any]) -> Plan:
    from whichrank.flows.bench.job import Limits
    from whichrank.flows.bench.measure import Plan, sizes

    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    nccl = options["backend"] == "nccl" or (options["backend"] == "auto" and gpus > 0)
    text = options["sizes_text"] or (_GPU_SIZES if nccl else _CPU_SIZES)
    return Plan(
        options["collectives"] or COLLECTIVES, sizes(text), options["backend"], options["dtype"], options["seconds"],
        options["ranks"] or (gpus if nccl and gpus else 2), options["stragglers"], limits=Limits(options["limit"]),
    )  # fmt: skip


@contextmanager
def _shown(plan: Plan, *, quiet: bool) -> Iterator[Callable[[BenchResult], None]]:
    """Every result as it comes: bars on a terminal, lines where stderr goes to a file."""
    line = ProgressLine(quiet=quiet)
    done: Counter[str] = Counter()

    def tell(result: BenchResult) -> None:
        stage = f"{result.collective} on {result.ranks} ranks"
        done[stage] += 1
        if not line.enabled and not quiet:
            _print(result)
        line(stage, done[stage], 1 if result.collective == "barrier" else len(plan.sizes))

    if line.enabled:
        click.echo("starting the ranks …", err=True)
    try:
        yield tell
    finally:
        line.close()


def _print(result: BenchResult) -> None:
    bandwidth = "" if result.busbw_gbs is None else f"  busbw {result.busbw_gbs:.3f} GB/s"
    click.echo(
        f"{result.collective} {result.bytes} bytes, {result.ranks} ranks: {result.time_us:.1f} us{bandwidth}", err=True
    )


def _picture(run: BenchRun, path: Path) -> None:
    from whichrank.report._curves import png, series

    try:
        path.write_bytes(png(series(run.results, run.baseline), "message size (bytes)", "bus bandwidth (GB/s)"))
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from error
