"""Show what changed between a run that worked and one that did not."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.cli.terminal.output import write


@click.command(name="compare")
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="Report format.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.pass_context
def command(ctx: click.Context, a: Path, b: Path, format_: str, output: Path | None) -> None:
    """Compare two runs by what both have left: A worked (or came first), B did not.

    \b
    whichrank compare out-good/ out-bad/                  # results of run, or bundles: what is different about B
    whichrank compare out-before/guard out-after/guard    # records of run --guard: the first tensor that differs
    whichrank compare profiles-before/ profiles-after/    # profiler traces: what became slower, where, by how much

    Most suspicious first. Exit code 0: no difference; 1: differences.
    """
    from whichrank.flows.compare.inputs import compare

    differences, looked = compare(a, b)
    if format_ == "json":
        import msgspec

        document = {"schema_version": 1, "differences": [d.as_json() for d in differences], "looked_at": looked}
        write([msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"], output)
    else:
        from whichrank.report._words import safe

        lines = []
        for number, d in enumerate(differences, 1):
            what, mine, theirs, why = map(safe, (d.what, d.a, d.b, d.why))
            lines.append(
                f"{number:>3}. {what}  ({_level(d.suspicion)})\n       A: {mine}\n       B: {theirs}\n       {why}\n"
            )
        write([*lines, f"\n{'No difference' if not differences else 'Compared'}: {'; '.join(looked)}.\n"], output)
    ctx.exit(1 if differences else 0)


def _level(suspicion: float) -> str:
    """A word for the number."""
    levels = ((0.9, "very suspicious"), (0.7, "suspicious"), (0.3, "possible"))
    return next((word for least, word in levels if suspicion >= least), "unlikely, or a consequence")
