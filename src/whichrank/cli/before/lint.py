"""Find collectives that not every rank will reach, by reading the training code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.terminal.output import write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.model.errors import UsageError

if TYPE_CHECKING:
    from whichrank.flows.lint.check import CodeLint

HEALTHY, FINDINGS, NOT_ENOUGH = 0, 1, 3


@click.command(name="lint")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--select", multiple=True, metavar="CODE", help="Only these rules, or all whose code begins so: LINT1.")
@click.option("--ignore", multiple=True, metavar="CODE", help="Not these rules.")
@click.option("--fix", is_flag=True, help="Change the files where the fix is mechanical (needs whichrank[lint]).")
@click.option("--diff", is_flag=True, help="Show those changes as a patch instead.")
@click.option(
    "--format", "format_", type=click.Choice(("text", "json", "sarif")), help="Report format (default: text)."
)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.option("--quiet", is_flag=True, help="No progress.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fix: bool,
    diff: bool,
    format_: str | None,
    output: Path | None,
    quiet: bool,
) -> None:
    """Find collectives that not every rank will reach, by reading the code. Nothing is run or imported.

    PATH is a Python file or a folder; all files are read as one project, so that calls are followed from file
    to file. It reads plain torch.distributed, DDP, FSDP, DTensor, DCP, Accelerate, Lightning, DeepSpeed and
    Megatron idioms.

    \b
    Examples:
      whichrank lint train.py
      whichrank lint src/ --select LINT1 --format sarif --output lint.sarif
      whichrank lint src/ --diff

    To accept a finding, write on its line (or above it): # whichrank: ignore[LINT101] why it is right.

    Exit codes: 0 no findings (or only notes), 1 findings, 2 usage error, 3 nothing could be read.
    """
    from whichrank.flows.lint.check import lint

    given = [_existing(path) for path in paths]
    codes = [part.strip() for word in select for part in word.split(",") if part.strip()]
    without = [part.strip() for word in ignore for part in word.split(",") if part.strip()]
    with closing(ProgressLine(quiet=quiet)) as progress:
        result = lint(given, select=codes, ignore=without, progress=progress)
    if fix or diff:
        _fixes(ctx, result, output, apply=fix and not diff)
        return
    write(_rendered(result, _format(format_, output), output), output)
    if not result.read_any:
        click.echo("no Python file could be read: nothing was checked", err=True)
        ctx.exit(NOT_ENOUGH)
    ctx.exit(FINDINGS if result.wrong else HEALTHY)


def _existing(text: str) -> Path:
    if not Path(text).exists():
        raise UsageError(f"no such file or folder: {text}", "Give Python files or the folder of the training code.")
    return Path(text)


def _format(chosen: str | None, output: Path | None) -> str:
    by_suffix = {".json": "json", ".sarif": "sarif"}
    return chosen or by_suffix.get(output.suffix if output else "", "text")


def _rendered(result: CodeLint, format_: str, output: Path | None) -> Iterator[str]:
    if format_ == "json":
        from whichrank.report._lint_json import render

        return render(result.findings, result.coverage, result.suppressed)
    if format_ == "sarif":
        from whichrank.flows.discovery import discover_rules
        from whichrank.report import _lint_sarif

        titles = {rule.CODE: (rule.__doc__ or "").partition("\n")[0] for rule in discover_rules("code")}
        return _lint_sarif.render(result.findings, titles)
    from whichrank.report import _lint_text
    from whichrank.report._paint import plain, terminal

    paint = terminal()["paint"] if output is None and sys.stdout.isatty() else plain
    shown = {label: str(file.path) for label, file in result.files.items()}
    return _lint_text.render(result.findings, result.coverage, result.lines, shown, len(result.suppressed), paint)


def _fixes(ctx: click.Context, result: CodeLint, output: Path | None, *, apply: bool) -> None:
    from whichrank.flows.lint.fix import changes

    made = changes(result)
    if apply:
        for change in made:
            change.write()
            click.echo(f"changed {change.path}: {', '.join(change.codes)}")
        left = sum(f.severity != "info" for f in result.findings) - sum(len(change.fixed) for change in made)
        click.echo(f"{len(made)} files changed; {max(left, 0)} findings need a person.")
        ctx.exit(FINDINGS if left > 0 else HEALTHY)
    write((change.diff() for change in made), output)
    ctx.exit(FINDINGS if made else HEALTHY)
