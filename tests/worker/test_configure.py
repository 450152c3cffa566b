"""`whichrank.configure`: before torch, never over what is set."""

import os
import subprocess
import sys

import pytest

import whichrank
from whichrank.model.errors import UsageError
from whichrank.worker.configure import TooLateError


@pytest.fixture
def clean(monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith(("NCCL_", "TORCH_")):
            del os.environ[name]
    yield tmp_path / "out"
    os.environ.clear()
    os.environ.update(before)


def test_it_sets_and_says_what(clean):
    settings = whichrank.configure("debug", out=str(clean))
    assert clean.is_dir(), "NCCL and PyTorch don't make the folder"
    values = {s.name: s.value for s in settings}
    assert values["NCCL_DEBUG"] == os.environ["NCCL_DEBUG"] == "INFO"
    assert values["NCCL_DEBUG_FILE"] == f"{clean}/nccl.%h.%p.log"
    assert all(s.reason and s.source for s in settings)


def test_what_is_set_stays(clean):
    os.environ["NCCL_DEBUG"] = "TRACE"
    os.environ["TORCH_NCCL_TRACE_BUFFER_SIZE"] = "7"
    settings = whichrank.configure(out=str(clean), NCCL_DEBUG="WARN")
    assert os.environ["NCCL_DEBUG"] == "TRACE"
    assert "TORCH_FR_BUFFER_SIZE" not in os.environ, "it would win over the user's old name"
    assert not {"NCCL_DEBUG", "TORCH_FR_BUFFER_SIZE"} & {s.name for s in settings}


def test_overrides(clean):
    whichrank.configure(out=str(clean), NCCL_DEBUG="VERSION", PYTHONFAULTHANDLER=None, NCCL_CROSS_NIC="0")
    assert os.environ["NCCL_DEBUG"] == "VERSION"
    assert os.environ["NCCL_CROSS_NIC"] == "0"


@pytest.mark.parametrize(("overrides", "word"), [({"NCCL_DEBGU": "INFO"}, "NCCL_DEBUG"), ({"NCCL_DEBUG": 3}, "'3'"),
                                                 ({"TORCH_FR_CPP_STACK": "on"}, "hangs")])  # fmt: skip
def test_wrong_overrides_are_refused(clean, overrides, word):
    with pytest.raises(UsageError) as caught:
        whichrank.configure(out=str(clean), **overrides)
    assert word in f"{caught.value.message} {caught.value.hint}"
    assert "NCCL_DEBUG" not in os.environ, "nothing is set when something is refused"


def test_an_unknown_purpose(clean):
    with pytest.raises(UsageError):
        whichrank.configure("fun")


def test_too_late(clean, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", object())
    with pytest.raises(TooLateError) as caught:
        whichrank.configure(out=str(clean))
    assert "above `import torch`" in caught.value.hint
    assert "NCCL_DEBUG" not in os.environ


def test_importing_whichrank_loads_nothing():
    code = "import sys, whichrank; print(sorted(m for m in sys.modules if m.split('.')[0] in ('whichrank', 'torch')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['whichrank']"
