"""The referee by itself: frames, keys, which calls fit together, and the real values that come of them."""

from __future__ import annotations

import socket

import pytest

from tests import needs
from whichrank.worker.rehearsal import wire
from whichrank.worker.rehearsal.calls import Call, disagreement
from whichrank.worker.rehearsal.keys import Keys

torch = needs.package("torch")
referees = needs.later("whichrank.worker.rehearsal.referee")
values = needs.later("whichrank.worker.rehearsal.values")


def call(rank, **signature):
    return Call(1, rank, "0", 1, signature, [], bytearray())


@pytest.mark.parametrize("size", [0, 5, 1 << 16, 300_000])
def test_frames_pass_whole_however_they_arrive(size):
    here, there = socket.socketpair()
    here.setblocking(False)
    inbox, frames = wire.Inbox(), []
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    data = wire.pack({"t": "a"}, size) + payload + wire.pack({"t": "b"}, 0)
    for start in range(0, len(data), 7919):
        there.sendall(data[start : start + 7919])
        found, alive = inbox.read(here)
        assert alive
        frames += found
    there.close()
    assert [header["t"] for header, _ in frames] == ["a", "b"]
    assert bytes(frames[0][1]) == payload
    assert inbox.read(here) == ([], False)
    here.close()


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({}, None),
        ({"op": "broadcast"}, "op"),
        ({"dtype": "float64"}, "dtype"),
        ({"reduce": "MAX"}, "reduce"),
        ({"count": 5}, "size"),
    ],
)
def test_what_does_not_fit(change, what):
    usual = {"op": "all_reduce", "dtype": "float32", "reduce": "SUM", "count": 4}
    assert disagreement([call(0, **usual), call(1, **{**usual, **change})]) == what


def test_uneven_splits_fit_where_both_sides_say_so():
    one = {"op": "all_to_all", "dtype": "float32", "splits_in": [4, 8], "splits_out": [4, 12]}
    other = {"op": "all_to_all", "dtype": "float32", "splits_in": [12, 4], "splits_out": [8, 4]}
    assert disagreement([call(0, **one), call(1, **other)]) is None
    assert disagreement([call(0, **one), call(1, **{**other, "splits_out": [4, 4]})]) == "size"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int64"])
def test_reductions_are_real(dtype):
    name, dtype = dtype, getattr(torch, dtype)
    tensors = [torch.arange(4).to(dtype) * factor for factor in (1, 2, 3)]
    signature = {"op": "all_reduce", "dtype": name, "reduce": "SUM"}
    found = values.results([signature] * 3, [bytearray(values.raw(tensor)) for tensor in tensors])
    for one in found:
        assert torch.equal(torch.frombuffer(bytearray(one), dtype=dtype), sum(tensors[1:], tensors[0]))


def test_half_overflows_as_on_a_gpu():
    big = torch.full((2,), 60000.0, dtype=torch.float16)
    signature = {"op": "all_reduce", "dtype": "float16", "reduce": "SUM"}
    found = values.results([signature] * 2, [bytearray(values.raw(big))] * 2)
    assert torch.isinf(torch.frombuffer(bytearray(found[0]), dtype=torch.float16)).all()


def test_a_key_is_waited_for():
    keys = Keys()
    asked = {"op": "get", "s": "default", "key": "a"}
    assert keys.ask(asked, b"") is None
    keys.wait(asked, (1, 7))
    assert keys.ready() == []
    keys.ask({"op": "set", "s": "other", "key": "a"}, b"no")
    assert keys.ready() == []
    keys.ask({"op": "set", "s": "default", "key": "a"}, b"yes")
    assert keys.ready() == [(1, 7, b"yes")]
    assert keys.ask({"op": "add", "s": "default", "key": "n", "amount": 3}, b"") == ({"value": 3}, b"")


def blocking(number, **facts):
    return {"id": number, "b": 1, "main": True, "threads": 0, "off": 0.0, "at": [], **facts}


def test_the_clock_jumps_to_the_earliest_sleeper_only_when_asked():
    referee = referees.Referee(2)
    for rank in (0, 1):
        referee.seat(rank, 100 + rank, rank)
    referee.hear(referee.seats[0], blocking(1, t="sleep", s=5.0), bytearray())
    referee.hear(referee.seats[1], blocking(1, t="sleep", s=60.0), bytearray())
    assert all(seat.blocked for seat in referee.seats.values())
    assert referee.wake()
    assert not referee.seats[0].blocked
    assert referee.seats[1].blocked
    assert referee.seats[0].offset == pytest.approx(5.0)
    assert referee.wake()
    assert not referee.wake()
