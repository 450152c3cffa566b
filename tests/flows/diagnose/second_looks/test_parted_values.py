"""Values that were the same on all ranks, until one rank said another one."""

from __future__ import annotations

from whichrank.flows.diagnose.pipeline import diagnose

WORLD, ROUNDS = 4, 9


def verdict(folder, lines):
    for rank, said in lines.items():
        (folder / f"rank{rank}.log").write_text("\n".join(said) + "\n")
    return diagnose([folder], jobs=1).verdict


def said(rank: int, norm, name: str = "weights") -> list[str]:
    return [f"{rank}: step {n * 5} val {1.5 + rank + n / 7:.5f} {name} {norm(n):.6f}" for n in range(1, ROUNDS)]


def of_all(n: int) -> float:
    return 9.4 + n * 0.1173


def test_the_rank_whose_weights_went_their_own_way(tmp_path):
    lines = {rank: said(rank, of_all) for rank in range(WORLD)}
    lines[2] = said(2, lambda n: of_all(n) - (0.0312 * (n - 4) if n > 4 else 0))
    found = verdict(tmp_path, lines)
    assert (found.cause, found.culprits.ranks) == ("replica-divergence", (2,))


def test_values_that_are_the_same_to_the_end(tmp_path):
    assert verdict(tmp_path, {rank: said(rank, of_all) for rank in range(WORLD)}).cause != "replica-divergence"


def test_a_line_that_one_rank_left_out(tmp_path):
    lines = {rank: said(rank, of_all) for rank in range(WORLD)}
    del lines[2][4]
    assert verdict(tmp_path, lines).cause != "replica-divergence"


def test_values_that_differ_from_the_start(tmp_path):
    lines = {rank: said(rank, lambda n, rank=rank: of_all(n) + rank * 0.0701) for rank in range(WORLD)}
    assert verdict(tmp_path, lines).cause != "replica-divergence"


def test_a_setting_that_never_changed_is_no_replica(tmp_path):
    lines = {rank: said(rank, lambda n: 0.125031) for rank in range(WORLD)}
    lines[2] = said(2, lambda n: 0.125031 if n < 5 else 0.25)
    assert verdict(tmp_path, lines).cause != "replica-divergence"


def test_a_rank_that_no_longer_updates(tmp_path):
    lines = {rank: said(rank, of_all) for rank in range(WORLD)}
    lines[1] = said(1, lambda n: of_all(min(n, 4)))
    found = verdict(tmp_path, lines)
    assert (found.cause, found.culprits.ranks) == ("replica-divergence", (1,))
