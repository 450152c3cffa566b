"""Records of ranks compared: who is odd, since when; and what is nobody's fault."""

from __future__ import annotations

from typing import Any

from whichrank.records.guard import GuardFile, GuardNote
from whichrank.timeline.guard.compare import compare

WORLD = 4


def rank_file(rank: int, *said: dict[str, Any], world: int = WORLD) -> GuardFile:
    start = {"t": "start", "rank": rank, "world": world, "source": {}, "versions": {}, "settings": {}}
    return GuardFile(f"rank_{rank}", rank, world, notes=[GuardNote(n + 1, s) for n, s in enumerate([start, *said])])


def layout(replicas: str = "0-3", kind: str = "parameter") -> dict[str, Any]:
    unit = ["w", kind, replicas, [4], "float32"]
    return {"t": "layout", "o": 0, "id": "a", "parts": 1, "units": [unit], "pieces": [[[0, 0]]]}


def look(step: int, text: str) -> dict[str, Any]:
    return {"t": "slice", "o": 0, "s": step, "l": "a", "q": 0, "k": 1, "p": f"{text:>08}"}


def wrongs(files):
    comparison = compare(files)
    assert comparison is not None
    return comparison.wrongs()


def told(values: dict[int, list[str]], replicas: str = "0-3", kind: str = "parameter", world: int = WORLD):
    files = [
        rank_file(rank, layout(replicas, kind), *(look(step, text) for step, text in enumerate(texts)), world=world)
        for rank, texts in values.items()
    ]
    return wrongs(files)


def test_the_majority_names_the_odd_rank_and_the_last_good_step():
    good = ["1", "2", "3", "4"]
    (found,) = told({0: good, 1: good, 2: ["1", "2", "f", "e"], 3: good})
    assert (found.odd, found.step, found.good, found.module) == ((2,), 2, 1, "w")


def test_of_two_replicas_both_are_candidates():
    (found,) = told({0: ["1", "2"], 1: ["1", "3"]}, "0,1", world=2)
    assert found.odd == ()
    assert found.pair == (0, 1)


def test_shards_are_not_compared():
    assert told({rank: [str(rank)] for rank in range(4)}, "0") == []


def test_replicas_of_a_mesh_are_compared_with_their_own():
    files = [rank_file(rank, layout("0,2" if rank % 2 == 0 else "1,3"), look(0, str(rank % 2))) for rank in range(4)]
    assert wrongs(files) == []


def test_plain_tensors_that_always_differed_are_nobodys_fault():
    assert told({rank: [f"{rank}{step}" for step in range(9)] for rank in range(4)}, "") == []


def test_plain_tensors_that_stayed_equal_are_replicas():
    good = [str(step) for step in range(9)]
    (found,) = told({0: good, 1: [*good[:6], "f", "e", "d"], 2: good, 3: good}, "")
    assert (found.odd, found.step, found.learned) == ((1,), 6, True)


def test_the_one_that_was_never_equal_missed_the_start():
    good = [str(step) for step in range(9)]
    (found,) = told({0: good, 1: good, 2: good, 3: [f"f{step}" for step in range(9)]}, "")
    assert found.odd == (3,)


def test_pairs_that_differ_from_each_other_are_parallel_in_two_ways():
    left, right = [f"a{step}" for step in range(9)], [f"b{step}" for step in range(9)]
    assert told({0: left, 1: right, 2: left, 3: right}, "") == []


def test_all_apart_at_once_is_another_way_to_train():
    values = {rank: [*(str(step) for step in range(6)), f"{rank}6", f"{rank}7"] for rank in range(4)}
    assert told(values, "") == []


def drifting(since: int, *, others_too: bool, never_equal: bool = False):
    """Two parameters of one optimizer: `w` drifts apart on all ranks, and the other one may."""
    files = []
    for rank in range(WORLD):
        units = [["w", "parameter", "", [4], "float32"], ["head", "parameter", "", [2], "float32"]]
        shape = {"t": "layout", "o": 0, "id": "a", "parts": 1, "units": units, "pieces": [[[0, 0], [1, 0]]]}
        looks = []
        for step in range(12):
            own = f"{rank}{step}" if step >= since or never_equal else str(step)
            head = f"{rank}{step}" if others_too and step >= since else str(step)
            looks.append({"t": "slice", "o": 0, "s": step, "l": "a", "q": 0, "k": 1, "p": f"{own:>08}{head:>08}"})
        files.append(rank_file(rank, shape, *looks))
    return wrongs(files)


def test_parameters_that_the_averaging_leaves_out():
    (found,) = drifting(5, others_too=False)
    assert (found.kind, found.odd, found.module, found.step, found.good) == ("adrift", (), "w", 5, 4)
    assert drifting(5, others_too=True) == []
    assert drifting(5, others_too=False, never_equal=True) == []


def test_buffers_that_code_writes_to_are_left_alone():
    moving = ["--------"] * 4
    assert told({0: moving, 1: moving, 2: ["1"] * 4, 3: moving}, "", "buffer") == []


def test_a_constant_buffer_that_changes_is_found():
    (found,) = told({0: ["1"] * 8, 1: ["1"] * 8, 2: ["1"] * 5 + ["2"] * 3, 3: ["1"] * 8}, "", "buffer")
    assert found.odd == (2,)


# -- gradients


def gradient(step: int, *codes: int, norm: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {"t": "grad", "o": 0, "s": step, "g": bytes(codes).hex(), "n": norm, **more}


def test_the_rank_whose_gradient_was_not_finite_first():
    files = []
    for rank in range(4):
        notes = [gradient(step, 128, 128) for step in range(5)]
        notes += [gradient(5, 255, 128, norm="nan") if rank == 3 else gradient(5, 128, 128)]
        notes += [gradient(step, 255, 255, norm="nan") for step in range(6, 12)]
        files.append(rank_file(rank, layout(), *notes))
    (found,) = wrongs(files)
    assert (found.kind, found.odd, found.step) == ("nan", (3,), 5)


def test_overflows_that_a_scaler_handles_are_no_news():
    files = [
        rank_file(rank, layout(), *(gradient(s, 254 if s == 3 and rank == 1 else 128, scaled=True) for s in range(9)))
        for rank in range(4)
    ]
    assert wrongs(files) == []


def test_a_loss_that_was_left_out_is_no_news():
    losses = {"t": "loss", "o": 0, "s": list(range(12)), "x": [0.5] * 4 + ["nan"] + [0.5] * 7}
    fine = {**losses, "x": [0.5] * 12}
    assert wrongs([rank_file(rank, layout(), losses if rank == 1 else fine) for rank in range(4)]) == []


def norms(rank: int, step: int) -> float:
    return 1.0 + 0.1 * ((rank + step) % 3)


def test_a_norm_far_from_all_others_is_an_outlier():
    files = [
        rank_file(rank, layout(), *(
            gradient(s, 128, norm=1e6 if (rank, s) == (2, 12) else norms(rank, s)) for s in range(15)
        ))
        for rank in range(4)
    ]  # fmt: skip
    (found,) = wrongs(files)
    assert (found.kind, found.odd, found.step) == ("outlier", (2,), 12)


def test_norms_that_always_vary_widely_are_no_outliers():
    files = [
        rank_file(rank, layout(), *(gradient(s, 128, norm=10.0 ** ((7 * rank + 3 * s) % 5 - 2)) for s in range(40)))
        for rank in range(4)
    ]
    assert wrongs(files) == []


def test_the_same_batches_on_two_ranks():
    files = [
        rank_file(rank, layout(), *(gradient(s, 128, b=[f"{min(rank, 2)}{s}"]) for s in range(9))) for rank in range(4)
    ]
    (found,) = wrongs(files)
    assert (found.kind, found.among) == ("batch", (2, 3))


def test_a_constant_batch_says_nothing():
    files = [rank_file(rank, layout(), *(gradient(s, 128, b=["1"]) for s in range(9))) for rank in range(4)]
    assert wrongs(files) == []


# -- settings and collectives


def test_another_learning_rate():
    files = [rank_file(rank, layout(), gradient(0, 128, lr=[0.1 if rank != 1 else 0.2])) for rank in range(4)]
    (found,) = wrongs(files)
    assert (found.kind, found.odd) == ("rate", (1,))


GROUP = {"t": "group", "g": "0", "d": "default_pg", "r": [0, 1, 2, 3]}


def sig(name: str, **more: Any) -> dict[str, Any]:
    plain = {"op": "all_reduce", "red": "SUM", "n": 4, "d": "float32", "root": -1, "at": "train.py:3 step"}
    return {"t": "sig", "id": name, **plain, **more}


def calls(first: int, *names: str, times: int = 1) -> dict[str, Any]:
    return {"t": "calls", "g": "0", "n": first, "s": [first, first], "x": [list(names), times]}


def test_the_first_call_that_differs_names_the_rank_and_the_aspect():
    common = (GROUP, sig("a"), sig("b", red="MAX"))
    files = [
        rank_file(rank, *common, calls(0, "a", times=7), calls(7, "b" if rank == 2 else "a"), calls(8, "a"))
        for rank in range(4)
    ]
    (found,) = wrongs(files)
    assert (found.kind, found.odd, found.tensor, found.detail["call"]) == ("signature", (2,), "red", 7)


def test_calls_that_were_lost_are_not_compared():
    common = (GROUP, sig("a"), sig("b", red="MAX"))
    files = [rank_file(rank, *common, calls(0, "a"), calls(5 if rank == 2 else 1, "b")) for rank in range(4)]
    assert wrongs(files) == []


def test_ranks_that_are_behind_are_waited_for():
    common = (GROUP, sig("a"), sig("b"))
    files = [rank_file(rank, *common, calls(0, "a", times=1 + rank)) for rank in range(4)]
    assert wrongs(files) == []


def drawn(states: dict[int, str], batches: str, replicas: str = "0"):
    """Looks of ranks: a letter per look for the random state; ranks of one digit in `batches` get the same batch."""
    files = []
    for rank, letters in states.items():
        looks = [
            {"t": "grad", "o": 0, "s": step, "b": [f"{batches[rank]}{step}"], "r": letter}
            for step, letter in enumerate(letters)
        ]
        files.append(rank_file(rank, layout(replicas), *looks))
    return [wrong for wrong in wrongs(files) if wrong.kind == "random"]


def test_ranks_that_share_a_batch_share_their_random_numbers():
    good = "abcdefghijkl"
    (found,) = drawn({0: good, 1: good, 2: "abcdefghxyzw", 3: good}, "0000")
    assert (found.odd, found.step, found.good) == ((2,), 8, 7)


def test_random_numbers_that_always_differed_or_never_changed_are_nobodys_fault():
    assert drawn({rank: "abcdefghijkl"[rank:] + "m" * rank for rank in range(4)}, "0000") == []
    assert drawn({0: "a" * 12, 1: "a" * 12, 2: "aaaaaaaabbbb", 3: "a" * 12}, "0000") == []


def test_ranks_with_data_of_their_own_may_draw_what_they_like():
    good = "abcdefghijkl"
    assert drawn({0: good, 1: good, 2: "abcdefghxyzw", 3: good}, "0123") == []
