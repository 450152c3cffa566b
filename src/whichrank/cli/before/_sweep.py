"""`bench --sweep`: the settings that won, by how much, with the noise; or "keep the defaults"."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from whichrank.cli.options.fleet import engine_of, python_of
from whichrank.cli.terminal.output import write

if TYPE_CHECKING:
    from whichrank.flows.bench.sweep import Sweep


def sweep_command(options: dict[str, Any], budget: float, format_: str, output: Path | None) -> int:
    """Run it and tell; the exit code is 0 whoever wins."""
    from whichrank.cli.before.bench import plan_of
    from whichrank.flows.bench.sweep import candidates, hardware, runner, sweep

    engine, python = engine_of(options), python_of(options)
    plan = plan_of(options)
    gpus = len(list(Path("/dev").glob("nvidia[0-9]*")))
    backend = plan.backend if plan.backend != "auto" else ("nccl" if gpus else "gloo")
    interfaces, hcas = hardware(engine, python)
    tried = candidates(backend, nodes=len(engine.hosts), gpus=plan.ranks_per_host, interfaces=interfaces, hcas=hcas)

    began = time.monotonic()

    def tell(line: str) -> None:
        if not options["quiet"]:
            click.echo(f"[{time.monotonic() - began:4.0f} of {budget:.0f} s] {line}", err=True)

    told = sweep(runner(engine, plan, python, budget), tried, budget, tell)
    write(_json(told) if format_ == "json" else _text(told), output)
    return 0


def _text(told: Sweep) -> list[str]:
    from whichrank.flows.bench.sweep import words
    from whichrank.report._words import safe

    count = len(told.trials) - 1
    if count < 1:
        return ["Nothing to try: this backend has no setting here that could be faster. Keep the defaults.\n"]
    failed = [trial for trial in told.trials if trial.failed]
    lines = [f"{count} settings tried in {told.seconds:.0f} s.\n"]
    lines += [f"  {words(trial.settings)} does not work here: {safe(trial.failed)}\n" for trial in failed[:8]]
    if not told.winner:
        return [*lines, f"Keep the defaults: {told.reason} (noise {told.noise:.0%}).\n"]
    lines.append(f"{words(told.winner)}: {told.gain:+.0%} against the defaults, noise {told.noise:.0%}.\n")
    return [*lines, *(f"export {name}={shlex.quote(value)}\n" for name, value in told.winner.items())]


def _json(told: Sweep) -> list[str]:
    document = {
        "schema_version": 1,
        "winner": dict(told.winner),
        "keep_defaults": not told.winner,
        "gain": told.gain,
        "noise": told.noise,
        "reason": told.reason,
        "trials": [
            {"settings": dict(t.settings), "speeds": list(t.speeds), "failed": t.failed or None} for t in told.trials
        ],
    }
    return [json.dumps(document, indent=2) + "\n"]
