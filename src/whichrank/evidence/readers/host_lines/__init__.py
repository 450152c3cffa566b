"""What single lines of any text say of hosts: their addresses and names, how right their clocks are, how much memory
they let lock, which pods they run, how many lanes of PCIe their GPUs have, and whose lines follow."""

from __future__ import annotations

from whichrank.evidence.readers.host_lines import addresses, gpu_links, limits, pods, sections, time_service
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading

NAME = "host_lines"
BESIDE = True


def sniff(head: bytes, name: str) -> bool:
    """Whether the beginning has such lines."""
    if not is_text(head):
        return False
    kinds = (time_service, limits, pods, gpu_links)
    return addresses.fits(head, name) or any(kind.fits(head) for kind in kinds) or sections.fits(head, name)


def read(item: Item) -> Reading:
    """`PortState`, `HostName`, `TimeService`, `HostState`, `PodPlace`, `GpuState` and `HostSection`, each with the host
    that the line, the heading or the file names."""
    head, name = item.head(), item.label.rpartition("/")[2]
    told = [*addresses.read(item)] if addresses.fits(head, name) else []
    clocks = [*time_service.read(item)] if time_service.fits(head) else []
    rows = [*limits.read(item)] if limits.fits(head) else []
    parts = [*sections.read(item)] if sections.fits(head, name) else []
    placed = [*pods.read(item)] if pods.fits(head) else []
    links = [*gpu_links.read(item)] if gpu_links.fits(head) else []
    found = [*told, *clocks, *rows, *parts, *placed, *links]
    if not found:
        return Reading([], "ignored", "nothing of a host in it")
    return Reading(found, "complete")
