"""The page beside a watched job (`run --web`), and the page of a job that somebody else watches (`watch --web`)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from whichrank import __version__
from whichrank.model.errors import WhichrankError
from whichrank.report.html.page import asset
from whichrank.run.monitoring.exporter import address
from whichrank.run.monitoring.observers import Silent
from whichrank.run.token import load_token
from whichrank.run.watch.alarm import Level
from whichrank.run.watch.job_processes import JobProcesses, Member
from whichrank.run.watch.rank_table import Pace, following, open_view, rows, rows_of
from whichrank.run.web.page_state import State
from whichrank.run.web.server import Server

HERE = Path(__file__).parent


def page() -> str:
    """The whole page: nothing else is ever loaded but the events."""
    text = (HERE / "live.html").read_text(encoding="utf-8")
    for mark, name in (("/*live.css*/", "live.css"), ("/*live.js*/", "live.js")):
        text = text.replace(mark, (HERE / name).read_text(encoding="utf-8"))
    return text.replace("/*style.css*/", asset("style.css")).replace("{version}", __version__)


def server(web: str, token_file: Path | None, event: Callable[[], str]) -> Server:
    """Bound to its address, with a token of its own unless one is given."""
    return Server(address(web), page(), event, load_token(token_file) or secrets.token_urlsafe(18))


@dataclass(slots=True)
class LivePage(Silent):
    """Hears what the watcher sees, on a leader that is every node's ranks, and shows it to whoever looks."""

    web: str
    token_file: Path | None
    job: str
    server: Server = field(init=False)
    _out: Path = field(default_factory=Path)
    _state: State | None = None
    _pace: Pace | None = None
    _ranks: Sequence[Member] = ()
    _level: str = ""
    _ended: bool = False
    _onlooker: Onlooker | None = None

    def __post_init__(self) -> None:
        self.server = server(self.web, self.token_file, self.event)

    def begin(self, out: Path) -> None:
        self._out, self._state, self._pace, self._onlooker = out, State(out, self.job), Pace(out), None

    def on_look(self, now_s: float, level: Level, ranks: Sequence[Member]) -> None:  # noqa: ARG002 - an observer's
        self._ranks, self._level = tuple(ranks), level

    def event(self) -> str:
        """The newest state; called from the server's thread while somebody looks."""
        if self._state is None or self._pace is None:
            return '{"state":"starting","rows":[],"groups":[],"alarms":[],"slow":[],"tiles":"","verdict":null}'
        if not self._ranks and not self._ended:
            return self._own_ranks(self._state)
        nodes = {member.rank: str(getattr(member, "node", "")) for member in self._ranks}
        hosts = {rank: node or "this node" for rank, node in nodes.items()} if any(nodes.values()) else {}
        told = "ended" if self._ended else "" if self._level in ("", "calm") else self._level
        return self._state.document(rows_of(self._ranks, self._pace, time.time_ns()), hosts, told)

    def _own_ranks(self, state: State) -> str:
        """On a node that does not judge, the watcher tells nothing: its own ranks are looked at from here."""
        try:
            self._onlooker = self._onlooker or Onlooker(self._out)
            return self._onlooker.event()
        except WhichrankError:  # not yet begun
            return state.document([])

    def close(self) -> None:
        self._ended = True
        self.server.close()


@dataclass(slots=True)
class Onlooker:
    """Looks at a job that is watched already; each look is one for all who have the page open."""

    out: Path
    _job_processes: JobProcesses = field(init=False)
    _pace: Pace = field(init=False)
    _state: State = field(init=False)
    over: bool = False

    def __post_init__(self) -> None:
        self._job_processes, self._pace, self._state = open_view(self.out), Pace(self.out), State(self.out)

    def event(self) -> str:
        now = following(self._job_processes, self.out) if not self.over else None
        if now is None:
            self.over = True
            return self._state.document([], None, "ended")
        self._job_processes = now
        return self._state.document(rows(self._job_processes, self._pace))

    def ended(self) -> bool:
        """Whether the job is over; asked now and then while nobody looks."""
        self.over = self.over or self._state.ended
        return self.over
