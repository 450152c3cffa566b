"""Texts full of telling lines: cheap to read, and what is rare in them stays."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from whichrank.evidence.text import thinning
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.diagnose.reading import read_all
from whichrank.model.contracts import Item

WORDS = frozenset((b"most recent call", b'File "', b"NCCL WARN", b"CUDA error"))
FLOOD = [f"[rank{n % 64}]: CUDA error: busy {n}" for n in range(60_000)]
ODD = [
    "[rank7]: Traceback (most recent call last):",
    '[rank7]:   File "/srv/app/train.py", line 25, in step',
    "[rank7]:     loss.backward()",
    "[rank7]: ValueError: label 11 is out of range",
]


def item_of(path: Path, lines: list[str]) -> Item:
    path.write_text("\n".join(lines) + "\n")
    return Item(path, path.name, path.stat().st_size, 1)


def thinned(tmp_path: Path, lines: list[str]) -> tuple[list[str], int]:
    item, left_out = thinning.thinned(item_of(tmp_path / "a.log", lines), WORDS, tmp_path)
    return item.path.read_text().split("\n")[:-1], left_out


def test_a_text_with_few_telling_lines_is_left_alone(tmp_path: Path) -> None:
    lines = ["nothing of interest here, step done and on with the next"] * 40_000
    item = item_of(tmp_path / "a.log", lines)
    assert thinning.thinned(item, WORDS, tmp_path) == (item, 0)


def test_lines_keep_their_numbers_and_what_is_rare_stays(tmp_path: Path) -> None:
    lines = FLOOD[:30_000] + ODD + FLOOD[30_000:]
    kept, left_out = thinned(tmp_path, lines)
    assert len(kept) == len(lines)
    assert kept[30_000:30_004] == ODD
    assert all(line in ("", lines[at]) for at, line in enumerate(kept))
    assert left_out == sum(line == "" for line in kept)
    assert sum(map(bool, kept)) <= thinning.MOST + len(ODD)


def test_the_first_and_the_last_of_each_rank_stay(tmp_path: Path) -> None:
    late = [f"[rank{n}]: CUDA error: busy 1" for n in range(900, 1000)]
    kept, _ = thinned(tmp_path, FLOOD[:20_000] + late + FLOOD[20_000:])
    assert set(late) <= set(kept)
    assert kept[:500] == FLOOD[:500]
    assert kept[-500:] == FLOOD[-500:]


def test_a_repeated_traceback_goes_as_a_whole(tmp_path: Path) -> None:
    many = [line.replace("rank7", f"rank{n % 16}") for n in range(12_000) for line in ODD]
    kept, _ = thinned(tmp_path, many)
    whole = ["".join(kept[at : at + 4]) for at in range(0, len(many), 4)]
    assert all(text in ("", "".join(many[4 * at : 4 * at + 4])) for at, text in enumerate(whole))
    assert sum(map(bool, whole)) < 3000


def test_a_file_where_no_two_lines_look_alike_is_bounded(tmp_path: Path) -> None:
    words = ["".join(letters) for letters in itertools.product("ghijklmnopqrst", repeat=4)]
    lines = [f"CUDA error {word} {word[0] * (at % 9)} at a place of its own" for at, word in enumerate(words)]
    kept, _ = thinned(tmp_path, lines)
    assert sum(map(bool, kept)) <= thinning.MOST


@pytest.mark.parametrize("name", ["rank_0.log", "dmesg.txt"])
def test_the_answer_says_what_was_left_out(tmp_path: Path, name: str) -> None:
    item = item_of(tmp_path / name, FLOOD[:30_000] + ODD + FLOOD[30_000:])
    (results,) = read_all([item], jobs=1, progress=None)
    assert isinstance(results, list)
    assert all("look like others were left out" in reading.note for _, reading in results)
    assert str(tmp_path) not in repr(results[0][1].records[0])


def test_the_cause_in_the_middle_of_a_flood_is_found(tmp_path: Path) -> None:
    noise = [f"[rank{n % 64}]: UserWarning: NCCL error in the past {n}" for n in range(60_000)]
    item_of(tmp_path / "job.log", noise[:30_000] + ODD + noise[30_000:])
    verdict = diagnose([tmp_path / "job.log"]).verdict
    assert verdict.cause == "rank-exception"
    assert verdict.culprits.ranks == (7,)


def test_progress_moves_while_rules_judge(tmp_path: Path) -> None:
    item_of(tmp_path / "job.log", ODD)
    told: list[tuple[str, int, int]] = []
    diagnose([tmp_path / "job.log"], progress=lambda *stage: told.append(stage))
    judging = [(done, total) for stage, done, total in told if stage == "judging"]
    assert len({done for done, _ in judging}) > 50
    assert all(done < total for done, total in judging)
