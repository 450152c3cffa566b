"""The collector that travels: every Python from 3.8 on runs it, and it writes no file."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from whichrank.run.first_response import travelling


def version(path):
    return tuple(map(int, path.parts[-3].split(".")))


VERSIONS = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
PYTHONS = sorted(VERSIONS.glob("3.*/bin/python3"), key=version)
NEW = [path for path in PYTHONS if version(path)[:2] >= travelling.OLDEST]
OLD = [path for path in PYTHONS if path not in NEW]


def run(python, wishes, environment=None):
    packed = travelling.archive()
    return subprocess.run(
        travelling.command(str(python), len(packed)), input=packed + json.dumps(wishes).encode(), capture_output=True,
        timeout=60, check=False, env=environment,
    )  # fmt: skip


def opened(output):
    line, _, archive = output.partition(b"\n")
    return json.loads(line.partition(b" ")[2]), tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz")


@pytest.mark.parametrize("python", [Path(sys.executable), *NEW[:1], *NEW[-1:]], ids=str)
def test_it_takes_a_rank_with_this_python(python, tmp_path):
    """The rank is a process with the variables of one, which is all that is known from outside."""
    log = tmp_path / "output"
    known = {**os.environ, "RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "here", "MASTER_PORT": f"{os.getpid()}"}
    known |= {"HF_TOKEN": "hf_abcdefghijkl", "NCCL_DEBUG": "INFO"}
    with log.open("w") as stream:
        rank = subprocess.Popen(["sleep", "60"], env=known, stdout=stream)
    try:
        log.write_text("step 1 done\n")
        done = run(python, {"token": "t", "limit_s": 20, "job": f"here:{os.getpid()}"})
    finally:
        rank.kill()
        rank.wait()
    assert done.returncode == 0, done.stderr.decode()
    hello, archive = opened(done.stdout)
    assert hello["token"] == "t"
    document = json.load(archive.extractfile("node.json"))
    assert document["jobs"][0]["ranks"] == [3]
    names = archive.getnames()
    assert {"bundle/manifest.json", "bundle/environment/rank_3.env", "bundle/last_words.json"} <= set(names)
    environment = archive.extractfile("bundle/environment/rank_3.env").read().decode()
    assert "NCCL_DEBUG=INFO" in environment
    assert "hf_abc" not in environment
    manifest = json.load(archive.extractfile("bundle/manifest.json"))
    assert {file["host"] for file in manifest["files"]} == {hello["host"]}
    assert any(gap["what"] == "stacks" for gap in manifest["missing"])  # sleep is not Python


@pytest.mark.skipif(not OLD, reason="no Python older than 3.8 here")
def test_an_old_python_is_told(tmp_path):
    done = run(OLD[-1], {})
    assert done.returncode == 127
    assert b"no Python 3.8 or newer" in done.stderr


def test_it_needs_the_standard_library_alone():
    """What travels imports nothing of others, and is found without importing anything."""
    code = "import sys; from whichrank.run.first_response import travelling as t; t.archive(); print(*sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"torch", "numpy", "click", "msgspec"} & set(told)
    assert "whichrank.run.watch.capture" in travelling.modules()
    assert len(travelling.archive()) < 200_000
