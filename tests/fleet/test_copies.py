"""N copies of one command: which of them stand for a host, and by which name."""

from __future__ import annotations

from whichrank.fleet import copies


def copy(host, network, address):
    return copies._Copy(host, network, address, None)


def test_hosts_by_their_names():
    told = copies._named([copy("node1", "boot1/1", "node1"), copy("node2", "boot2/1", "10.0.0.2")])
    assert list(told) == ["node1", "node2"]


def test_hosts_that_share_a_name_by_their_addresses():
    same = [copy("localhost", f"boot{n}/1", f"10.0.0.{n}") for n in (1, 2, 3)]
    assert list(copies._named([*same, copy("node4", "boot4/1", "10.0.0.4")])) == [
        "10.0.0.1", "10.0.0.2", "10.0.0.3", "node4",
    ]  # fmt: skip


def test_whereabouts_are_one_line_and_stay_the_same():
    assert copies._whereabouts() == copies._whereabouts()
    assert "\n" not in " ".join(copies._whereabouts())
