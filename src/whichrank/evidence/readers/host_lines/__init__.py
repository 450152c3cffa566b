"""What single lines of any text say of hosts: their addresses and names, how right their clocks are, and whose lines
follow."""

from __future__ import annotations

from whichrank.evidence.readers.host_lines import addresses, sections, time_service
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading

NAME = "host_lines"
BESIDE = True


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning has such lines."""
    return is_text(head) and (addresses.fits(head, name) or time_service.fits(head) or sections.fits(head, name))


def read(item: Item) -> Reading:
    """`PortState`, `HostName`, `TimeService` and `HostSection`, with the host that the line, heading or file names."""
    head, name = item.head(), item.label.rpartition("/")[2]
    told = [*addresses.read(item)] if addresses.fits(head, name) else []
    clocks = [*time_service.read(item)] if time_service.fits(head) else []
    parts = [*sections.read(item)] if sections.fits(head, name) else []
    if not told and not clocks and not parts:
        return Reading([], "ignored", "nothing of a host in it")
    return Reading([*told, *clocks, *parts], "complete")
