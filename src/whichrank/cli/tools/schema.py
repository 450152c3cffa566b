"""Print the JSON Schemas of what whichrank writes."""

from __future__ import annotations

from pathlib import Path

import click

from whichrank import report
from whichrank.cli.terminal.output import write

SUFFIX = ".schema.json"


def schemas() -> dict[str, Path]:
    """Name -> schema file."""
    folder = Path(report.__file__).parent / "schemas"
    return {file.name.removesuffix(SUFFIX): file for file in sorted(folder.glob(f"*{SUFFIX}"))}


@click.command(name="schema")
@click.argument("name", type=click.Choice(list(schemas())), required=False)
def command(name: str | None) -> None:
    """Print the JSON Schema called NAME; without a name, the names."""
    found = schemas()
    write([f"{line}\n" for line in found] if name is None else [found[name].read_text(encoding="utf-8")], None)
