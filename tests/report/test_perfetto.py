"""The trace of a diagnosis, by the rules of the trace event format."""

from __future__ import annotations

import json

from tests.conftest import ROOT
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.report import perfetto


def test_every_rank_has_its_collectives_and_waits_are_arrows():
    told = diagnose([ROOT / "examples" / "skipped_collective"], views=True)
    document = json.loads("".join(perfetto.render(told)))
    events = document["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {0: "rank 0", 1: "rank 1", 2: "rank 2 ← the verdict", 3: "rank 3"}
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["pid"] for e in slices} == {0, 1, 2, 3}
    assert all(e["ts"] >= 0 and e["dur"] >= 0 for e in slices)
    unfinished = {e["pid"]: e["name"] for e in slices if e["cat"] == "unfinished"}
    assert unfinished[2] == "all_gather 4"
    assert unfinished[0] == "all_reduce 5"
    starts = {e["id"]: e["pid"] for e in events if e["ph"] == "s"}
    ends = {e["id"]: e["pid"] for e in events if e["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert {(starts[i], ends[i]) for i in starts} >= {(0, 2), (1, 2), (3, 2)}
    for start in (e for e in events if e["ph"] in "sf"):  # an arrow binds to the slice around it
        around = [s for s in slices if (s["pid"], s["tid"]) == (start["pid"], start["tid"])]
        assert any(s["ts"] <= start["ts"] <= s["ts"] + s["dur"] for s in around)
    assert [e for e in events if e["ph"] == "i"]
