"""What a process writes when it is asked: its stacks, and the exception that it is handling."""

from __future__ import annotations

import sys
import threading

import pytest

from whichrank.evidence.readers import stacks
from whichrank.model.contracts import Item
from whichrank.worker.written import write_stacks


def asked(folder):
    """As whichrank's own thread does it."""
    asker = threading.Thread(target=write_stacks, args=(str(folder / "rank_3"), "1"))
    asker.start()
    asker.join()


def handled(folder):
    path = folder / "rank_3.1.stacks"
    (stack,) = stacks.read(Item(path, "stacks/rank_3.txt", path.stat().st_size, 0)).records
    assert stack.rank == 3
    return stack.handling


class Session:
    def __init__(self, folder):
        self.folder = folder

    def __enter__(self):
        return self

    def __exit__(self, *error):
        asked(self.folder)


class StubbornError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def sample(neighbours):
    return neighbours[7]


def ends_in_finally(folder):
    try:
        raise KeyError("labels\nand a line more")
    finally:
        asked(folder)


def test_what_led_into_exit(tmp_path):
    with pytest.raises(IndexError), Session(tmp_path):
        sample([])
    told = handled(tmp_path)
    assert (told.type, told.text) == ("IndexError", "list index out of range")
    assert told.frame.function == "sample"


def test_what_led_into_except_and_finally(tmp_path):
    try:
        sample([])
    except IndexError:
        asked(tmp_path)
    assert handled(tmp_path).type == "IndexError"
    with pytest.raises(KeyError):
        ends_in_finally(tmp_path)
    told = handled(tmp_path)
    assert (told.type, "\n" in told.text) == ("KeyError", False)


def test_nothing_where_nothing_was_raised_or_its_words_fail(tmp_path):
    with Session(tmp_path):
        pass
    assert handled(tmp_path) is None
    try:
        raise StubbornError
    except StubbornError:
        asked(tmp_path)
    assert handled(tmp_path) is None
    assert sys.exc_info()[1] is None
