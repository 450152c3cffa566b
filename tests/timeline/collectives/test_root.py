"""From troubled meetings to what is wrong."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.timeline.by_hand import MILLISECOND, Did, dump, lined_up, steps
from whichrank.records.dump import Dump
from whichrank.timeline.collectives.meetings import find_meetings
from whichrank.timeline.collectives.troubles.root import find_troubles
from whichrank.timeline.collectives.troubles.trouble import Trouble

WORLD = {"0": (0, 1, 2)}


def troubles(*dumps: Dump) -> list[Trouble]:
    lineup = lined_up(*dumps)
    return find_troubles(lineup, find_meetings(lineup))


def written(made: Dump, after_ms: float) -> Dump:
    made.mtime_ns = made.newest_ns + int(after_ms * MILLISECOND)
    return made


@pytest.mark.parametrize(("after_ms", "hangs"), [(5, False), (400, False), (30_000, True)])
def test_how_long_an_operation_may_be_open(after_ms: float, hangs: bool) -> None:
    """The job's operations take a millisecond: half a second is no standstill, half a minute is."""
    ranks = [steps(40, open_last=True), steps(39), steps(40, open_last=True)]
    dumps = [written(dump(rank, WORLD, entries), after_ms) for rank, entries in enumerate(ranks)]
    assert [trouble.ranks for trouble in troubles(*dumps)] == ([(1,)] if hangs else [])


def test_where_operations_take_long_patience_is_longer() -> None:
    slow = [replace(did, at_ms=4000.0 * n, took_ms=3900.0) for n, did in enumerate(steps(40, open_last=True))]
    dumps = [written(dump(rank, WORLD, slow[: 39 + rank % 2]), 6000) for rank in range(3)]
    assert troubles(*dumps) == []


def test_without_a_believable_file_time_an_open_operation_counts() -> None:
    ranks = [steps(40, open_last=True), steps(39), steps(40, open_last=True)]
    dumps = [dump(rank, WORLD, entries) for rank, entries in enumerate(ranks)]
    assert [trouble.shape for trouble in troubles(*dumps)] == ["stopped"]


def test_two_operations_queued_in_opposite_order() -> None:
    """All hosts ran ahead; the GPUs hold one group's operation each and wait for the other's."""
    groups = {"0": (0, 1, 2), "1": (0, 1, 2)}
    one, two = Did("0", "all_reduce", 9, done=False), Did("1", "all_gather", 5, done=False)
    past = [Did("0", "all_reduce", n + 1) for n in range(8)] + [Did("1", "all_gather", n + 1) for n in range(4)]
    dumps = [dump(rank, groups, [*past, *((two, one) if rank == 1 else (one, two))]) for rank in range(3)]
    (trouble,) = troubles(*dumps)
    assert (trouble.shape, trouble.ranks, trouble.tie) == ("crossed", (1,), False)
    assert {rank for rank, _, _ in trouble.cycle} == {0, 1, 2}


def test_two_that_wait_for_each_other_hold_up_a_third_and_a_collective() -> None:
    """Ranks 1 and 2 both receive first; rank 3's message and the all_reduce are queued behind."""
    groups = {"0": (0, 1, 2, 3)}
    queued = {
        0: [],
        1: ["recv 1<-2", "send 1->2"],
        2: ["recv 2<-1", "send 2->1", "recv 2<-3", "send 2->3"],
        3: ["send 3->2", "recv 3<-2"],
    }
    dumps = []
    for rank, messages in queued.items():
        past = [Did("0", "all_reduce", n + 1) for n in range(8)]
        posted = [Did("0", name, 8, done=name == "send 3->2", line=20) for name in messages]
        last = [] if rank == 3 else [Did("0", "all_reduce", 9, done=False)]  # its host waits for what it receives
        dumps.append(dump(rank, groups, [*past, *posted, *last]))
    (trouble,) = troubles(*dumps)
    assert (trouble.shape, trouble.ranks) == ("p2p-cycle", (1, 2))


def test_a_gpu_that_never_began() -> None:
    begun = Did("0", "all_reduce", 9, done=False, started=True)
    dumps = [dump(rank, WORLD, [*steps(8), replace(begun, started=rank != 2)]) for rank in range(3)]
    (trouble,) = troubles(*dumps)
    assert (trouble.shape, trouble.ranks) == ("not-started", (2,))


def test_two_independent_faults_are_two_troubles() -> None:
    """A silent mismatch early on, and a standstill at the end."""
    odd = steps(12, open_last=True)
    odd[3] = replace(odd[3], dtype="Half")
    dumps = [dump(0, WORLD, odd), dump(1, WORLD, steps(11)), dump(2, WORLD, steps(12, open_last=True))]
    found = [(trouble.shape, trouble.ranks, trouble.hangs) for trouble in troubles(*dumps)]
    assert found == [("stopped", (1,), True), ("dtype", (0,), False)]


def test_nothing_wrong_is_nothing() -> None:
    assert troubles(*(dump(rank, WORLD, steps(8)) for rank in range(3))) == []


def crossed(first: int, *, elsewhere: int = 48) -> list[Dump]:
    """Four ranks in two pairs queue an operation of all and one of their pair; the first one in the other order."""
    made = []
    for rank in range(4):
        pair = "1" if rank < 2 else "2"
        groups: dict[str, tuple[int, ...] | None] = {"0": (0, 1, 2, 3), pair: (0, 1) if rank < 2 else (2, 3)}
        before = [Did(pair, "all_reduce", n, numel=64) for n in range(1, 20)]
        size = 48 if rank < 2 else elsewhere
        of_all = Did("0", "all_reduce", 1, done=False, started=rank == first, numel=24, line=31)
        of_pair = Did(pair, "all_reduce", 20, done=rank > 1, started=True, numel=size, line=27)
        both = [of_all, of_pair] if rank == first else [of_pair, of_all]
        made.append(written(dump(rank, groups, [*before, *both]), 30_000))
    return made


@pytest.mark.parametrize("first", [0, 1])
def test_of_a_pair_the_other_pairs_tell_who_took_the_wrong_order(first: int) -> None:
    (trouble,) = troubles(*crossed(first))
    assert (trouble.shape, trouble.ranks) == ("crossed", (first,))


def test_other_operations_of_other_pairs_tell_nothing() -> None:
    (trouble,) = troubles(*crossed(0, elsewhere=96))
    assert (trouble.shape, trouble.ranks) == ("crossed", (0, 1))


def ring(count: int, *, wrong: bool) -> list[Dump]:
    """Every rank shares a pair with either neighbour; all queue both pairs' operations, in one order or in a ring."""
    made = []
    pairs = {str(n + 1): tuple(sorted((n, (n + 1) % count))) for n in range(count)}
    for rank in range(count):
        mine = sorted((name for name, members in pairs.items() if rank in members), key=int)
        after = str(rank + 1)
        order = [after, next(name for name in mine if name != after)] if wrong else mine
        before = [Did(name, "all_reduce", n) for n in range(1, 20) for name in mine]
        last = [Did(name, "all_reduce", 20, done=False) for name in order]
        groups: dict[str, tuple[int, ...] | None] = {"0": tuple(range(count)), **{name: pairs[name] for name in mine}}
        made.append(written(dump(rank, groups, [*before, *last]), 30_000))
    return made


@pytest.mark.parametrize("count", [3, 4, 6])
def test_pairs_that_are_queued_in_a_ring(count: int) -> None:
    (trouble,) = troubles(*ring(count, wrong=True))
    assert (trouble.shape, trouble.ranks, trouble.tie) == ("crossed", tuple(range(count)), True)
    assert [t.shape for t in troubles(*ring(count, wrong=False))] == ["stalled"]


def trials(went_on: int, *, others: int) -> list[Dump]:
    """Three pairs train apart and meet at the end; of the second pair one has gone on to the meeting."""
    made = []
    for rank in range(6):
        pair = str(rank // 2 + 1)
        groups: dict[str, tuple[int, ...] | None] = {"0": tuple(range(6)), pair: (rank // 2 * 2, rank // 2 * 2 + 1)}
        rounds = others if pair != "2" else 12
        steps = [Did(pair, "all_reduce", n, line=20) for n in range(1, rounds + 1)]
        stays = rank in (2, 3) and rank != went_on
        last = Did(pair, "all_reduce", 13, done=False, line=20) if stays else Did("0", "all_gather", 1, done=False)
        made.append(written(dump(rank, groups, [*steps, replace(last, line=last.line if stays else 40)]), 30_000))
    return made


def test_who_leaves_its_pair_before_the_rounds_that_other_pairs_made() -> None:
    (trouble,) = troubles(*trials(3, others=30))
    assert trouble.ranks == (3,)
    (trouble,) = troubles(*trials(3, others=12))  # the others made no more rounds either: rank 2 goes too far
    assert trouble.ranks == (2,)


@pytest.mark.parametrize(("rounds", "ranks"), [(4, (1,)), (2, (0, 1))])
def test_who_left_the_order_of_all_earlier_rounds_crossed(rounds: int, ranks: tuple[int, ...]) -> None:
    groups = {"0": (0, 1), "7": (0, 1)}
    before = [Did(group, "all_reduce", n + 1) for n in range(rounds) for group in ("7", "0")]
    last = [Did(group, "all_reduce", rounds + 1, done=False) for group in ("7", "0")]
    (trouble,) = troubles(dump(0, groups, [*before, *last]), dump(1, groups, [*before, *last[::-1]]))
    assert (trouble.shape, trouble.ranks) == ("crossed", ranks)
