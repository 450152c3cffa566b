"""List the verdicts of past jobs, and what keeps coming back: hosts, GPUs, lines of code."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.terminal.output import write

if TYPE_CHECKING:
    from whichrank.flows.history.store import Entry


@click.command(name="history")
@click.option("--since", default="30d", show_default=True, help="How far back: a number and m, h, d or w.")
@click.option("--host", default="", help="Only verdicts that name this host.")
@click.option("--cause", default="", help="Only verdicts of this cause.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Verdicts to show.")
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
def command(since: str, host: str, cause: str, limit: int, format_: str, output: Path | None) -> None:
    """Show what `whichrank run` (and `diagnose --remember`) found in jobs of this user, the newest first.

    Causes that ended more than one job are listed at the end. WHICHRANK_HISTORY=off keeps no history; another
    value is the file to use.
    """
    from whichrank.flows.history.recurrence import as_document, look_up, seconds
    from whichrank.report._safe_json import safe_json

    entries = look_up(seconds(since), host=host, cause=cause)
    if format_ == "json":
        write([safe_json(json.dumps(as_document(entries), indent=2, ensure_ascii=False)) + "\n"], output)
    else:
        write(_text(entries, limit, since), output)


def _text(entries: Sequence[Entry], limit: int, since: str) -> Iterator[str]:
    from whichrank.flows.history.recurrence import as_document, short
    from whichrank.report._words import percent, safe

    if not entries:
        yield f"no verdict in the last {since}\n"
        return
    document = as_document(entries)
    for each in document["entries"][:limit]:
        yield f"{each['time']}  {safe(each['job'])}  {each['cause']}, {percent(each['confidence'])} sure\n"
        yield f"  {safe(each['summary'])}\n"
        yield f"  evidence: {safe(each['out'])}\n" if each["out"] else ""
    if len(entries) > limit:
        yield f"and {len(entries) - limit} more (--limit)\n"
    if document["repeats"]:
        yield f"\nAGAIN in the last {since}\n"
    for repeat in document["repeats"]:
        name = safe(short(repeat["name"]) if repeat["kind"] == "code" else repeat["name"])
        yield f"  {repeat['kind']} {name}: {repeat['count']} times ({', '.join(repeat['causes'])})\n"
