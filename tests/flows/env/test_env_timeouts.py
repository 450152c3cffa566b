"""Timeouts against the waits in real dumps, and against gaps that are told."""

from pathlib import Path

import numpy as np
import pytest

from whichrank.flows.env.lint import lint
from whichrank.flows.env.timeouts import given_gap, observed
from whichrank.model.errors import UsageError
from whichrank.records.dump import COMPLETED, SCHEDULED, Call, Dump, LocalGroup

SECOND = 1_000_000_000


def dump(rank, rows, *, timeout_s=600, group="0", newest_s=None):
    """Rows of (seq, enqueued at, ended at or None), in seconds."""
    call = Call("all_reduce", "nccl", (), (), (), (), (), "", False, timeout_s * 1000)
    made = Dump(f"fr_{rank}", rank, (2, 10), "", [LocalGroup(0, group, "", None)], [call], {}, True)
    made.record_id = np.arange(len(rows), dtype=np.int32)
    made.group = np.zeros(len(rows), np.int16)
    made.call = np.zeros(len(rows), np.int32)
    made.seq = np.array([seq for seq, _, _ in rows], np.int32)
    made.created_ns = np.array([int(start * SECOND) for _, start, _ in rows], np.int64)
    made.completed_ns = np.array([int((end or 0) * SECOND) for _, _, end in rows], np.int64)
    made.state = np.array([SCHEDULED if end is None else COMPLETED for _, _, end in rows], np.int8)
    made.retired = np.array([end is not None for _, _, end in rows], bool)
    made.newest_ns = int((newest_s or max(end or start for _, start, end in rows)) * SECOND)
    return made


def findings(dumps):
    return [f for f in lint([], waits=observed(dumps)).findings if f.code == "ENV118"]


def test_a_wait_that_came_close():
    slow = [dump(0, [(1, 0, 1), (2, 2, 420)]), dump(1, [(1, 0.5, 1), (2, 418, 420)])]
    found = findings(slow)
    assert len(found) == 1
    assert "418.0 s" in found[0].message
    assert "timedelta(seconds=840)" in found[0].fix[0]
    assert found[0].evidence[0].source == "fr_0"
    assert found[0].evidence[0].locator == "entry 1"


def test_raising_it_would_hide_the_fault():
    hung = [dump(0, [(1, 0, 2), (2, 3, None)], newest_s=603), dump(1, [(1, 1, 2)], newest_s=603)]
    found = findings(hung)
    assert [f.severity for f in found] == ["warning"]
    assert "only hide the fault" in found[0].message
    assert "diagnose" in found[0].fix[0]


def test_healthy_waits_are_clear():
    fine = [dump(0, [(1, 0, 2), (2, 3, 5)]), dump(1, [(1, 1, 2), (2, 4, 5)])]
    assert findings(fine) == []


def test_groups_that_do_not_inherit():
    found = findings([dump(0, [(1, 0, 1)], timeout_s=22), dump(0, [(1, 0, 1)], timeout_s=600, group="1")])
    assert [f.severity for f in found] == ["info"]
    assert "does not inherit" in found[0].message


def test_gaps_that_are_told():
    found = lint([], waits=[given_gap("checkpoint=15m", 600)]).findings
    assert "900.0 s" in found[0].message
    assert lint([], waits=[given_gap("step=2.5s", 600)]).findings == ()
    with pytest.raises(UsageError):
        given_gap("long", 600)


def test_a_real_hang_on_gloo(shared_cases: Path):
    from whichrank.flows.env.timeouts import read_dumps

    paths = sorted((shared_cases / "fr_gloo_skip_4rank").glob("fr_trace_rank_?"))
    waits = observed(read_dumps(paths))
    assert any(not wait.ended for wait in waits)
    assert all(wait.timeout_s for wait in waits)


@pytest.fixture
def shared_cases():
    import os

    folder = Path(os.environ.get("WHICHRANK_SHARED", Path(__file__).parents[4] / "shared")) / "cases"
    if not folder.is_dir():
        pytest.skip("the recorded cases are not here")
    return folder
