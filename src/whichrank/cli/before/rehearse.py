"""Run a training script's control flow on simulated ranks, before you rent a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from whichrank.cli.terminal.output import write

HEALTHY, FINDINGS, NOT_ENOUGH = 0, 1, 3


@click.command(name="rehearse", context_settings={"allow_interspersed_args": False})
@click.option("--world-size", "-n", "world", type=click.IntRange(2, 64), default=4, show_default=True, help="Ranks.")
@click.option("--steps", type=click.IntRange(min=1), help="Stop after this many optimizer steps.")
@click.option(
    "--time-limit",
    "limit",
    type=click.FloatRange(min=10),
    default=110,
    show_default=True,
    help="Seconds at most.",
)
@click.option(
    "--explore", type=click.IntRange(0, 200), default=6, show_default=True, help="Variations to try, 0 for none."
)
@click.option("--python", help="Interpreter with the script's torch (default: the one that runs whichrank).")
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), help="What the ranks print goes into this file."
)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", help="Report format.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.argument("script", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(
    ctx: click.Context, world: int, steps: int | None, limit: float, explore: int, python: str | None, log: Path | None,
    form: str, output: Path | None, quiet: bool, script: Path, arguments: tuple[str, ...],
) -> None:  # fmt: skip
    """Run SCRIPT with simulated ranks and real values on this machine, and compare what each rank calls.

    \b
      whichrank rehearse --world-size 8 train.py --config small.yaml
      whichrank rehearse -n 64 --steps 20 train.py
      whichrank rehearse --explore 0 --format json train.py

    Options for whichrank go before SCRIPT; everything after it goes to the script. It needs no GPU: CUDA calls
    are answered on the CPU. Nothing is written outside a scratch layer, nothing leaves this machine, and sleep()
    returns at once. Give the script a small model and little data through its own arguments.
    """
    from dataclasses import asdict

    from whichrank.rehearse.rehearse import Options, rehearse
    from whichrank.report._rehearsal import as_document, text

    options = Options(script, arguments, world, limit, steps, explore, python, log)
    told = (lambda _: None) if quiet or not sys.stderr.isatty() else (lambda line: click.echo(f"… {line}", err=True))
    outcome = rehearse(options, told)
    document = as_document(
        world=outcome.world, rehearsed=outcome.rehearsed, reason=outcome.reason, divergence=outcome.divergence,
        findings=outcome.findings, looked=outcome.coverage, runs=[asdict(run) for run in outcome.runs],
        torch=outcome.torch,
    )  # fmt: skip
    write([json.dumps(document, indent=2) + "\n"] if form == "json" else text(document), output)
    wrong = any(finding.severity != "info" for finding in outcome.findings)
    ctx.exit(FINDINGS if wrong else HEALTHY if outcome.rehearsed else NOT_ENOUGH)
