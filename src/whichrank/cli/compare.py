"""What changed between the run that worked and the one that did not."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank.cli._output import write


@click.command(name="compare")
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", help="How to tell it.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file.")
@click.pass_context
def command(ctx: click.Context, a: Path, b: Path, format_: str, output: Path | None) -> None:
    """Compare two runs by what both have left: A worked (or came first), B did not.

    \b
    whichrank compare out-before/guard out-after/guard    # records of run --guard: the first tensor that differs
    whichrank compare profiles-before/ profiles-after/    # profiler traces: what became slower, where, by how much

    Most suspicious first. Exit code 0: no difference; 1: differences.
    """
    from whichrank.flows.compare import compare

    differences, looked = compare(a, b)
    if format_ == "json":
        import msgspec

        document = {"schema_version": 1, "differences": [d.as_json() for d in differences], "looked_at": looked}
        write([msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"], output)
    else:
        lines = [f"{d.what}\n    A: {d.a}\n    B: {d.b}\n    {d.why}\n" for d in differences]
        write([*lines, f"\n{'No difference' if not differences else 'Compared'}: {'; '.join(looked)}.\n"], output)
    ctx.exit(1 if differences else 0)
