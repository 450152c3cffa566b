"""What ends a child of multiprocessing is heard, however it was started."""

import multiprocessing
import sys

import pytest

from whichrank.worker.exits import hear_the_end


def child(how, path):
    def tell(error):
        path.write_text(repr(error))

    assert hear_the_end(tell)
    if how == "raises":
        raise ValueError("on purpose")
    if how != "ends":
        try:
            raise KeyError("inside")
        except KeyError:
            sys.exit(1 if how == "leaves by a code" else 0)


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.parametrize(
    ("how", "heard"),
    [
        ("raises", "ValueError('on purpose')"),
        ("leaves by a code", "KeyError('inside')"),
        ("leaves well", ""),
        ("ends", ""),
    ],
)
def test_what_ends_a_child(tmp_path, method, how, heard):
    path = tmp_path / "heard"
    process = multiprocessing.get_context(method).Process(target=child, args=(how, path))
    process.start()
    process.join(60)
    assert (path.read_text() if path.exists() else "") == heard


def test_who_is_no_child_hears_nothing():
    assert not hear_the_end(print)
