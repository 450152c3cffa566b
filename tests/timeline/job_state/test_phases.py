"""How far a job came, by all of its evidence."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose

EXAMPLE = Path(__file__).parents[3] / "examples" / "skipped_collective"
PREFIX = "node1:{pid}:{pid} [{gpu}] NCCL INFO ncclCommInitRankConfig comm 0x{pid}a rank {gpu} nranks 2 cudaDev {gpu} "
INIT = PREFIX + "nvmlDev {gpu} busId {gpu}b000 commId 0x1a2b3c4d5e6f7a8b - Init {phase}\n"


def phases(folder: Path) -> dict[str, tuple[int, ...]]:
    return {seen.phase: seen.ranks for seen in diagnose([folder], jobs=1, why=True).phases}


def test_dumps_show_collectives_that_finished() -> None:
    assert phases(EXAMPLE)["collectives"] == (0, 1, 2, 3)


def test_a_communicator_that_one_side_completes(tmp_path: Path) -> None:
    lines = [INIT.format(pid=71 + gpu, gpu=gpu, phase="START") for gpu in (0, 1)]
    (tmp_path / "nccl.log").write_text("".join([*lines, INIT.format(pid=72, gpu=1, phase="COMPLETE")]))
    seen = phases(tmp_path)
    assert (seen["rendezvous"], seen["groups"]) == ((0, 1), (1,))


def test_steps_and_an_end(tmp_path: Path) -> None:
    steps = "".join(f"2026-03-01 10:00:0{n} step {n}/40 loss 1.{n}\n" for n in range(1, 6))
    died = "2026-03-01 10:01:00 srun: error: node7: task 3: Segmentation fault\n"
    (tmp_path / "job.log").write_text(steps + died)
    told = {seen.phase: seen for seen in diagnose([tmp_path], jobs=1, why=True).phases}
    assert list(told) == ["training", "ended"]
    assert (told["training"].since or "").startswith("2026-03-01T10:00:01")
    assert "task 3" in told["ended"].evidence.quote


def test_nothing_unless_asked() -> None:
    assert diagnose([EXAMPLE], jobs=1).phases == ()


def test_evidence_says_how_far_the_job_was(tmp_path: Path) -> None:
    steps = "".join(f"2026-03-01 10:00:0{n} step {n}/40 loss 1.{n}\n" for n in range(1, 6))
    full = "2026-03-01 10:00:09 [rank1]: OSError: [Errno 28] No space left on device: '/scratch/ckpt/model.pt'\n"
    (tmp_path / "job.log").write_text(steps + full)
    told = diagnose([tmp_path], jobs=1, why=True).hypotheses
    assert [a.phase for h in told if h.cause == "disk-full" for a in h.arguments_for] == ["training"]


def test_a_line_with_nothing_above_it_has_no_phase(tmp_path: Path) -> None:
    full = "[rank2]: OSError: [Errno 28] No space left on device: '/scratch/ckpt/model.pt'\n"
    (tmp_path / "job.log").write_text(full)
    told = diagnose([tmp_path], jobs=1, why=True).hypotheses
    assert [a.phase for h in told if h.cause == "disk-full" for a in h.arguments_for] == [None]
