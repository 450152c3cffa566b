"""`trace --perfetto` opened by Perfetto's own trace_processor."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import ROOT
from tests.report.trace_processor import asked, opens
from whichrank.cli.main import run

SAMPLE = ROOT / "tests" / "samples" / "traces" / "gloo_data_4rank"
TRACKS = """
    SELECT p.name AS rank, t.name AS track, count(*) AS slices
    FROM slice s JOIN thread_track k ON s.track_id = k.id JOIN thread t USING (utid) JOIN process p USING (upid)
    GROUP BY 1, 2
"""


@opens
def test_every_slice_of_every_rank_arrives(tmp_path: Path) -> None:
    merged = tmp_path / "all.json"
    run(["trace", str(SAMPLE), "--perfetto", str(merged), "--quiet", "--output", str(tmp_path / "r.txt")])
    (tracks,) = asked(merged, TRACKS)
    written = merged.read_text().count('"ph":"X"')
    assert sum(row["slices"] for row in tracks) == written
    assert {row["rank"] for row in tracks} == {f"rank {rank}" for rank in range(4)}
    per_rank = [sum(row["rank"] == f"rank {rank}" for row in tracks) for rank in range(4)]
    assert len(set(per_rank)) == 1, "each rank has the same threads"
