"""Fragments of training code: where ranks part ways around a collective."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from whichrank.evidence.readers import training_code
from whichrank.model.contracts import Item
from whichrank.records.clue import CodeClue


def read(folder: Path, text: str) -> list[CodeClue]:
    path = folder / "train.py"
    path.write_text(text)
    return training_code.read(Item(path, "train.py", path.stat().st_size, time.monotonic_ns())).records


@pytest.mark.parametrize(
    "guard",
    ["rank == 0", "dist.get_rank() == 0", "accelerator.is_main_process", "self.local_rank == 0", "not rank",
     "trainer.is_global_zero and step % 10 == 0", "int(os.environ['RANK']) == 0 or rank == 0"],
)  # fmt: skip
def test_a_guarded_collective(tmp_path, guard):
    (clue,) = read(tmp_path, f"x = 1\nif {guard}:\n    log()\n    dist.all_gather(out, x)\ny = 2\n")
    assert (clue.kind, clue.line, clue.calls) == ("guarded", 4, ("all_gather",))


@pytest.mark.parametrize(
    "guard",
    [
        "if rank != 0:",
        "if not self.is_main_process:",
        "if (\n        dist.is_initialized()\n        and rank > 0\n    ):",
    ],
)
def test_a_collective_that_only_one_rank_comes_to(tmp_path, guard):
    head = f"def save(self):\n    {guard}\n        return\n    write(self)\n"
    code = f"{head}    if dist.is_initialized():\n        dist.barrier()\n"
    (clue,) = read(tmp_path, code)
    assert (clue.kind, clue.calls) == ("guarded", ("barrier",))
    assert clue.guard.startswith("not (")


@pytest.mark.parametrize(
    "code",
    [
        "def save():\n    if rank != 0:\n        return\n    write()\n\ndef load():\n    dist.barrier()\n",
        "if rank != 0:\n    log()\ndist.barrier()\n",
        "def save():\n    if rank != 0:\n        dist.barrier()\n        return\n    write()\n    dist.barrier()\n",
        "if rank == 0:\n    save(model)\ndist.barrier()\n",
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()\n",
        "if step == 0:\n    dist.barrier()\n",
        "# if rank == 0: dist.barrier()\n",
        "if rank == 0:\n    socket.send(data)\n",
    ],
)
def test_what_all_ranks_reach_is_no_clue(tmp_path, code):
    assert read(tmp_path, code) == []


def test_work_between_barriers(tmp_path):
    code = (
        "if rank != 0:\n    dist.barrier()\ndata = load_dataset('x').map(tokenize)\nif rank == 0:\n    dist.barrier()\n"
    )
    assert {clue.kind for clue in read(tmp_path, code)} == {"between_barriers"}


def test_crossed_orders(tmp_path):
    code = "if rank == 0:\n    dist.recv(x, 1)\n    dist.send(y, 1)\nelse:\n    dist.recv(x, 0)\n    dist.send(y, 0)\n"
    (clue,) = read(tmp_path, code)
    assert (clue.kind, clue.calls) == ("crossed", ("recv", "send"))
    assert (
        read(tmp_path, code.replace("recv(x, 0)", "A").replace("send(y, 0)", "recv(x, 0)").replace("A", "send(y, 0)"))
        == []
    )


@pytest.mark.parametrize(
    "text", ["", "if", "if rank == 0:", "\tif rank==0:\n" * 2000, "(" * 5000, "if rank == 0:\n" + " x" * 9999]
)
def test_fragments_and_odd_files_are_survived(tmp_path, text):
    read(tmp_path, text)
