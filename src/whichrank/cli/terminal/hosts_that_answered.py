"""Who answered of many nodes, and who did not: told on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from whichrank.run.first_response.everywhere import Gathered

_LISTED = 12


def tell_nodes(gathered: Gathered) -> None:
    """Who answered, and who did not."""
    seen = sum(len(node.ranks) for node in gathered.nodes)
    of = f" of {gathered.world}" if gathered.world else ""
    here = gathered.of("here")
    click.echo(f"{seen}{of} ranks on {len(here)} of {len(gathered.nodes)} nodes; bundle: {gathered.folder}", err=True)
    troubled = [node for node in gathered.nodes if node.why]
    for node in troubled[:_LISTED]:
        click.echo(f"  {node.name} {node.state}: {node.why}", err=True)
    if len(troubled) > _LISTED:
        click.echo(f"  and {len(troubled) - _LISTED} more, in {gathered.folder}/nodes.json", err=True)
    notes: dict[str, list[str]] = {}
    for node in gathered.nodes:
        for note in node.notes:
            notes.setdefault(note, []).append(node.name)
    for note, names in list(notes.items())[:_LISTED]:
        where = names[0] if len(names) == 1 else f"{len(names)} nodes"
        click.echo(f"  {where}: {note}", err=True)
