"""The reader of `error.json`, in the form that torch's `record` writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whichrank.evidence.readers import error_json
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.events.base import Event

LABEL = "logs/none_abc/attempt_1/3/error.json"
STACK = """\
Traceback (most recent call last):
  File "/opt/torch/elastic/errors/__init__.py", line 362, in wrapper
    return f(*args, **kwargs)
  File "/srv/app/train.py", line 12, in main
    raise ValueError("bad: batch")
ValueError: bad: batch
"""


def read(folder: Path, content: object, label: str = LABEL) -> Reading:
    path = folder / "error.json"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return error_json.read(Item(path, label, path.stat().st_size, 0))


def test_a_recorded_exception(tmp_path: Path) -> None:
    extra = {"py_callstack": STACK, "timestamp": "1794701375"}
    reading = read(tmp_path, {"message": {"message": "ValueError: bad: batch", "extraInfo": extra}})
    (event,) = reading.records
    assert isinstance(event, Event)
    assert (event.kind, event.time_ns) == ("traceback", 1794701375 * 10**9)
    assert (event.rank, event.local_rank, event.attempt) == (None, 3, 1)
    assert (event.type, event.message, event.truncated) == (
        "ValueError",
        "bad: batch",
        0,
    )
    assert [(frame.function, frame.line) for frame in event.frames] == [("wrapper", 362), ("main", 12)]
    assert reading.quality == "complete"


def test_a_bare_message(tmp_path: Path) -> None:
    reading = read(tmp_path, {"message": "RuntimeError: no stack"})
    assert reading.records[0].type == "RuntimeError"
    assert reading.records[0].message == "no stack"
    assert (reading.quality, reading.note) == ("partial", "no call stack, no time")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"[]", b'{"message": 3}', b'{"message": {"message": 1}}']
)
def test_what_is_no_error_json(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnreadableError):
        read(tmp_path, content)


def test_sniffing() -> None:
    assert error_json.sniff(b'{"message": {"message": "x", "extraInfo": {}}}', "anything")
    assert error_json.sniff(b' {"message": "x"}', "error.json")
    assert not error_json.sniff(b'{"message": "x"}', "other.json")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["message", "extraInfo", "py_callstack", "timestamp"]), inner, max_size=4)
    ),
)


@given(JSON)
def test_any_json_is_survived(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    try:
        reading = read(tmp_path_factory.mktemp("fuzz"), content)
    except UnreadableError:
        return
    assert len(reading.records) == 1
