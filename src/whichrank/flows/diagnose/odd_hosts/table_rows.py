"""The one row of a table of hosts that differs from all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from whichrank.facts.host_topics import cause_of
from whichrank.flows.diagnose.odd_hosts.differences import NUMBER
from whichrank.flows.diagnose.odd_hosts.tables import odd_cells
from whichrank.flows.diagnose.odd_hosts.texts import Text
from whichrank.model.evidence import Ref
from whichrank.records.second_looks import OddHost
from whichrank.timeline.identity.who import short_name


def in_tables(texts: Iterable[Text]) -> Iterator[OddHost]:
    """Cells of tables, of which the heading says what they are about."""
    for text in texts:
        for cell in odd_cells(text.lines):
            what = f"{cell.column} {cell.own}"
            cause = cause_of(cell.own, cell.usual, what)
            if cause is not None and not (cause == "slow-network" and _larger(cell.own, cell.usual)):
                host = short_name(cell.row.cells[0])
                ref = Ref(text.label, f"line {cell.row.line}", cell.row.text[:300], None, host)
                usual = Ref(text.label, f"line {cell.peer.line}", cell.peer.text[:300])
                yield OddHost(host, cause, ref, usual, cell.hosts, gpu=cell.gpu, what=what)


def _larger(own: str, usual: str) -> bool:
    """Whether it has more than the others, which slows nobody down."""
    mine, theirs = NUMBER.fullmatch(own), NUMBER.fullmatch(usual)
    return mine is not None and theirs is not None and float(mine[1]) > float(theirs[1])
