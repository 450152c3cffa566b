"""Show what changed between a run that worked and one that did not."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.cli.terminal.output import tell, write

FORMATS = ("html", "json", "markdown", "text")
SUFFIXES = {".html": "html", ".json": "json", ".md": "markdown"}


@click.command(name="compare")
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Report format (default: text).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.pass_context
def command(ctx: click.Context, a: Path, b: Path, format_: str | None, output: Path | None) -> None:
    """Compare the evidence of two runs: A worked (or came first), B did not.

    \b
    whichrank compare out-good/ out-bad/                  # results of run, or bundles: what is different about B
    whichrank compare out-before/guard out-after/guard    # records of run --guard: the first tensor that differs
    whichrank compare profiles-before/ profiles-after/    # profiler traces: what became slower, where, by how much
    whichrank compare out-good/ out-bad/ --output changed.html   # a page; .md for a ticket, .json for scripts

    Most suspicious first. Exit code 0: no difference; 1: differences.
    """
    from importlib import import_module

    from whichrank.flows.compare.inputs import compare
    from whichrank.report._words import counted

    differences, looked = compare(a, b)
    name = format_ or SUFFIXES.get(output.suffix if output else "", "text")
    write(import_module(f"whichrank.report.comparison.{name}").render(differences, looked), output)
    if output is not None:
        if differences:
            tell(f"{counted(len(differences), 'difference')}, most suspicious: {differences[0].what}")
        tell(f"The report is in {output}.")
    ctx.exit(1 if differences else 0)
