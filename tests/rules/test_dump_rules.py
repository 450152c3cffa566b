"""Each rule on dumps: a job in which it must fire, and that it is silent in all the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.jobs.pretend import Plan
from tests.jobs.pretend_dumps import read, write
from tests.timeline.by_hand import Did, dump, lined_up, steps
from whichrank.evidence.readers import stacks
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.discovery import discover_rules
from whichrank.model.contracts import Item
from whichrank.model.findings import Finding
from whichrank.records.stack import ProcessStack
from whichrank.timeline.assemble import build_case
from whichrank.timeline.case import Case

RULES = {rule.CODE: rule for rule in discover_rules()}

# The rule that must speak, and a plan that calls for it and for none of the others.
FIRES = {
    "COLL101": Plan(tp=4, dp=1, fault="skip", eager=True, culprit=2, seed=1),
    "COLL102": Plan(tp=2, dp=2, fault="alone", eager=True, culprit=0, seed=1),
    "COLL103": Plan(tp=1, dp=4, fault="uneven", eager=True, culprit=2, seed=1),
    "COLL104": Plan(tp=4, dp=1, fault="swap", culprit=1, at=0.4, seed=1),
    "COLL105": Plan(tp=4, dp=2, fault="cross", eager=True, culprit=5, seed=1),
    "COLL106": Plan(tp=1, dp=2, pp=2, fault="p2p_cycle", eager=True, seed=1),
    "COLL107": Plan(tp=2, dp=2, pp=2, fault="orphan", eager=True, culprit=1, seed=1),
    "COLL108": Plan(tp=4, dp=1, fault="size", pairing="loose", culprit=3, seed=1),
    "COLL109": Plan(tp=4, dp=1, fault="dtype", pairing="loose", culprit=0, seed=1),
    "COLL110": Plan(tp=4, dp=2, fault="stuck", eager=True, culprit=6, seed=2),
    "COLL111": Plan(tp=4, dp=2, fault="stalled", seed=1),
    "CUDA101": Plan(tp=4, dp=2, fault="kernel", culprit=7, seed=1),
    "SLOW101": Plan(tp=4, dp=2, fault="straggler", culprit=2, steps=16, seed=1),
}
HEALTHY = Plan(tp=4, dp=2, pp=2, steps=8)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Case, tuple[int, ...]]]:
    made = {}
    for code, plan in {**FIRES, "healthy": HEALTHY}.items():
        written = write(plan, tmp_path_factory.mktemp(code))
        made[code] = build_case(read(written.folder)), written.job.culprits
    return made


def findings(code: str, case: Case) -> list[Finding]:
    answer = RULES[code].judge(case)
    assert isinstance(answer, list)
    return answer


@pytest.mark.parametrize("code", FIRES)
def test_it_fires(cases: dict[str, tuple[Case, tuple[int, ...]]], code: str) -> None:
    case, culprits = cases[code]
    found = findings(code, case)
    assert [finding.subject.ranks for finding in found] == [culprits]
    assert found[0].cause == RULES[code].CAUSE
    assert found[0].message.endswith(".")
    assert found[0].fix
    assert found[0].confidence + sum(a.confidence for a in found[0].alternatives) <= 1.0
    assert not set(found[0].victims) & set(culprits)
    files = {Path(ref.source).name for ref in found[0].evidence}
    assert all(file.startswith("trace_rank_") for file in files)


@pytest.mark.parametrize("code", FIRES)
def test_it_is_silent_elsewhere(cases: dict[str, tuple[Case, tuple[int, ...]]], code: str) -> None:
    spoken = [name for name, (case, _) in cases.items() if name != code and findings(code, case)]
    assert spoken == []


def test_the_message_names_rank_line_and_operation(cases: dict[str, tuple[Case, tuple[int, ...]]]) -> None:
    (finding,) = findings("COLL101", cases["COLL101"][0])
    assert "Rank 2" in finding.message
    assert "layer.py:12" in finding.message or "layer.py:19" in finding.message
    assert {place.file for place in finding.subject.code} <= {
        "/srv/job/layer.py",
        "/srv/job/loss.py",
        "/srv/job/train.py",
    }


def test_silent_corruption_is_called_so(cases: dict[str, tuple[Case, tuple[int, ...]]]) -> None:
    (finding,) = findings("COLL108", cases["COLL108"][0])
    assert finding.category == "corruption"
    assert "nothing hangs" in finding.message
    assert finding.victims == ()


def test_a_size_that_hangs_is_a_hang(tmp_path: Path) -> None:
    written = write(Plan(tp=4, dp=1, fault="size", pairing="partial", eager=True, culprit=3, seed=1), tmp_path)
    (finding,) = findings("COLL108", build_case(read(written.folder)))
    assert (finding.category, finding.subject.ranks) == ("hang", (3,))


def test_a_lost_rank_asks_for_its_log(tmp_path: Path) -> None:
    plan = Plan(tp=4, dp=2, fault="stuck", eager=True, culprit=6, lose_culprit=True, seed=2)
    (finding,) = findings("COLL110", build_case(read(write(plan, tmp_path).folder)))
    assert finding.subject.ranks == (6,)
    assert "left no dump" in finding.message
    assert "rank-killed" in finding.next[0].settles


def test_without_timing_a_stuck_kernel_is_a_stalled_collective(tmp_path: Path) -> None:
    """The recorder never says "started", so nobody can be singled out."""
    case = build_case(read(write(Plan(tp=4, dp=2, fault="kernel", timing=False, culprit=7, seed=1), tmp_path).folder))
    assert findings("CUDA101", case) == []
    assert [finding.subject.ranks for finding in findings("COLL111", case)] == [()]


def test_an_operation_that_was_paired_with_another_makes_nobody_wait() -> None:
    """NCCL compares nothing: all went on, with wrong numbers."""
    world = {"0": (0, 1, 2)}
    odd = steps(12)
    odd[3] = Did("0", "all_gather", 4, line=99, function="extra")
    case = Case(
        lineup=lined_up(dump(0, world, steps(12)), dump(1, world, odd), dump(2, world, steps(12))), has_dumps=True
    )
    (finding,) = findings("COLL101", case)
    assert (finding.subject.ranks, finding.category, finding.victims) == ((1,), "corruption", ())
    assert "nothing hangs" in finding.message


@pytest.mark.parametrize("left_out", [False, True], ids=["another order", "one left out"])
def test_a_round_of_many_operations_in_another_order(left_out: bool) -> None:
    """The size is that of a parameter: sorted by something that differs on rank 2."""
    parts = list(range(12))
    shuffled = parts[1:] if left_out else [4, 0, 7, 1, 11, 2, 9, 3, 10, 5, 8, 6]

    def reduced(order: list[int], seq: int, done: bool) -> list[Did]:
        return [
            Did("0", "all_reduce", seq + n, done=done, numel=8 + part, function="merge") for n, part in enumerate(order)
        ]

    same = reduced(parts, 1, done=True)
    jobs = [same + reduced(shuffled if rank == 2 else parts, 13, done=False) for rank in range(4)]
    lineup = lined_up(*(dump(rank, {"0": (0, 1, 2, 3)}, job) for rank, job in enumerate(jobs)))
    case = Case(lineup=lineup, has_dumps=True)
    assert [finding.subject.ranks for finding in findings("COLL104", case)] == ([] if left_out else [(2,)])


def test_a_lost_rank_that_ended_by_itself_did_not_hang(tmp_path: Path) -> None:
    plan = Plan(tp=4, dp=2, fault="stuck", eager=True, culprit=6, lose_culprit=True, seed=2)
    folder = write(plan, tmp_path).folder
    (folder / "torchrun.log").write_text(
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-17_08:02:39\n  host      : localhost\n"
        "  rank      : 6 (local_rank: 6)\n  exitcode  : 3 (pid: 2747)\n  error_file: <N/A>\n"
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n"
    )
    found = diagnose([folder], jobs=1).verdict
    assert (found.category, found.culprits.ranks) == ("crash", (6,))


IN_NEW_GROUP = (
    "_new_process_group_helper (torch/distributed/distributed_c10d.py:2169)",
    "new_group (torch/distributed/distributed_c10d.py:5863)",
    "fine_tune (train.py:63)",
)
IN_BROADCAST = ("broadcast (torch/distributed/distributed_c10d.py:3151)", "publish (train.py:58)")


def stood(tmp_path: Path, places: tuple[tuple[str, ...], ...]) -> list[ProcessStack]:
    found = []
    for rank, frames in enumerate(places):
        text = f'Process {100 + rank}: python train.py (rank {rank})\nThread {100 + rank} (idle): "MainThread"\n'
        path = tmp_path / f"{rank}.txt"
        path.write_text(text + "".join(f"    {frame}\n" for frame in frames) + "    main (train.py:99)\n")
        found += stacks.read(Item(path, path.name, path.stat().st_size, 0)).records
    return found


@pytest.mark.parametrize("absent", [0, 2])
def test_the_rank_that_did_not_make_the_group(tmp_path: Path, absent: int) -> None:
    groups: dict[str, tuple[int, ...] | None] = {"0": (0, 1, 2, 3)}
    trained = steps(6)
    alone = [*trained, Did("0", "broadcast", 7, done=False, line=58, function="publish")]
    dumps = [dump(rank, groups, alone if rank == absent else trained) for rank in range(4)]
    places = tuple(IN_BROADCAST if rank == absent else IN_NEW_GROUP for rank in range(4))
    case = build_case([*dumps, *stood(tmp_path, places)])
    (finding,) = findings("COLL135", case)
    assert (finding.cause, finding.subject.ranks) == ("conditional-collective", (absent,))
    assert findings("COLL102", case) == []


@pytest.mark.parametrize(
    ("sent", "expected", "cause", "ranks"),
    [
        ((512, 85, 512, 512), (404, 423, 799, 422), "size-mismatch", (1,)),
        ((90, 70, 80, 60), (100, 100, 100, 100), "size-mismatch", ()),
        ((90, 110, 80, 120), (100, 100, 100, 100), "collective-stalled", ()),
        ((90, 110, 80, 120), (100, 100, 130, 100), "size-mismatch", (2,)),
    ],
    ids=["one sends less", "nobody stands out", "it fits", "one expects more"],
)
def test_an_all_to_all_whose_splits_do_not_fit(sent, expected, cause, ranks) -> None:
    world = {"0": (0, 1, 2, 3)}
    exchange = [
        Did("0", "all_to_all", 3, done=False, numel=numel, numel_out=out)
        for numel, out in zip(sent, expected, strict=True)
    ]
    lineup = lined_up(*(dump(rank, world, [*steps(2), exchange[rank]]) for rank in range(4)))
    (finding,) = findings("COLL111", Case(lineup=lineup, has_dumps=True))
    assert (finding.cause, finding.subject.ranks) == (cause, ranks)


def signalled(rank: int) -> str:
    return (
        f"[rank{rank}]:[E1118 13:21:21.621 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] "
        "Received a dump signal due to a collective timeout from  rank 0 and we will try our best to dump the debug "
        "info.\n"
    )


def gave_up(rank: int, work: int) -> str:
    return (
        f"[rank{rank}]:[E1118 13:21:21.433 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  "
        f"failure detected by watchdog at work sequence id: {work} PG status: last enqueued work: {work}, last "
        f"completed work: {work - 1}\n"
    )


@pytest.mark.parametrize(
    ("log", "candidates"),
    [
        (gave_up(1, 4) + gave_up(3, 4) + signalled(5), (5,)),
        (gave_up(1, 4) + gave_up(3, 4) + gave_up(5, 4), ()),
        ("", ()),
    ],
    ids=["one only heard of it", "all had come", "no logs"],
)
def test_ranks_without_a_dump_are_judged_by_their_watchdogs(tmp_path: Path, log: str, candidates) -> None:
    folder = write(Plan(tp=1, dp=6, fault="stuck", eager=True, culprit=2, seed=1), tmp_path).folder
    for rank in (1, 3, 5):
        (folder / f"trace_rank_{rank}").unlink()
    (folder / "job.log").write_text(log)
    culprits = diagnose([folder], jobs=1).verdict.culprits
    assert (culprits.ranks, culprits.candidates) == ((2,), candidates)
