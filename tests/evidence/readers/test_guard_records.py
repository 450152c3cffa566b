"""Records of guards: read whole, cut, damaged and hostile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whichrank.evidence.readers import guard_records
from whichrank.model.contracts import Item

START = {"t": "start", "rank": 1, "world": 4, "host": "node7", "pid": 77, "attempt": 0,
         "gpu": {"index": 1, "uuid": "GPU-1"}}  # fmt: skip
LAYOUT = {"t": "layout", "o": 0, "id": "a", "parts": 1, "units": [["w", "parameter", "0-3", [4], "float32"]],
          "pieces": [[[0, 0]]]}  # fmt: skip
SLICE = {"t": "slice", "o": 0, "s": 3, "l": "a", "q": 0, "p": "0123abcd"}


def item(tmp_path: Path, *lines: object, tail: str = "") -> Item:
    path = tmp_path / "rank_1.guard.jsonl"
    text = "".join(
        json.dumps(line, separators=(",", ":")) + "\n" if isinstance(line, dict) else f"{line}\n" for line in lines
    )
    path.write_text(text + tail)
    return Item(path, path.name, path.stat().st_size, 0)


def test_a_whole_file(tmp_path):
    given = item(tmp_path, START, {"t": "gpu", "serial": "1654922012345"}, LAYOUT, SLICE)
    assert guard_records.sniff(given.head(), given.label)
    reading = guard_records.read(given)
    (file,) = reading.records
    assert reading.quality == "complete"
    assert (file.rank, file.world, file.host, file.gpu_uuid) == (1, 4, "node7", "GPU-1")
    assert file.gpu_serial == "1654922012345"
    assert [note.kind for note in file.notes] == ["start", "gpu", "layout", "slice"]


def test_a_torn_last_line_is_left_out(tmp_path):
    reading = guard_records.read(item(tmp_path, START, SLICE, tail='{"t":"slice","o":0,"s"'))
    assert reading.quality == "partial"
    assert len(reading.records[0].notes) == 2


@pytest.mark.parametrize(
    "bad",
    [
        "no JSON", "[]", {"t": "nobody knows this"}, {**SLICE, "s": -1}, {**SLICE, "s": "3"}, {**SLICE, "p": "<b>"},
        {**LAYOUT, "pieces": [[[7, 0]]]}, {**LAYOUT, "pieces": []}, {**LAYOUT, "units": [[1]]},
        {"t": "calls", "g": "0", "n": 0, "x": [["a"], 1 << 40]}, {"t": "group", "g": "0", "r": [-1]},
        {"t": "loss", "o": 0, "s": [1], "x": []},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_left_out(tmp_path, bad):
    reading = guard_records.read(item(tmp_path, START, bad, SLICE))
    assert reading.quality == "partial"
    assert [note.kind for note in reading.records[0].notes] == ["start", "slice"]


def test_a_guard_that_could_not_begin_says_why(tmp_path):
    reading = guard_records.read(item(tmp_path, '{"t": "off", "why": "AttributeError: no such thing"}'))
    assert not reading.records
    assert "AttributeError" in reading.note
