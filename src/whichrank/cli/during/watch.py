"""Show a running job: what every rank does, who is late, alarms, the last verdict."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table

    from whichrank.run.watch.rank_table import Row

WIDE, WIDER = 80, 100
"""Columns from which there is room for the place in the code, and for the process."""
FULL = ("rank", "doing", "step", "issued", "per s", "late s", "quiet s")
NARROW = ("rank", "doing", "step", "per s", "late s")


@click.command(name="watch")
@click.argument("out", type=click.Path(exists=True, file_okay=False, path_type=Path), required=False)
@click.option(
    "--interval", type=click.FloatRange(min=0.2), default=1.0, show_default=True, help="Seconds between looks."
)
@click.option("--once", is_flag=True, help="Look once and leave, as when the output is not a terminal.")
@click.option("--web", metavar="[ADDR:]PORT", default="", help="Show it as a live page in a browser (port 0: any).")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A private file with the token of the page (or set WHICHRANK_TOKEN); else a new one is made.",
)
def command(out: Path | None, interval: float, once: bool, web: str, token_file: Path | None) -> None:
    """Show the ranks of the job whose results go to OUT; without OUT, of the job that is watched on this host.

    Ctrl-C leaves the job alone. Jobs that `whichrank attach` watches are seen from outside.

    \b
    whichrank watch                       # in this terminal
    whichrank watch --web 8080            # in a browser: the address with its token is printed
    ssh -L 8080:localhost:8080 node7      # then open that address on your own machine
    """
    if web:
        _serve(out, web, token_file)
        return
    from rich.console import Console
    from rich.live import Live

    from whichrank.run.watch.find_jobs import the_results
    from whichrank.run.watch.rank_table import Pace, following, open_view, read_state, rows

    out = out or the_results()
    job_processes, pace = open_view(out), Pace(out)
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal or os.environ.get("COLUMNS") else 140)
    try:
        rows(job_processes, pace)
        time.sleep(interval)
        if once or not terminal:
            console.print(_view(rows(job_processes, pace), out, console))
            return
        with Live(console=console, auto_refresh=False) as live:
            while (now := following(job_processes, out)) is not None:
                job_processes = now
                live.update(_view(rows(job_processes, pace), out, console), refresh=True)
                time.sleep(interval)
    except KeyboardInterrupt:
        return
    code = read_state(out).get("exit_code")
    console.print("the job has ended" + (f" with code {code}" if code is not None else ""), highlight=False)


def _serve(out: Path | None, web: str, token_file: Path | None) -> None:
    """The page until the job has ended, or Ctrl-C."""
    from whichrank.run.watch.find_jobs import the_results
    from whichrank.run.web.live import Onlooker, server

    onlooker = Onlooker(out or the_results())
    served = server(web, token_file, onlooker.event)
    served.start()
    click.echo(f"the job as a page: {served.url}\nCtrl-C ends the page, not the job.")
    try:
        while not onlooker.ended():
            time.sleep(1.0)
        click.echo("the job has ended")
    except KeyboardInterrupt:
        return
    finally:
        served.close()


def _view(rows: list[Row], out: Path, console: Console) -> Group:
    from rich.console import Group
    from rich.text import Text

    from whichrank.run.watch.rank_table import last_verdict, read_state

    state = read_state(out)
    told = [_head(rows, state), *_alarms(state, console.height // 4), *_slow(state)]
    verdict = last_verdict(out)
    told += [f"last verdict: {verdict}"] if verdict else []
    room = max(4, console.height - len(told) - 4) if console.is_terminal else len(rows)
    # Where not all fit, those are shown that keep others waiting.
    shown = sorted(sorted(rows, key=lambda row: (-row.late_s, row.rank))[:room], key=lambda row: row.rank)
    more = [Text(f"… and {len(rows) - room} more ranks")] if len(rows) > room else []
    return Group(Text(told[0]), _table(shown, console.width), *more, *(Text(line) for line in told[1:]))


def _head(rows: list[Row], state: dict[str, object]) -> str:
    """The job in one line."""
    issued, steps = _middle([row.rate for row in rows]), _middle([row.step_rate for row in rows])
    rate = f"{_figure(issued)} collectives per second" if issued is not None else "no rate yet"
    rate = f"{_figure(steps)} steps, {rate}" if steps is not None else rate
    world = state.get("world_size")
    some = f"{len(rows)} of {world} ranks" if isinstance(world, int) and world > len(rows) else f"{len(rows)} ranks"
    parts = [str(state.get("state", "unknown")), some, rate]
    attempts = state.get("attempts")
    parts += [f"attempt {attempts}"] if isinstance(attempts, int) and attempts > 1 else []
    return " · ".join(parts)


def _slow(state: dict[str, object]) -> list[str]:
    """Ranks that held the others up, and data that all waited for."""
    found, waits = state.get("stragglers"), state.get("waits_for_data")
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    told = [
        f"slow: rank {row.get('rank')} holds the others up, mostly at {row.get('place') or 'an unknown place'}"
        for row in rows[:4]
    ]
    if isinstance(waits, dict):
        told.append(f"slow: all ranks wait for data, mostly at {waits.get('place') or 'an unknown place'}")
    return told


def _figure(rate: float) -> str:
    """Two digits at least: one step in three seconds is 0.33 and not 0.0."""
    return f"{rate:.1f}" if rate >= 10 or rate == 0 else f"{rate:.2f}"


def _middle(rates: list[float | None]) -> float | None:
    known = sorted(rate for rate in rates if rate is not None)
    return known[len(known) // 2] if known else None


def _table(rows: list[Row], width: int) -> Table:
    from rich.table import Table

    names = [*(FULL if width >= WIDE else NARROW), *(["pid"] if width >= WIDER else [])]
    lines = [_cells(row) for row in rows]
    taken = sum(2 + max([len(name), *(len(line[name]) for line in lines)]) for name in names if name != "doing")
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="left" if name == "doing" else "right", no_wrap=True)
    if width >= WIDE:
        table.add_column("at", no_wrap=True)
    # What is long shares the room that figures leave.
    room = max(12, width - taken)
    doing = min(room if width < WIDE else room // 2, max([len("doing"), *(len(line["doing"]) for line in lines)]))
    for row, line in zip(rows, lines, strict=True):
        cells = [_cut(line[name], doing) if name == "doing" else line[name] for name in names]
        cells += [_cut(row.place.rsplit("/", 1)[-1], max(4, room - doing - 2))] if width >= WIDE else []
        table.add_row(*cells, style="bold" if row.late_s else "")
    return table


def _cells(row: Row) -> dict[str, str]:
    return {
        "rank": str(row.rank),
        "doing": row.doing,
        "step": str(row.step or ""),
        "issued": str(row.issued or ""),
        "per s": "" if row.rate is None else _figure(row.rate),
        "late s": f"{row.late_s:.1f}" if row.late_s else "",
        "quiet s": f"{row.quiet_s:.1f}",
        "pid": str(row.pid),
    }


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: room - 1] + "…"


def _alarms(state: dict[str, object], most: int) -> list[str]:
    alarms = state.get("alarms")
    if not isinstance(alarms, list) or not alarms:
        return ["no alarm so far"]
    known = [alarm for alarm in alarms if isinstance(alarm, dict)][-max(1, min(5, most)) :]
    return [
        f"{alarm.get('time')}  {alarm.get('level')}: {alarm.get('why')}"
        + (" (withdrawn)" if alarm.get("withdrawn") else "")
        for alarm in known
    ]
