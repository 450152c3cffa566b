"""Transfers over RDMA that nobody acknowledged: whether the path ever worked, and what kind of path it is."""

from __future__ import annotations

import re
from typing import Literal

from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.known_messages import Seen

Reading = Literal["link", "gid", "rail", "partition"]

_V4 = re.compile(r"::ffff:(\d{1,3}\.\d{1,3}\.\d{1,3})\.\d{1,3}", re.IGNORECASE)


def unanswered(case: Case) -> tuple[list[Seen], Reading]:
    """Completions with status 12, and what they speak of.

    In a run that had made steps the path had worked: the link went down. Before the first step the path never existed:
    by the addresses it crosses rails, on RoCE the GID is the first suspect, on InfiniBand the partition. RoCE is known
    by the addresses, by NCCL's list of devices, or by the link layer of the ports where NCCL lists none.
    """
    found = [s for s in known_messages.seen(case, "nccl-ib-status-12") if s.sign.rank is None or not _went_on(case, s)]
    if known_messages.has_run(case):
        return found, "link"
    if any(_crosses(s) for s in found):
        return found, "rail"
    listed = [device for process in case.nccl for device in process.ib_devices]
    roce = any(_V4.match(s.group("local_gid")) for s in found) or any(device.endswith("RoCE") for device in listed)
    return found, "gid" if roce or (not listed and _all_ethernet(case)) else "partition"


def of_chosen_gid(case: Case) -> list[Seen]:
    """Connections that found nobody behind an address of RoCE whose index the job chose itself."""
    chosen = any("NCCL_IB_GID_INDEX" in process.env for process in case.nccl)
    roce = any(device.endswith("RoCE") for process in case.nccl for device in process.ib_devices)
    return known_messages.seen(case, "nccl-ib-modify-qp-timeout") if chosen and roce else []


def _all_ethernet(case: Case) -> bool:
    """Whether every port of an adapter that is known to be up, if any is, speaks Ethernet."""
    adapters = [port for port in case.hardware.ports if port.port is not None and port.state != "DOWN"]
    return {port.layer for port in adapters if port.layer} == {"Ethernet"}


def _went_on(case: Case, s: Seen) -> bool:
    return s not in known_messages.of_cause(case, s.signature.cause)


def _crosses(s: Seen) -> bool:
    """Whether the two ends are RoCE addresses of different networks."""
    mine, theirs = _V4.match(s.group("local_gid")), _V4.match(s.group("remote_gid"))
    return mine is not None and theirs is not None and mine[1] != theirs[1]
