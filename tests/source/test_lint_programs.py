"""Programs with one mistake each, and others that look like it: every line named, nobody accused wrongly."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.source.lint_programs import SAMPLES, Score, labels, score_file, score_folder, unpack

PROGRAMS = sorted(path for folder in ("blind", "more", "third", "fourth") for path in (SAMPLES / folder).glob("*.py"))

MISSED = {
    "09_grad_none_wrong": "`p.grad is None` is the same on all ranks in most programs: naming it would be noise",
}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_program_is_judged_as_labelled(path: Path, request: pytest.FixtureRequest) -> None:
    if path.stem in MISSED:
        request.applymarker(pytest.mark.xfail(reason=MISSED[path.stem], strict=True))
    score = Score()
    score_file(path, score)
    assert (score.misses, score.false) == ([], [])


def test_the_packed_set_is_judged_as_labelled(tmp_path: Path) -> None:
    score = Score()
    paths = unpack(SAMPLES / "fifth.txt", tmp_path)
    for path in paths:
        score_file(path, score)
    assert len(paths) == 66
    assert sum(not labels(path)[0] for path in paths) == 33
    assert score.misses == []
    assert score.false == []


def test_half_of_the_programs_are_right() -> None:
    right = [path for path in PROGRAMS if not labels(path)[0]]
    assert len(PROGRAMS) >= 80
    assert 0.35 <= len(right) / len(PROGRAMS) <= 0.65


@pytest.mark.parametrize("name", ["right", "wrong"])
def test_names_say_what_the_labels_say(name: str) -> None:
    for path in PROGRAMS:
        if path.stem.endswith(name):
            assert bool(labels(path)[0]) == (name == "wrong"), path.name


def test_a_score_counts_misses_and_false_findings(tmp_path: Path) -> None:
    program = "import torch.distributed as dist\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    (tmp_path / "unlabelled.py").write_text(program)
    (tmp_path / "missed.py").write_text("import torch.distributed as dist\ndist.barrier()  # wrong: collective-order\n")
    score = score_folder(tmp_path)
    assert (score.hits, len(score.misses), len(score.false)) == (0, 1, 1)
