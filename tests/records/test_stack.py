"""Which frames are the training code's."""

from __future__ import annotations

import pytest

from whichrank.records.dump import Frame
from whichrank.records.stack import is_user_frame


@pytest.mark.parametrize(
    ("file", "function", "expected"),
    [
        ("train_lm.py", "main", True),
        ("/srv/app/train.py", "main", True),
        ("mypackage/data/loader.py", "read", True),
        ("test.py", "main", True),
        ("<stdin>", "f", True),
        ("torch/cuda/__init__.py", "synchronize", False),
        ("/opt/v/lib/python3.12/site-packages/mylib/x.py", "f", False),
        ("/usr/lib/python3/dist-packages/x.py", "f", False),
        ("/usr/lib/python3.12/threading.py", "wait", False),
        ("/workspace/pytorch/torch/distributed/distributed_c10d.py", "all_reduce", False),
        ("/home/me/torch_experiments/train.py", "f", True),
        ("threading.py", "wait", False),
        ("multiprocessing/connection.py", "poll", False),
        ("<frozen importlib._bootstrap>", "_load", False),
        ("libc.so.6", "poll", False),
        ("ProcessGroupNCCL.cpp", "wait", False),
    ],
)
def test_user_frames(file: str, function: str, expected: bool) -> None:
    assert is_user_frame(Frame(function, file, 1)) is expected
