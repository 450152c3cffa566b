"""Code in a note or beside the logs: lint reads it where the logs don't tell why."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.diagnose.posted_code import _quoted
from whichrank.model.verdict import Verdict

TIMEOUT = (
    "[rank3]:[E1104 12:00:01.123 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=812, OpType=ALLGATHER, NumelIn=1, NumelOut=8, Timeout(ms)=1800000) ran for 1800021 milliseconds "
    "before timing out.\n"
)
METRIC = """\
class Evaluator:
    def __init__(self, n):
        self.metric = torchmetrics.AUROC(task="binary")

    def finish(self, preds):
        if len(self.metric.preds) == 0:
            return None
        return self.metric.compute()
"""


def _verdict(folder: Path, **files: str) -> Verdict:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    return diagnose([folder], jobs=1).verdict


@pytest.mark.parametrize("fence", ["```", "```python", "~~~"])
def test_a_block_of_a_note_tells_why(tmp_path: Path, fence: str) -> None:
    verdict = _verdict(tmp_path, note__txt=f"The job hangs in validation.\n\n{fence}\n{METRIC}{fence[:3]}\n")
    assert verdict.cause == "conditional-collective"
    assert 0 < verdict.confidence < 0.8
    assert not verdict.culprits.ranks
    assert [(place.file, place.line) for place in verdict.culprits.code] == [("note.txt", 11)]
    assert verdict.summary.startswith("The posted code")


def test_a_program_beside_the_log_tells_why(tmp_path: Path) -> None:
    verdict = _verdict(tmp_path, run__log=TIMEOUT, evaluate__py=f"import torchmetrics\n\n\n{METRIC}")
    assert verdict.cause == "conditional-collective"
    assert not verdict.culprits.ranks


def test_right_code_changes_nothing(tmp_path: Path) -> None:
    right = METRIC.replace("        if len(self.metric.preds) == 0:\n            return None\n", "")
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    with_code = _verdict(tmp_path / "with", run__log=TIMEOUT, evaluate__py=f"import torchmetrics\n\n\n{right}")
    assert with_code.cause == _verdict(tmp_path / "without", run__log=TIMEOUT).cause


def test_a_hang_in_the_code_does_not_explain_a_crash(tmp_path: Path) -> None:
    crashed = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\nKeyError: 'lr'\n"
    verdict = _verdict(tmp_path, run__log=crashed, evaluate__py=f"import torchmetrics\n\n\n{METRIC}")
    assert verdict.cause != "conditional-collective"


def test_lines_keep_their_numbers_and_cut_ends_are_left_out() -> None:
    note = "Words.\n```py\n    if rank == 0:\n        dist.barrier()\n    for x in (\n```\nMore words.\n"
    assert _quoted(note).split("\n") == ["", "", "if rank == 0:", "    dist.barrier()", "", "", "", ""]


def test_what_is_no_python_is_left_out() -> None:
    assert not _quoted("```\n[rank0]: Watchdog caught a timeout\n! ?\n```\n```bash\nls\n```\n").strip()


def test_a_hook_without_its_class(tmp_path: Path) -> None:
    hook = (
        "def on_validation_epoch_end(self):\n    if self.trainer.is_global_zero:\n"
        "        self.log('val_loss', loss, sync_dist=True)\n    self.outputs.clear()\n"
    )
    verdict = _verdict(tmp_path, q__md=f"DDP hangs after validation, no error.\n\n```python\n{hook}```\n")
    assert verdict.cause == "rank0-only-collective"
    assert [(place.file, place.line) for place in verdict.culprits.code] == [("q.md", 6)]
