"""Rows of a check that name both hosts, and how many packets of a size came back."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

from whichrank.evidence.readers import pings
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item

HOSTS = ("gx01", "gx02", "gx03")


def rows(bad: str) -> str:
    return "".join(
        f"preflight {one}->{two}  ssh ok  icmp 56B 3/3 0.083ms  icmp 8972B DF {0 if bad in (one, two) else 3}/3  disk 52%\n"
        for one in HOSTS
        for two in HOSTS
        if one != two
    )


def test_both_sizes_of_a_row_are_read(tmp_path):
    path = tmp_path / "check.txt"
    path.write_text(rows("gx03"))
    found = pings.read(Item(path, "check.txt", path.stat().st_size, 0)).records
    assert [(p.host, p.target, p.size, p.received, p.sent) for p in found[2:4]] == [
        ("gx01", "gx03", 56, 3, 3),
        ("gx01", "gx03", 8972, 0, 3),
    ]


def test_the_host_at_one_end_of_all_that_are_lost(tmp_path):
    (tmp_path / "check.txt").write_text(rows("gx03"))
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.hosts) == ("mtu-mismatch", ("gx03",))


def test_rows_of_tasks_are_no_pings():
    assert not pings.sniff(b"stage1 -> stage2 done 3/3\nloader -> trainer 56B 3/3\n", "a.log")
