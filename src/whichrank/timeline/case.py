"""The case: all evidence of one run, lined up. Rules see this and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from whichrank.model.evidence import Source
from whichrank.records.dump import Dump
from whichrank.timeline.arrivals import Late, find_late
from whichrank.timeline.clocks import Clock, align
from whichrank.timeline.coords import coordinates
from whichrank.timeline.lineup import Lineup, line_up
from whichrank.timeline.meetings import Meetings, find_meetings
from whichrank.timeline.root import find_troubles
from whichrank.timeline.runs import choose_run
from whichrank.timeline.trouble import Trouble


@dataclass
class Case:
    """What rules judge. Parts are worked out when they are first asked for."""

    lineup: Lineup | None = None
    set_aside: list[Source] = field(default_factory=list)

    @cached_property
    def meetings(self) -> Meetings:
        return find_meetings(self.lineup) if self.lineup else Meetings()

    @cached_property
    def troubles(self) -> list[Trouble]:
        return find_troubles(self.lineup, self.meetings) if self.lineup else []

    @cached_property
    def late(self) -> Late | None:
        return find_late(self.lineup, self.clocks) if self.lineup else None

    @cached_property
    def clocks(self) -> dict[int, Clock]:
        return align(self.lineup) if self.lineup else {}

    @cached_property
    def coords(self) -> dict[int, dict[str, int]]:
        return coordinates(self.lineup.groups, self.lineup.world) if self.lineup else {}


def build_case(dumps: Sequence[Dump]) -> Case:
    """Choose the run, line up its dumps, and say which were left out."""
    run = choose_run(dumps)
    aside = [Source(d.source, "flight_recorder", "ignored", why) for d, why in run.aside]
    aside += [Source(d.source, "flight_recorder", "ignored", "nothing tells which rank this is") for d in run.unplaced]
    return Case(line_up(run.dumps, release=True), aside)
