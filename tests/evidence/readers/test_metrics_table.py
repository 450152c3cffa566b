"""Tables of metrics: the steps in columns, and whose loss turned first."""

from __future__ import annotations

from pathlib import Path

import pytest

from whichrank.evidence.readers import metrics_table
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.contracts import Item
from whichrank.records.events.run_state import LossNonfinite
from whichrank.records.log import NOT_A_NUMBER, Progress

TABLE = "rank,step,loss,grad_norm\n0,1,2.5,1.0\n1,1,2.4,1.1\n0,2,2.3,0.9\n1,2,nan,nan\n0,3,nan,nan\n1,3,nan,nan\n"


def _item(path: Path, text: str) -> Item:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Item(path, path.name, len(text), 0)


def test_rows_become_steps(tmp_path: Path) -> None:
    item = _item(tmp_path / "metrics.csv", TABLE)
    assert metrics_table.sniff(item.head(), "metrics.csv")
    progress, *turned = metrics_table.read(item).records
    assert isinstance(progress, Progress)
    assert progress.step.tolist() == [1, 1, 2, 2, 3, 3]
    assert progress.line.tolist() == [2, 3, 4, 5, 6, 7]
    assert progress.loss_state.tolist()[3:] == [NOT_A_NUMBER] * 3
    assert [(e.rank, e.step, e.line) for e in turned if isinstance(e, LossNonfinite)] == [(1, 2, 5), (0, 3, 6)]


def test_whose_loss_turned_first(tmp_path: Path) -> None:
    _item(tmp_path / "metrics.csv", TABLE)
    verdict = diagnose([tmp_path]).verdict
    assert (verdict.cause, verdict.culprits.ranks) == ("nan-origin", (1,))


def test_cells_of_an_evaluation_are_empty(tmp_path: Path) -> None:
    item = _item(tmp_path / "metrics.csv", "epoch,step,train_loss,val_loss\n0,10,2.5,\n0,20,,1.9\n0,30,2.1,\n")
    (progress,) = metrics_table.read(item).records
    assert progress.step.tolist() == [10, 30]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gpus.csv", "index, name, memory\n0, NVIDIA H100, 80\n"),
        ("job.log", "step 10, loss 2.5, lr 0.1\nstep 20, loss 2.4, lr 0.1\n"),
        ("train.py", "rank,step,loss\n0,1,2.0\n"),
    ],
)
def test_other_texts(name: str, text: str) -> None:
    assert not metrics_table.sniff(text.encode(), name)
