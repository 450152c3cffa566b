"""Show where step time goes: exposed communication, late ranks, and what a fix would save."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from pathlib import Path

import click

from whichrank.cli.options import numeric
from whichrank.cli.options.evidence import FINDINGS, HEALTHY, NOT_ENOUGH, evidence
from whichrank.cli.terminal.output import tell, write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.model.step_report import StepReport
from whichrank.report.steps import FORMATS

SUFFIXES = {".json": "json", ".md": "markdown", ".html": "html", ".htm": "html"}


def rendered(report: StepReport, name: str, output: Path | None) -> Iterator[str]:
    """The report's text; on a terminal in its width and in colour."""
    chosen = import_module(f"whichrank.report.steps.{name}")
    if name == "text" and output is None and sys.stdout.isatty():
        from whichrank.report._paint import terminal

        look = terminal()
        text: Iterator[str] = chosen.render(report, width=look["width"], paint=look["paint"])
        return text
    plain: Iterator[str] = chosen.render(report)
    return plain


@click.command(name="trace")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Report format (default: text).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.option(
    "--perfetto",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write all ranks into one file for ui.perfetto.dev, with aligned clocks (.json or .json.gz).",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to read with (default: one per core).")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    format_: str | None,
    output: Path | None,
    perfetto: Path | None,
    jobs: int | None,
    quiet: bool,
) -> None:
    """Show where the time of training steps goes, which ranks are late, and what a fix would save.

    PATH is a profile of torch.profiler (.json, .json.gz, .json.zst), an Nsight Systems export (.sqlite), a log of
    NCCL's Inspector, or a folder or archive of them: one file per rank. Without any, flight-recorder dumps
    show which ranks come late.

    \b
    whichrank trace profiles/                        where the time goes, as text
    whichrank trace profiles/ --output trace.html    a page with the map of all ranks
    whichrank trace profiles/ --perfetto all.json.gz one timeline of all ranks
    """
    given = evidence(paths)
    numeric.load()
    from whichrank.flows.trace.analyse import trace

    with closing(ProgressLine(quiet=quiet)) as progress:
        report = trace(given, jobs=jobs, progress=progress)
        if perfetto is not None and report.ranks:
            from whichrank.flows.trace.merge import merge

            merge(given, report, perfetto, progress=progress)
    name = format_ or SUFFIXES.get(output.suffix if output else "", "text")
    write(rendered(report, name, output), output)
    if output is not None and not quiet:
        from whichrank.report.steps._outline import headline

        tell(headline(report) if report.ranks else "No profile could be read.")
        tell(f"The report is in {output}.")
    ctx.exit(exit_code(report))


def exit_code(report: StepReport) -> int:
    """0 nothing wrong found, 1 findings, 3 no profile could be read."""
    if not report.ranks:
        return NOT_ENOUGH
    return FINDINGS if any(found.severity != "info" for found in report.findings) else HEALTHY
