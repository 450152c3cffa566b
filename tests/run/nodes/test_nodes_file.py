"""What is kept of many nodes, and what is judged by it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from msgspec.structs import replace

from whichrank.evidence.bundle import Bundle
from whichrank.evidence.intake import claim
from whichrank.evidence.readers import nodes
from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.model.contracts import Item
from whichrank.model.errors import UnreadableError
from whichrank.model.evidence import Ref
from whichrank.model.findings import Finding, Grade
from whichrank.records.events.base import Event
from whichrank.records.events.communication import GlooTimeout
from whichrank.records.events.launchers import NodeSilent, ProcessExit
from whichrank.records.events.startup import GroupInit
from whichrank.records.host import HostClock
from whichrank.records.network import TcpSocket
from whichrank.rules.host_resources import host_lost
from whichrank.run.nodes import nodes_file
from whichrank.run.nodes.judgement import restored, shortened
from whichrank.run.nodes.nodes_file import Entry
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case
from whichrank.timeline.clocks.collectives import Clock
from whichrank.timeline.clocks.hosts import on_one_clock, refined

S = 10**9
SCHEMAS = Path(nodes.__file__).parent.parent.parent / "report" / "schemas"
NOW = 1_790_000_000 * S


def schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def item(path: Path) -> Item:
    return Item(path, path.name, path.stat().st_size, 0)


def written(folder: Path, *entries: Entry) -> Path:
    Bundle(folder / "nodes" / "a", "a").close()
    nodes_file.write(folder, "a", [Entry("a", "here", [0, 1], clock=(0.0, 0.0)), *entries], {"world_size": 4})
    return folder / nodes_file.NODES


def test_one_manifest_over_all_nodes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle = Bundle(tmp_path / "nodes" / name, name)
        bundle.add("dumps/rank_0", b"x", "flight recorder", rank=0)
        bundle.lacks("gpu state", "no GPU")
        bundle.close({"world_size": 2})
    gone = Entry("c", "silent", [4, 5], NOW, "no answer", missing="nothing is heard of it")
    nodes_file.write(
        tmp_path, "a", [Entry("a", "here"), Entry("b", "here", clock=(1.5, 0.01)), gone], {"world_size": 6}
    )
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    Draft202012Validator(schema("manifest")).validate(manifest)
    assert [file["path"] for file in manifest["files"]] == ["nodes/a/dumps/rank_0", "nodes/b/dumps/rank_0"]
    clocks = {host["name"]: (host["clock_offset_s"], host["offset_error_s"]) for host in manifest["hosts"]}
    assert clocks == {"a": (0.0, 0.0), "b": (1.5, 0.01)}
    assert {gap["host"] for gap in manifest["missing"]} == {"a", "b", "c"}


def test_a_silent_node_and_the_clocks_are_read(tmp_path: Path) -> None:
    silent = Entry("b", "silent", [2, 3], NOW, "no answer", clock=(-0.25, 0.001))
    path = written(tmp_path, silent, Entry("c", "left", [4]))
    reader = claim(item(path))
    assert reader is nodes or (reader is not None and reader.NAME == "nodes")
    records = nodes.read(item(path)).records
    events = [r for r in records if isinstance(r, Event)]
    assert [(e.kind, e.host, e.ranks, e.time_ns) for e in events] == [("node_silent", "b", (2, 3), NOW)]
    clocks = {r.host: (r.ahead_ns, r.error_ns) for r in records if isinstance(r, HostClock)}
    assert clocks == {"a": (0, 0), "b": (-S // 4, S // 1000)}


def test_a_folder_of_a_node_names_its_host() -> None:
    assert host_of_path("bundle/nodes/wr-a/host/kernel_log.txt") == "wr-a"
    assert host_of_path("nodes/rack1/node7/dmesg.txt") == "node7", "the innermost name counts"
    assert host_of_path("nodes/3/dmesg.txt") is None


# -- the rule


def silence(how: str = "no answer") -> Event:
    return NodeSilent(ref=Ref("nodes.json", "node 1", "nothing is heard of b"), time_ns=NOW, host="b", how=how,
                      ranks=(2, 3))  # fmt: skip


def waiting(*ranks: int) -> list[Event]:
    found = [
        GlooTimeout(ref=Ref("log", f"line {r}", "timed out"), time_ns=NOW + 20 * S, rank=r, host="a") for r in ranks
    ]
    return [*found, GroupInit(ref=Ref("log", "line 9", "joined"), time_ns=NOW - S, rank=0, host="a", size=4)]


def judged(case: Case) -> list[Finding]:
    found = host_lost.judge(case)
    assert isinstance(found, list)
    return found


def test_a_silent_node_that_others_wait_for_is_lost() -> None:
    (finding,) = judged(build_case([silence(), *waiting(0, 1)]))
    assert (finding.cause, finding.subject.hosts, finding.subject.ranks) == ("host-lost", ("b",), (2, 3))
    assert finding.victims == (0, 1)
    (coarse,) = judged(build_case([silence("not renewed"), *waiting(0, 1)]))
    assert coarse.grade < finding.grade


def test_a_silent_node_of_a_job_that_goes_on_is_not_lost() -> None:
    joined = GroupInit(ref=Ref("log", "line 1", "joined"), time_ns=NOW, rank=0, host="a", size=4)
    assert judged(build_case([silence(), joined])) == []


def test_a_node_that_still_answers_the_ranks_is_not_lost() -> None:
    fresh = {"rto": 201.0, "lastsnd": 100.0, "lastack": 90.0, "bytes_acked": 10_000.0}
    socket = TcpSocket(Ref("sockets.rank_0.txt", "line 2", "ESTAB"), "ESTAB", "10.0.0.1", 40000, "10.0.0.2", 40001,
                       rank=0, values=fresh)  # fmt: skip
    assert judged(build_case([silence(), socket, *waiting(0, 1)])) == []
    stale = replace(socket, send_queue=500, values={**fresh, "lastack": 20_000.0, "unacked": 3.0, "backoff": 6.0})
    (finding,) = judged(build_case([silence(), stale, *waiting(0, 1)]))
    assert finding.grade is Grade.PROVES, "data to it is sent without an answer"


# -- clocks


def test_events_are_put_on_one_clock() -> None:
    early = ProcessExit(ref=Ref("a", "", "a"), time_ns=NOW, rank=0, host="a")
    late = ProcessExit(ref=Ref("b", "", "b"), time_ns=NOW + 3 * S, rank=2, host="b")
    clock = HostClock(Ref("nodes.json", "", ""), "b", 5 * S, S // 100)
    moved = on_one_clock([early, late, silence()], {"b": clock})
    assert [(e.host, e.time_ns) for e in moved] == [("b", NOW - 2 * S), ("a", NOW), ("b", NOW)]
    unsure = replace(clock, error_ns=6 * S)
    assert on_one_clock([early, late], {"b": unsure}) == [early, late]


def test_clocks_that_collectives_can_not_align_are_measured() -> None:
    clocks = {name: HostClock(Ref("n", "", ""), name, ahead, S // 1000) for name, ahead in (("a", 0), ("b", 2 * S))}
    hosts = {0: "a", 1: "a", 2: "b", 3: None}
    aligned = {0: Clock(0, 0), 1: Clock(5, 10), 2: Clock(0, None), 3: Clock(0, None)}
    assert refined(aligned, hosts, clocks) == {
        0: Clock(0, 0), 1: Clock(5, 10), 2: Clock(2 * S, S // 500), 3: Clock(0, None),
    }  # fmt: skip


def test_a_verdict_is_told_short(tmp_path: Path) -> None:
    from whichrank.flows.diagnose.pipeline import diagnose

    full = diagnose([Path(__file__).parents[3] / "examples" / "skipped_collective"], jobs=1)
    short = restored(shortened(full))
    assert (short.verdict.cause, short.verdict.culprits.ranks) == (full.verdict.cause, full.verdict.culprits.ranks)
    assert short.verdict.summary == full.verdict.summary
    assert short.ranks[0].at is not None
    assert short.ranks[0].at.seq == max(rank.at.seq for rank in full.ranks if rank.at is not None)


@pytest.mark.parametrize("rows", ["null", '[{"name": 1}]', '[{"name": "b", "state": "silent", "ranks": "x"}]', "[[]]"])
def test_odd_lists_of_nodes(tmp_path: Path, rows: str) -> None:
    path = tmp_path / "nodes.json"
    path.write_text('{"whichrank_nodes": 1, "nodes": ' + rows + "}")
    with contextlib.suppress(UnreadableError):
        assert all(isinstance(r, Event) for r in nodes.read(item(path)).records)
