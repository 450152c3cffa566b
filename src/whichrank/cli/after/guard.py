"""Check the records of `run --guard` for silent corruption: replicas, gradients, collectives."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from whichrank.cli.after.diagnose import exit_code
from whichrank.cli.options.evidence import HEALTHY
from whichrank.cli.terminal.output import write
from whichrank.model.errors import UsageError

LOOK_S = 1.0


@click.command(name="guard")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json", "markdown"]), default="text")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.option("--follow", "pid", type=click.IntRange(1), metavar="PID", help="Keep comparing while this process runs.")
@click.pass_context
def command(ctx: click.Context, paths: tuple[Path, ...], format_: str, output: Path | None, pid: int | None) -> None:
    """Compare replicas, local gradients and collectives of all ranks, from the records of their guards.

    \b
    whichrank run --guard -- torchrun --nproc_per_node=8 train.py    # without changing the script
    whichrank guard out/guard                                        # judge the records again
    whichrank compare out-a/guard out-b/guard                        # the first tensor that differs between two runs

    In a script: whichrank.guard(model, optimizer). Exit code 0: nothing wrong in what was compared.
    """
    if pid is not None:
        _follow(paths, pid)
    from whichrank.flows.guard import judge

    diagnosis, measured = judge(paths)
    compared = measured["compared"]
    if compared is None and not measured["ranks"]:
        raise UsageError("there are no records of a guard", "Give the folder that whichrank run --guard --out named.")
    write(_told(diagnosis, measured, format_), output)
    well = diagnosis.verdict.category in ("healthy", "unknown") and compared is not None and any(compared.values())
    ctx.exit(HEALTHY if well and not diagnosis.findings else exit_code(diagnosis))


def _told(diagnosis: object, measured: dict[str, object], format_: str) -> Iterator[str]:
    from whichrank.model.verdict import Diagnosis

    if not isinstance(diagnosis, Diagnosis):
        raise TypeError(type(diagnosis))
    if format_ == "json":
        import msgspec

        from whichrank.report.json import as_document

        document = as_document(diagnosis)
        kept = {key: document[key] for key in ("schema_version", "tool", "verdict", "findings", "coverage")}
        encoded = msgspec.json.encode({**kept, **measured}, enc_hook=int)
        yield msgspec.json.format(encoded, indent=2).decode() + "\n"
        return
    if not diagnosis.findings:
        yield f"{_summary(measured)}\n"
        return
    from whichrank import report

    yield from report.load(format_).render(diagnosis)


def _summary(measured: dict[str, object]) -> str:
    compared = measured["compared"]
    if not isinstance(compared, dict) or not any(compared.values()):
        return f"Nothing could be compared: records of {len(measured['ranks'])} rank(s)."  # type: ignore[arg-type]
    return (
        f"Nothing wrong found: {compared['slices']:,} slices, {compared['gradients']:,} steps of local gradients and "
        f"{compared['collectives']:,} collectives of {measured['world_size']} ranks, over {measured['steps']} steps "
        f"(everything within {measured['window']} steps)."
    )


def _follow(paths: tuple[Path, ...], pid: int) -> None:
    """Tell on stderr what is found while the process lives."""
    from whichrank.run.watch.guarding import GuardWatch

    def tell(text: str) -> None:
        sys.stderr.write(f"whichrank: {text}\n")
        sys.stderr.flush()

    watches = [GuardWatch(path, tell, lambda why: tell(f"the job computes something wrong: {why}")) for path in paths]
    while _lives(pid):
        for watch in watches:
            watch.look()
        time.sleep(LOOK_S)
    for watch in watches:
        watch.look(last=True)
        if not watch.alarming:
            tell(watch.summary())


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
