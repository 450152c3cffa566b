"""What the source says about a line, and what a script imports."""

from __future__ import annotations

from pathlib import Path

from whichrank.rehearse import imports, scratch, view, wording

SOURCE = """\
import torch
import helper
from collections import deque


def step(rank, batch):
    for x in batch:
        if rank == 0:
            save(x)
        try:
            share(x)
        except ValueError:
            pass
    while True:
        if done():
            break
"""


def test_surroundings(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    inside = view.around(str(path), 9)
    assert inside.on_rank == (8, "rank == 0")
    assert inside.loops == ((7, 13, False),)
    assert view.around(str(path), 11).swallowed == 10
    assert view.around(str(path), 15).loops == ((14, 16, True),)
    assert view.around(str(path), 1).loops == ()
    assert view.source_line(str(path), 11) == "share(x)"
    assert view.around(str(tmp_path / "absent.py"), 3) == view.Surroundings()


def test_imports_of_the_script_and_of_its_own_modules(tmp_path):
    (tmp_path / "train.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text("import numpy.random\nimport json\ndef f():\n    import never\n")
    assert imports.imported(tmp_path / "train.py") == ["torch", "numpy.random"]


def test_scratch_copies_small_files_and_links_large_ones(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    (source / ".git").mkdir(parents=True)
    (source / "deep").mkdir()
    (source / "deep" / "x.py").write_text("1")
    (source / "data.bin").write_bytes(bytes(scratch.COPIED_BYTES + 1))
    assert scratch.copy(source, target) == []
    assert (target / "deep" / "x.py").read_text() == "1"
    assert (target / "data.bin").is_symlink()
    assert not (target / ".git").exists()
    assert Path(target, "data.bin").stat().st_size == scratch.COPIED_BYTES + 1


def test_words():
    assert wording.ranks([3]) == "rank 3"
    assert wording.ranks([0, 1, 2, 5]) == "ranks 0-2, 5"
    assert wording.do([1], "wait", "waits") == "Rank 1 waits"
