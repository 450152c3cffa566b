"""What happened when and where: kernels and the job on one clock, ranks that say the same told once."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.moments import rfc3339_ns
from whichrank.model.views import Moment
from whichrank.report.html.events_over_hosts import events_over_hosts

KERNEL = """\
2026-02-27T03:00:00,000000+00:00 mlx5_core 0000:3b:00.0 ens3f0np0: Link down
2026-03-01T10:14:02,118000+00:00 mlx5_core 0000:3b:00.0 ens3f0np0: Link down
2026-03-01T10:16:31,002000+00:00 NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, name=python3, GPU has fallen off the bus.
"""
TIMED_OUT = (
    "[rank{0}]:[E0301 10:26:3{0}.118092703 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=16, NumelOut=16, Timeout(ms)=600000) ran for "
    "600029 milliseconds before timing out.\n"
)


def found(folder: Path) -> tuple[list[tuple[str, str, tuple[int, ...], str]], str]:
    (folder / "node3.dmesg").write_text(KERNEL)
    (folder / "train.log").write_text("".join(TIMED_OUT.format(rank) for rank in (3, 1, 2)))
    told = diagnose([folder], views=True)
    rows = [((rfc3339_ns(one.time_ns) or "")[5:19], one.host, one.ranks, one.what) for one in told.moments]
    return rows, events_over_hosts(told)


def test_kernel_and_job_are_on_one_clock(tmp_path: Path) -> None:
    rows, page = found(tmp_path)
    assert rows == [
        ("03-01T10:14:02", "node3", (), "link down"),
        ("03-01T10:16:31", "node3", (), "Xid 79"),
        ("03-01T10:26:31", "", (1, 2, 3), "collective timed out"),
    ], "days before the failure is another story; the timeout is that of the first rank"
    assert "3 events within 12 min 29 s." in page
    assert "+2 min 29 s" in page


def test_one_event_is_no_timeline(tmp_path: Path) -> None:
    (tmp_path / "node3.dmesg").write_text(KERNEL.splitlines()[2] + "\n")
    told = diagnose([tmp_path], views=True)
    assert [type(one) for one in told.moments] == [Moment]
    assert events_over_hosts(told) == ""
