"""Frames of a dump cost no import of torch's compiler; who wants the compiler still gets it."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading

import pytest

from whichrank.worker.recorder_frames import without_compiler

DUMP = """
import os, sys
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0", TORCH_FR_BUFFER_SIZE="100")
import torch, torch.distributed as dist
from torch._C import _distributed_c10d as recorder
from whichrank.worker.recorder_frames import without_compiler
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
def issues_it():
    dist.all_reduce(torch.ones(1))
issues_it()
with without_compiler():
    data = recorder._dump_fr_trace(True, True, False)
assert b"issues_it" in data, data
assert "torch._inductor" not in sys.modules
assert not any("Refuses" in type(finder).__name__ for finder in sys.meta_path)
dist.destroy_process_group()
"""


@pytest.mark.job
def test_frames_are_there_without_the_compiler():
    done = subprocess.run([sys.executable, "-c", DUMP], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_other_threads_import_it_meanwhile(tmp_path, monkeypatch):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    (tmp_path / "torch" / "_inductor.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
        monkeypatch.delitem(sys.modules, name)
    with without_compiler():
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("torch._inductor")
        other = threading.Thread(target=importlib.import_module, args=("torch._inductor",))
        other.start()
        other.join()
    assert "torch._inductor" in sys.modules
    for name in ("torch", "torch._inductor"):
        sys.modules.pop(name, None)
