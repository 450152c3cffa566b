"""Look at a watched job while it runs: what every rank does, who is late, alarms."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

    from whichrank.run.view import Row


@click.command(name="watch")
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Look once and leave.")
def command(out: Path, interval: float, once: bool) -> None:
    """Show the ranks of the job that `whichrank run --out OUT` started."""
    from rich.console import Console, Group
    from rich.live import Live

    from whichrank.run.view import open_view, read_state, rows

    crew, private = open_view(out)
    before: dict[int, int] = {}
    console = Console(width=None if sys.stdout.isatty() else 140)
    if once:
        rows(crew, before, 0.0)
        time.sleep(interval)
        console.print(_table(rows(crew, before, interval)))
        console.print(_alarms(read_state(out)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while private.is_dir():
            live.update(Group(_table(rows(crew, before, interval)), _alarms(read_state(out))), refresh=True)
            time.sleep(interval)


def _table(rows: list[Row]) -> Table:
    from rich.table import Table

    table = Table("rank", "pid", "doing", "issued", "per second", "behind", "quiet s", "at", box=None)
    for row in rows:
        rate = "" if row.rate is None else f"{row.rate:.1f}"
        place = row.place.rsplit("/", 1)[-1]
        table.add_row(
            str(row.rank), str(row.pid), row.doing, str(row.issued), rate, str(row.behind), f"{row.quiet_s:.1f}", place
        )
    return table


def _alarms(state: dict[str, object]) -> str:
    alarms = state.get("alarms")
    if not isinstance(alarms, list) or not alarms:
        return "no alarm so far"
    shown = [f"{a.get('time')}  {a.get('level')}: {a.get('why')}" for a in alarms[-5:] if isinstance(a, dict)]
    return "\n".join(shown)
