"""What single lines of any text say of hosts: their addresses and names, and how right their clocks are."""

from __future__ import annotations

from whichrank.evidence.readers.host_lines import addresses, time_service
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading

NAME = "host_lines"
BESIDE = True


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning has such lines."""
    return is_text(head) and (addresses.fits(head, name) or time_service.fits(head))


def read(item: Item) -> Reading:
    """`PortState`, `HostName` and `TimeService`, each with the host that the line, a heading or the file names."""
    head, name = item.head(), item.label.rpartition("/")[2]
    told = [*addresses.read(item)] if addresses.fits(head, name) else []
    clocks = [*time_service.read(item)] if time_service.fits(head) else []
    if not told and not clocks:
        return Reading([], "ignored", "nothing of a host in it")
    return Reading([*told, *clocks], "complete")
