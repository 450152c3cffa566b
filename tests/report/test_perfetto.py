"""The trace of a diagnosis, by the rules of the trace event format."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

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


PROCESSOR = shutil.which("trace_processor_shell") or shutil.which("trace_processor")


@pytest.mark.skipif(
    not PROCESSOR,
    reason="needs Perfetto's trace_processor: neither Debian nor PyPI has it",
)
def test_trace_processor_opens_it(tmp_path):
    """Perfetto's own reader: ranks as processes, collectives as slices, waits as flows, nothing that it refuses."""
    told = diagnose([ROOT / "examples" / "skipped_collective"], views=True)
    trace, query = tmp_path / "trace.json", tmp_path / "query.sql"
    trace.write_text("".join(perfetto.render(told)))
    query.write_text("""
        SELECT
          (SELECT count(DISTINCT upid) FROM process WHERE name LIKE '%rank%') AS ranks,
          (SELECT count(*) FROM slice WHERE name LIKE '%all_reduce%') AS collectives,
          (SELECT count(*) FROM flow) AS flows,
          (SELECT ifnull(sum(value), 0) FROM stats WHERE severity = 'error') AS errors;
    """)
    done = subprocess.run([PROCESSOR, "-q", query, trace], capture_output=True, text=True, check=True, timeout=120)
    ranks, collectives, flows, errors = map(int, done.stdout.strip().splitlines()[-1].split(","))
    assert (ranks, errors) == (4, 0)
    assert collectives > 4
    assert flows > 0
