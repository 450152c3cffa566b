"""Last words: whole after any death, readable by anybody, and never the job's problem."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import cost
from whichrank.model import last_words as layout
from whichrank.run.watch import private
from whichrank.worker.lastwords import Recorder


def written(folder: Path) -> list[layout.Words]:
    found = [layout.newest(path.read_bytes()) for path in sorted(folder.glob(f"*{layout.SUFFIX}"))]
    return [words for words in found if words is not None]


def python(code: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    if not (folder / private.HOOK).exists():
        private.install(folder)
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RANK", "WORLD_SIZE")} | more
    environ |= private.variables(folder, environ)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environ, check=False)


def test_what_is_noted_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    recorder = Recorder(str(tmp_path))
    recorder.note(
        phase=layout.JOINED, enqueued=12, completed=11, pending=1, place="train.py:7 step", operation="barrier"
    )
    (words,) = written(tmp_path)
    assert (words.rank, words.world, words.pid) == (3, 8, os.getpid())
    assert (words.enqueued, words.completed, words.place, words.operation) == (12, 11, "train.py:7 step", "barrier")
    assert words.waiting
    assert words.is_rank


def test_a_torn_write_leaves_the_one_before(tmp_path):
    recorder = Recorder(str(tmp_path))
    for count in range(1, 6):
        recorder.note(enqueued=count)
    (file,) = tmp_path.glob(f"*{layout.SUFFIX}")
    data = bytearray(file.read_bytes())
    newest = max(range(2), key=lambda s: layout.unpack(bytes(data[s * layout.SLOT : (s + 1) * layout.SLOT])).beat)
    data[newest * layout.SLOT + 600] ^= 0xFF
    words = layout.newest(bytes(data))
    assert words is not None
    assert words.enqueued == 4


@pytest.mark.parametrize("size", [0, 7, layout.SLOT, layout.SIZE, 3 * layout.SIZE])
def test_anything_can_be_read(size):
    assert layout.newest(random.Random(size).randbytes(size)) is None
    assert layout.newest(b"\0" * size) is None


def test_long_texts_and_odd_letters(tmp_path):
    recorder = Recorder(str(tmp_path))
    recorder.note(place="é" * 4000, error="\ud800 lone")
    (words,) = written(tmp_path)
    assert words.place.startswith("é" * 100)


def test_a_write_is_cheap(tmp_path):
    recorder = Recorder(str(tmp_path))
    with cost.at_most(2000 * 100e-6):
        for count in range(2000):
            recorder.note(enqueued=count)


def test_the_words_outlive_a_kill(tmp_path):
    done = python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", tmp_path, RANK="5")
    assert done.returncode == -signal.SIGKILL
    (words,) = written(tmp_path)
    assert (words.rank, words.phase) == (5, layout.STARTED)


def test_an_exception_is_kept_whatever_the_hook(tmp_path):
    code = "import sys\nsys.excepthook = lambda *_: None\nraise ValueError('on purpose')"
    assert python(code, tmp_path).returncode == 1
    (words,) = written(tmp_path)
    assert (words.phase, words.error) == (layout.FAILED, "ValueError: on purpose")
    (file,) = tmp_path.glob("*.error")
    assert "ValueError: on purpose" in file.read_text()


def test_a_forked_child_has_words_of_its_own(tmp_path):
    python("import os\nif os.fork() == 0: os._exit(0)\nos.wait()", tmp_path)
    assert len({words.pid for words in written(tmp_path)}) == 2


def test_the_sites_own_customization_runs(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys; sys.from_the_site = __file__")
    code = "import sys, sitecustomize; print(sys.from_the_site, sitecustomize.__file__, len(sys.path))"
    plain = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(site)},
        check=False,
    )
    hooked = python(code, tmp_path, PYTHONPATH=str(site))
    assert hooked.stdout == plain.stdout, hooked.stderr
    assert written(tmp_path)


def test_a_customization_that_fails_fails_as_before(tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("raise RuntimeError('the site is broken')")
    hooked = python("print('on it goes')", tmp_path, PYTHONPATH=str(site))
    assert hooked.returncode == 0
    assert hooked.stdout == "on it goes\n"
    assert "the site is broken" in hooked.stderr


def test_nothing_heavy_and_no_thread_before_torch(tmp_path):
    code = (
        "import sys, threading\n"
        "heavy = {'torch', 'numpy', 'whichrank', 'logging', 'subprocess'}\n"
        "print(threading.active_count(), sorted(heavy & set(sys.modules)))"
    )
    assert python(code, tmp_path).stdout == "1 []\n"


@pytest.mark.parametrize("how", ["absent", "file", "unwritable"])
def test_a_broken_folder_harms_nobody(tmp_path, how):
    private.install(tmp_path)
    broken = tmp_path / "broken"
    if how == "file":
        broken.write_text("")
    elif how == "unwritable":
        broken = Path("/proc/self")
    environ = {**os.environ, **private.variables(tmp_path, {}), "WHICHRANK_PRIVATE": str(broken)}
    done = subprocess.run(
        [sys.executable, "-c", "print('on it goes')"], capture_output=True, text=True, env=environ, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "on it goes\n", "")
