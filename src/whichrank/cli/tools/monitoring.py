"""Print files for your monitoring: alert rules, a Grafana dashboard, a Prometheus example."""

from __future__ import annotations

from pathlib import Path

import click

import whichrank
from whichrank.cli.terminal.output import write
from whichrank.model.errors import UsageError


def files() -> dict[str, Path]:
    """Name -> file."""
    return {file.name: file for file in sorted((Path(whichrank.__file__).parent / "monitoring").iterdir())}


@click.command(name="monitoring")
@click.argument("name", type=click.Choice(list(files())), required=False)
@click.option("--write", "folder", type=click.Path(file_okay=False, path_type=Path), help="Write them to this folder.")
def command(name: str | None, folder: Path | None) -> None:
    """Print the file called NAME, or write it (all of them without a name) to a folder; otherwise, the names.

    They use the metrics of `whichrank run --metrics PORT`.
    """
    found = files()
    if folder is None:
        write([f"{line}\n" for line in found] if name is None else [found[name].read_text(encoding="utf-8")], None)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"can't create the folder {folder}: {error.strerror}", "Give --write another place."
        ) from error
    for each in [name] if name else found:
        write([found[each].read_text(encoding="utf-8")], folder / each)
