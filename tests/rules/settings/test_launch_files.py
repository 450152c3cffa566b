"""No false alarm on launch files as they are in use; and the rules keep their contract."""

from pathlib import Path

import pytest

from whichrank.flows.discovery import rules_below
from whichrank.flows.env.lint import lint, read_path
from whichrank.model.findings import NotEvaluated
from whichrank.records.settings import Settings

SAMPLES = Path(__file__).parents[2] / "samples" / "launch"
FILES = sorted(path for path in SAMPLES.iterdir() if path.name != "ORIGIN")
KINDS = {".sh": "shell", ".sbatch": "shell", ".py": "python", ".yaml": "manifest", ".train": "dockerfile",
         ".conf": "nccl.conf", ".txt": "environment"}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_false_alarm(path):
    (file,) = read_path(path)
    assert file.kind == KINDS[path.suffix]
    assert file.assignments, "the sample sets something, and it was seen"
    assert lint([file]).findings == ()


def test_there_are_enough_of_them():
    assert len(FILES) >= 25


def test_no_false_alarm_across_ranks():
    files = [file for path in FILES if path.suffix == ".txt" for file in read_path(path)]
    assert len(files) == 2
    assert lint(files).findings == ()


@pytest.mark.parametrize("rule", rules_below("settings"), ids=lambda rule: rule.CODE)
def test_a_rule_keeps_its_contract(rule):
    assert rule.CODE.startswith("ENV1")
    assert rule.CAUSE == "wrong-environment"
    for heading in ("What it finds", "Why it happens", "How it decides", "Example:", "Fix:", "Limits:"):
        assert heading in rule.__doc__, heading
    assert not rule.judge(Settings(())) or isinstance(rule.judge(Settings(())), NotEvaluated)


def test_codes_are_unique():
    codes = [rule.CODE for rule in rules_below("settings")]
    assert len(set(codes)) == len(codes)


def test_a_folder_is_all_its_files():
    files = read_path(SAMPLES)
    assert {Path(file.label).name for file in files} == {path.name for path in FILES}, "ORIGIN sets nothing"
