"""Commands that were typed, with one setting more the second time."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.evidence.readers import transcripts
from whichrank.model.contracts import Item
from whichrank.records.trial import Trial

PLAIN = "$ NCCL_DEBUG=INFO torchrun --nproc_per_node=2 toy.py\nInit COMPLETE\n^C\n"
DONE = "step 99 loss 0.4121\ndone\n"


def trials(folder: Path, text: str) -> list[tuple[str, str]]:
    path = folder / "session.txt"
    path.write_text(text, encoding="utf-8")
    assert transcripts.sniff(text.encode(), path.name)
    records = transcripts.read(Item(path, path.name, path.stat().st_size, 0)).records
    return [(trial.change, trial.outcome) for trial in records if isinstance(trial, Trial) and trial.seen]


@pytest.mark.parametrize("prompt", ["$ ", "root@node3:/work# ", "ann@gpu1 ~ $ "])
def test_a_setting_that_helped(prompt, tmp_path):
    again = f"{prompt}NCCL_P2P_DISABLE=1 torchrun --nproc_per_node=2 toy.py 2>/dev/null | tail -2\n"
    assert trials(tmp_path, PLAIN + again + DONE) == [("NCCL_P2P_DISABLE=1", "helped")]


def test_a_setting_that_did_not(tmp_path):
    again = "$ NCCL_P2P_DISABLE=1 torchrun --nproc_per_node=2 toy.py\nRuntimeError: NCCL error\n"
    assert trials(tmp_path, PLAIN + again) == [("NCCL_P2P_DISABLE=1", "did not help")]


@pytest.mark.parametrize(
    "again",
    [
        "$ NCCL_P2P_DISABLE=1 torchrun --nproc_per_node=1 toy.py\n",
        "$ NCCL_P2P_DISABLE=1 NCCL_IB_DISABLE=1 torchrun --nproc_per_node=2 toy.py\n",
        "$ torchrun --nproc_per_node=2 toy.py\n",
    ],
    ids=["another program", "two settings", "no setting"],
)
def test_anything_else_is_no_trial(again, tmp_path):
    assert trials(tmp_path, PLAIN + again + DONE) == []
