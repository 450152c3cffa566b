"""Explain a rule, cause, variable, Xid, exit code or error message, offline."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from whichrank.cli.options.site_rules import rules_option
from whichrank.cli.terminal.output import write
from whichrank.cli.terminal.wrapping import wrapped

if TYPE_CHECKING:
    from whichrank.flows.explain import Reading

KNOWN, UNKNOWN = 0, 3


@click.command(name="explain", context_settings={"ignore_unknown_options": True})
@rules_option
@click.option("--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Write to this file instead of stdout.")
@click.argument("word", nargs=-1, required=True)
def command(word: tuple[str, ...], format_: str, output: Path | None) -> int:
    """Explain WORD…: a rule code, a cause, an environment variable, an Xid, an exit code, or a pasted message.

    An ambiguous word is explained in every sense, the most likely first. "-" reads the message from standard input.

    \b
    whichrank explain Xid 79
    whichrank explain NCCL_IB_TIMEOUT
    whichrank explain "Watchdog caught collective operation timeout"
    """
    from whichrank.flows.explain import as_document, explain, near
    from whichrank.report._safe_json import safe_json

    words = sys.stdin.read(1 << 16) if word == ("-",) else " ".join(word)
    readings = explain(words)
    if format_ == "json":
        write([safe_json(json.dumps(as_document(readings), indent=2, ensure_ascii=False)) + "\n"], output)
    else:
        write(_text(readings), output)
    if readings:
        return KNOWN
    close = near(words)
    hint = f" Near it: {', '.join(close)}." if close else ""
    click.echo(f"whichrank: nothing is known of '{words.strip()[:80]}'.{hint}", err=True)
    return UNKNOWN


def _text(readings: Sequence[Reading]) -> Iterator[str]:
    for number, reading in enumerate(readings):
        yield f"{'' if not number else chr(10)}{wrapped(reading.title)}\n"
        yield "".join(f"{wrapped(f'  {line}')}\n" if line else "\n" for line in reading.text.split("\n"))
        for step in reading.fix if reading.kind != "rule" else ():
            yield f"{wrapped(f'  Fix: {step}', 5)}\n"
        yield from (f"{wrapped(f'  Source: {source}', 8)}\n" for source in reading.sources)
