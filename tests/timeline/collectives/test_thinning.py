"""Dumps that lose what no verdict needs: the verdict stays the same, also where ranks disagree about what is gone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.evidence.readers.torchlike import entry, frames, torch_pickle
from whichrank.evidence.readers import flight_recorder
from whichrank.flows.diagnose import read_dumps
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item
from whichrank.timeline.collectives import thinning
from whichrank.timeline.collectives.lineup import DUMP_COLUMNS
from whichrank.timeline.collectives.thinning import Digest, Place, Thinner

RANKS, ENTRIES = 6, 1100
UNFINISHED = {
    "state": "scheduled",
    "retired": False,
    "time_discovered_started_ns": None,
    "time_discovered_completed_ns": None,
}


def write(folder: Path, rank: int, changes: dict[int, dict[str, object]], count: int = ENTRIES) -> None:
    """One rank of a job with a group of all; `changes` are those of single entries."""
    stacks = [frames(site) for site in range(4)]
    entries = []
    for n in range(count):
        site = n % 4
        more = {"pg_id": 0, "process_group": ("0", "default_pg"), "profiling_name": "nccl:all_reduce"}
        entries.append(entry(n, site, stacks[site], n + 1, **{**more, **changes.get(n, {})}))
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}}
    top = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": {}, "entries": entries}
    folder.mkdir(exist_ok=True)
    (folder / f"fr_{rank}").write_bytes(torch_pickle(top, [frame for stack in stacks for frame in stack]))


def write_pairs(folder: Path, rank: int, changes: dict[int, dict[str, object]]) -> None:
    """One rank of a job in which every fourth operation is one of two ranks; `changes` are those of its groups."""
    stacks = [frames(site) for site in range(4)]
    pair, entries = rank // 2, []
    name = str(pair + 1)
    for n in range(ENTRIES):
        site, paired = n % 4, n % 4 == 3
        group = (name, "dp") if paired else ("0", "default_pg")
        more = {"pg_id": int(paired), "process_group": group, "profiling_name": "nccl:all_reduce"}
        seq = n // 4 + 1 if paired else n - n // 4 + 1
        entries.append(entry(n, site, stacks[site], seq, **{**more, **(changes.get(seq, {}) if paired else {})}))
    config = {
        "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))},
        name: {"name": name, "desc": "dp", "ranks": str([2 * pair, 2 * pair + 1])},
    }
    top = {"version": "2.10", "pg_config": config, "comm_lib_version": "2.28.9", "pg_status": {}, "entries": entries}
    folder.mkdir(exist_ok=True)
    (folder / f"fr_{rank}").write_bytes(torch_pickle(top, [frame for stack in stacks for frame in stack]))


def hung(last: int = ENTRIES) -> dict[int, dict[str, object]]:
    return {n: dict(UNFINISHED) for n in range(last - 3, last)}


def other_size(n: int) -> dict[int, dict[str, object]]:
    return {n: {"input_sizes": [[777]], "output_sizes": [[777]]}}


def job(
    folder: Path, *, odd: dict[int, dict[int, dict[str, object]]] | None = None, stopped: int | None = None
) -> Path:
    for rank in range(RANKS):
        changes = {**(hung() if stopped is not None else {}), **(odd or {}).get(rank, {})}
        write(folder, rank, changes, ENTRIES - 3 if rank == stopped else ENTRIES)
    return folder


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[object, object]:
    """The verdict from all entries, and from those that are kept."""

    def answer():
        made = diagnose([folder])
        return made.verdict, made.findings, made.groups, [(r.rank, r.state, r.at) for r in made.ranks]

    everything = answer()
    monkeypatch.setattr(thinning, "ROOM", 1200)
    seen = []
    thin = Thinner.thin

    def noted(self, dump, places=()):
        thin(self, dump, places)
        seen.append((dump.left_out, len(places)))

    monkeypatch.setattr(Thinner, "thin", noted)
    monkeypatch.setattr(read_dumps, "LITTLE_BYTES", 0)
    kept = answer()
    assert len(seen) >= RANKS, "it was not asked"
    assert all(left_out > 200 for left_out, _ in seen)
    return everything, kept


@pytest.mark.usefixtures("native_decoder")
class TestVerdicts:
    def test_a_rank_that_stopped(self, tmp_path, monkeypatch):
        everything, kept = answers(job(tmp_path / "j", stopped=4), monkeypatch)
        assert everything == kept
        assert kept[0].culprits.ranks == (4,)

    def test_a_size_that_differed_long_ago(self, tmp_path, monkeypatch):
        everything, kept = answers(job(tmp_path / "j", odd={3: other_size(200)}), monkeypatch)
        assert everything == kept
        assert kept[0].culprits.ranks == (3,)

    def test_a_size_that_differed_long_ago_and_a_hang(self, tmp_path, monkeypatch):
        everything, kept = answers(job(tmp_path / "j", odd={3: other_size(200)}, stopped=1), monkeypatch)
        assert everything == kept

    def test_an_operation_that_one_rank_never_finished(self, tmp_path, monkeypatch):
        everything, kept = answers(job(tmp_path / "j", odd={2: {300: dict(UNFINISHED)}}), monkeypatch)
        assert everything == kept

    def test_groups_of_the_same_kind_still_decide_between_two_ranks(self, tmp_path, monkeypatch):
        """Nobody waits for one pair of ranks, which disagreed long ago: the other pairs tell who is odd."""
        stuck = {seq: dict(UNFINISHED) for seq in range(50, ENTRIES)}
        for rank in range(RANKS):
            odd = {50: {**UNFINISHED, **other_size(0)[0]}} if rank == 1 else {}
            write_pairs(tmp_path / "j", rank, {**(stuck if rank < 2 else {}), **odd})
        everything, kept = answers(tmp_path / "j", monkeypatch)
        assert everything == kept
        assert kept[0].culprits.ranks == (1,)

    def test_a_healthy_job(self, tmp_path, monkeypatch):
        everything, kept = answers(job(tmp_path / "j"), monkeypatch)
        assert everything == kept


@pytest.fixture
def native_decoder():
    from whichrank.evidence.pickle.native import library

    if library() is None:
        pytest.skip("the decoder in C was not built")


def read(folder: Path, rank: int):
    path = folder / f"fr_{rank}"
    return flight_recorder.read(Item(path, path.name, path.stat().st_size, 0)).records[0]


def test_what_is_kept(tmp_path):
    write(tmp_path, 0, {**hung(), 100: dict(UNFINISHED)})
    dump, thinner = read(tmp_path, 0), Thinner(500)
    thinner.thin(dump)
    assert dump.record_id.tolist() == [0, 100, *range(600, 1100)]
    assert dump.left_out == ENTRIES - 502
    assert not dump.capacity_wrapped
    (digest,) = thinner.digests[id(dump)].values()
    assert digest.seq.tolist() == [seq for seq in range(2, 601) if seq != 101]
    assert digest.unfinished == 101
    thinner.thin(again := read(tmp_path, 0), [Place(0, 501)])
    assert set(range(200, 600)) < set(again.record_id.tolist())


def test_ranks_of_one_program_share_what_is_left_of_the_rest(tmp_path):
    thinner, dumps = Thinner(500), []
    for rank in range(4):
        write(tmp_path, rank, {})
        dumps.append(read(tmp_path, rank))
        thinner.thin(dumps[-1])
    digests = [thinner.digests[id(dump)][0] for dump in dumps]
    assert len({(id(digest.seq), id(digest.names)) for digest in digests}) == 1
    assert thinning.disputed(dumps, thinner) == {}


def test_short_dumps_and_small_jobs_stay_as_they_are(tmp_path):
    write(tmp_path, 0, {}, 300)
    dump, thinner = read(tmp_path, 0), Thinner(500)
    thinner.thin(dump)
    assert (len(dump), dump.left_out, thinner.digests) == (300, 0, {})
    assert Thinner.for_dumps(1024) is None
    assert Thinner.for_dumps(16_384) == Thinner(416)


@pytest.mark.parametrize(
    ("one", "other", "at"),
    [
        ([(1, 7), (2, 7), (3, 7)], [(1, 7), (2, 7), (3, 7)], None),
        ([(1, 7), (2, 7), (3, 7)], [(2, 7), (3, 7), (4, 9)], None),  # only what both have is compared
        ([(1, 7), (2, 7), (3, 7)], [(1, 7), (2, 8), (3, 7)], 2),
        ([(1, 7), (2, 7), (3, 7)], [(1, 7), (3, 7)], 2),
        ([(1, 7), (2, 7), (2, 7), (3, 7)], [(1, 7), (2, 7), (3, 7)], 2),
        ([(1, 7)], [], None),
        ([(1, 7)], [(5, 7)], None),
    ],
)
def test_where_lists_part(one, other, at):
    made = [
        Digest(np.array([s for s, _ in pairs], np.int32), np.array([n for _, n in pairs], np.uint32))
        for pairs in (one, other)
    ]
    assert made[0].departs_from(made[1]) == at
    assert made[1].departs_from(made[0]) == at


def test_of_a_large_group_the_odd_ones_are_read_first(tmp_path, monkeypatch):
    thinner, dumps = Thinner(500), []
    for rank in range(RANKS):
        write(tmp_path, rank, other_size(200) if rank == 5 else {})
        dumps.append(read(tmp_path, rank))
        thinner.thin(dumps[-1])
    monkeypatch.setattr(thinning, "ADDED", 1200)
    assert thinning.disputed(dumps, thinner) == {number: [Place(0, 201)] for number in (5, 0, 1)}


@pytest.mark.usefixtures("native_decoder")
def test_what_ranks_have_in_common_is_cut_once(tmp_path):
    job(tmp_path / "j", odd={3: other_size(200)}, stopped=4)

    def dumps():
        paths = sorted((tmp_path / "j").iterdir())
        return [flight_recorder.read(Item(path, path.name, path.stat().st_size, 0)).records[0] for path in paths]

    thinner, together = Thinner(500), dumps()
    for dump, other in zip(together, dumps(), strict=True):
        alone = Thinner(500)
        thinner.thin(dump)
        alone.thin(other)
        assert (dump.left_out, dump.capacity_wrapped) == (other.left_out, other.capacity_wrapped)
        for name in DUMP_COLUMNS:
            column, theirs = getattr(dump, name), getattr(other, name)
            assert np.array_equal(column, theirs, equal_nan=column.dtype.kind == "f"), name
        mine, lists = thinner.digests[id(dump)], alone.digests[id(other)]
        assert mine.keys() == lists.keys()
        for group, digest in mine.items():
            assert digest.departs_from(lists[group]) is None
            assert digest.unfinished == lists[group].unfinished
    assert together[0].seq is together[1].seq
    assert together[0].call is not together[3].call
