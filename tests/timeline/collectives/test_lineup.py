"""One table of all ranks."""

from __future__ import annotations

from tests.timeline.by_hand import Did, dump, lined_up, steps
from whichrank.records.dump import GroupStatus
from whichrank.timeline.collectives.lineup import line_up

WORLD = {"0": (0, 1, 2)}


def test_rows_are_by_rank_and_order_of_issue() -> None:
    lineup = lined_up(dump(2, WORLD, steps(3)), dump(0, WORLD, steps(2)))
    assert lineup.dumped == [0, 2]
    assert lineup.world == 3
    assert lineup.rank.tolist() == [0, 0, 2, 2, 2]
    assert list(lineup.rows(2)) == [2, 3, 4]
    assert list(lineup.rows(1)) == []
    assert lineup.seq[lineup.rows(2)].tolist() == [1, 2, 3]


def test_two_recorders_are_merged_by_time() -> None:
    gpu = dump(0, WORLD, [Did("0", "all_reduce", n + 1, at_ms=10 * n) for n in range(3)])
    cpu = dump(0, {"9": None}, [Did("9", "barrier", n + 1, at_ms=10 * n + 5) for n in range(3)], backend="gloo")
    lineup = lined_up(gpu, cpu)
    assert lineup.source.tolist() == [0, 1, 0, 1, 0, 1]
    assert (lineup.created[1:] > lineup.created[:-1]).all()


def test_gloo_is_done_when_retired_and_nccl_is_not() -> None:
    entries = [Did("0", "all_reduce", 1), Did("0", "all_reduce", 2, done=False)]
    assert lined_up(dump(0, WORLD, entries, backend="gloo")).done.tolist() == [True, False]
    timed_out = dump(0, WORLD, entries)
    timed_out.retired[:] = True
    lineup = lined_up(timed_out)
    assert lineup.done.tolist() == [True, False]
    assert lineup.aborted.tolist() == [False, True]


def test_a_call_that_has_not_returned_is_open_whatever_the_dump_stamped() -> None:
    made = dump(0, WORLD, steps(3))
    made.retired[:] = [True, True, False]
    made.status[made.groups[0].pg_id] = GroupStatus(enqueued=2, started=-1, completed=2)
    assert lined_up(made).done.tolist() == [True, True, False]
    made.retired[2] = True
    assert lined_up(made).done.tolist() == [True, True, True], "the watchdog has seen its end"


def test_columns_can_be_let_go_on_the_way() -> None:
    made = dump(0, WORLD, steps(5))
    lineup = line_up([made], release=True)
    assert lineup is not None
    assert len(lineup) == 5
    assert len(made) == 0
    assert made.source == "trace_0"


def test_dumps_without_entries_make_no_table() -> None:
    assert line_up([dump(0, WORLD, [])]) is None
    assert line_up([]) is None
