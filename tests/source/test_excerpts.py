"""The code around a place, found by the end of its path."""

from __future__ import annotations

from whichrank.model.findings import CodePlace
from whichrank.source.excerpts import find_excerpts


def write(root, path, lines):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(f"line {n}" for n in range(1, lines + 1)))


def test_the_file_whose_path_ends_most_alike_is_taken(tmp_path):
    write(tmp_path, "a/train.py", 30)
    write(tmp_path, "src/jobs/train.py", 40)
    (found,) = find_excerpts(tmp_path, [CodePlace("/home/user/src/jobs/train.py", 12)])
    assert found.path == "src/jobs/train.py"
    assert found.first == 8
    assert found.lines[4] == "line 12"
    assert len(found.lines) == 9


def test_lines_that_the_file_does_not_have_are_left_out(tmp_path):
    write(tmp_path, "train.py", 5)
    assert find_excerpts(tmp_path, [CodePlace("train.py", 90), CodePlace("other.py", 1)]) == ()


def test_the_first_lines_have_nothing_before_them(tmp_path):
    write(tmp_path, "train.py", 5)
    (found,) = find_excerpts(tmp_path, [CodePlace("train.py", 1)])
    assert (found.first, found.lines[0]) == (1, "line 1")
