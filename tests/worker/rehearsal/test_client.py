"""What a rank tells of where it is."""

from __future__ import annotations

import functools
import sys

from whichrank.worker.rehearsal.client import called


def quietly(function):
    @functools.wraps(function)
    def _wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return _wrapper


@quietly
def clip_norm(frames):
    frames += [sys._getframe(), sys._getframe(1)]


def test_a_wrapper_is_called_what_it_wraps():
    frames = []
    clip_norm(frames)
    assert [called(frame) for frame in frames] == [f"{__name__}.clip_norm"] * 2


def test_a_plain_function_is_called_by_its_name():
    def inner():
        return sys._getframe()

    assert called(inner()).rpartition(".")[2] == "inner"
