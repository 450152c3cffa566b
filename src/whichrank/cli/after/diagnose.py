"""Find what went wrong, on which rank, why, and what to do, from dumps, logs and bundles.

Nothing that is read is executed, and no running process is touched.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

import click

from whichrank import report
from whichrank.cli.options import numeric
from whichrank.cli.options.evidence import FINDINGS, HEALTHY, NOT_ENOUGH, evidence
from whichrank.cli.options.remote import fetched
from whichrank.cli.options.site_rules import rules_option
from whichrank.cli.terminal.output import tell, write
from whichrank.cli.terminal.progress import ProgressLine
from whichrank.model.errors import UsageError, WhichrankError
from whichrank.model.verdict import Diagnosis

DRAWN = ("html", "perfetto")


def exit_code(diagnosis: Diagnosis) -> int:
    """0 nothing wrong found, 1 findings, 3 unknown."""
    if "unknown" in (diagnosis.verdict.category, diagnosis.verdict.cause):
        return NOT_ENOUGH
    wrong = any(finding.severity != "info" for finding in diagnosis.findings)
    return FINDINGS if wrong or diagnosis.verdict.category != "healthy" else HEALTHY


def format_name(chosen: str | None, output: Path | None) -> str:
    """The format asked for, or the one that the output file's suffix stands for, or text."""
    by_suffix = {".json": "json", ".md": "markdown", ".html": "html"}
    return chosen or by_suffix.get(output.suffix if output else "", "text")


def rendered(diagnosis: Diagnosis, name: str, output: Path | None, *, verbose: bool = False) -> Iterator[str]:
    """The report's text; on a terminal in its width and in colour."""
    if name != "text":
        return report.load(name).render(diagnosis)
    from whichrank.report import text
    from whichrank.report._paint import terminal

    if output is None and sys.stdout.isatty():
        return text.render(diagnosis, **terminal(), verbose=verbose)
    return text.render(diagnosis, verbose=verbose)


@click.command(name="diagnose")
@rules_option
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--format", "format_", type=click.Choice(report.names()), help="Report format (default: text).")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.option(
    "--source",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The training code, to point at the lines that should agree.",
)
@click.option(
    "--why", is_flag=True, help="Show how far the job came, and every hypothesis with what speaks for and against it."
)
@click.option("--verbose", "-v", is_flag=True, help="List all files and rules in the coverage.")
@click.option("--jobs", type=click.IntRange(min=1), help="Processes to read with (default: one per core).")
@click.option(
    "--engine", metavar="ray://HOST:PORT", help="Read it on a Ray cluster that sees the same files (ray://auto)."
)
@click.option("--remember", is_flag=True, help="Keep the verdict (see history).")
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@click.pass_context
def command(
    ctx: click.Context,
    paths: tuple[str, ...],
    format_: str | None,
    output: Path | None,
    source: Path | None,
    why: bool,
    verbose: bool,
    jobs: int | None,
    engine: str | None,
    remember: bool,
    quiet: bool,
) -> None:
    """Name the rank that broke the job, from what it left behind.

    PATH is a flight-recorder dump, a log, a folder of them, or an archive (tar, zip, gz, xz, zst); kinds may be mixed.
    s3://, gs:// and other addresses that fsspec knows work too (pip install 'whichrank[remote]'). "-" reads pasted text
    from standard input. --output report.html writes one page that opens in any browser, without a network.

    \b
    whichrank diagnose run7/                       a folder of dumps and logs, or the results of `whichrank run`
    whichrank diagnose slurm-815.out dmesg.txt     single files
    whichrank diagnose run7/ --source src/ --why   with the lines of code, and every hypothesis
    whichrank diagnose bundle.tar.gz --output report.md
    """
    numeric.load()
    from whichrank.flows.diagnose.pipeline import diagnose

    name = format_name(format_, output)
    with closing(ProgressLine(quiet=quiet)) as progress, fetched(paths, progress) as here:
        given = evidence(here)
        with _on_engine(engine, given, progress) as read:
            diagnosis = diagnose(read, source=source, jobs=jobs, progress=progress, why=why, views=name in DRAWN)
    write(rendered(diagnosis, name, output, verbose=verbose), output)
    if output is not None and not quiet:
        tell(diagnosis.verdict.summary)
        tell(f"The report is in {output}.")
    if remember:
        for line in _remembered(diagnosis, given):
            tell(f"whichrank: {line}")
    ctx.exit(exit_code(diagnosis))


@contextmanager
def _on_engine(
    engine: str | None, given: list[Path | Literal["-"]], progress: ProgressLine
) -> Iterator[list[Path | Literal["-"]]]:
    """The evidence as it is, or as summaries that a cluster has made of it."""
    if engine is None:
        yield given
        return
    address = engine.removeprefix("ray://")
    if address == engine or not address:
        raise UsageError(f"'{engine}' is not an engine", "Write ray://HOST:PORT, or ray://auto.")
    if "-" in given:
        raise UsageError("standard input can't be read on a cluster", "Give files on storage that its nodes see.")
    from whichrank.flows.diagnose.on_ray import reduced

    with reduced([path for path in given if path != "-"], ray_address(address), progress) as folders:
        yield [*folders]


def ray_address(address: str) -> str:
    """Ray's client server listens on port 10001 and is named by its own scheme; other ports are the cluster's."""
    return f"ray://{address}" if address.endswith(":10001") else address


def _remembered(diagnosis: Diagnosis, given: list[Path | Literal["-"]]) -> list[str]:
    """Keep the verdict under the name of its evidence: the same evidence counts once, however often it is read."""
    from whichrank.flows.history import recurrence as history

    places = [str(path) if path == "-" else str(Path(path).absolute()) for path in given]
    at = history.onset(diagnosis)
    run = f"{' '.join(places)} {at}"
    try:
        return history.remember(history.entry(diagnosis, run=run, job=Path(places[0]).name, out=places[0], at=at))
    except WhichrankError as error:  # the verdict has been told, and its exit code stands
        return [f"the verdict is not in the history: {error.message}"]
