"""The recorded hang that ships with the project, by the command that the README names."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile

from tests.conftest import command_environment


def verdict(whichrank, *arguments):
    done = whichrank("diagnose", *arguments, "--format", "json")
    assert (done.returncode, done.stderr) == (1, "")
    return json.loads(done.stdout)


def test_the_culprit_is_named_and_the_others_wait(whichrank_process, example):
    told = verdict(whichrank_process, example)
    assert told["verdict"]["category"] == "hang"
    assert told["verdict"]["cause"] == "conditional-collective"
    assert told["verdict"]["culprits"]["ranks"] == [2]
    assert told["verdict"]["victims"]["ranks"] == [0, 1, 3]
    assert "sync_grads" in {place["function"] for place in told["verdict"]["culprits"]["code"]}


def test_an_archive_tells_the_same(whichrank, example, tmp_path):
    with tarfile.open(tmp_path / "bundle.tar.gz", "w:gz") as archive:
        archive.add(example, arcname="dumps")
    packed, plain = verdict(whichrank, tmp_path / "bundle.tar.gz"), verdict(whichrank, example)
    assert packed["verdict"] == plain["verdict"]
    quoted = packed["findings"][0]["evidence"][0]["source"]
    assert quoted.startswith("bundle.tar.gz/dumps/fr_trace_rank_")


def test_nothing_recognised_is_not_enough_evidence(whichrank, tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0")
    done = whichrank("diagnose", tmp_path)
    assert done.returncode == 3
    assert "photo.jpg" in done.stdout + done.stderr


def test_an_output_that_can_not_be_written_is_not_a_defect(example):
    command = f"{sys.executable} -m whichrank diagnose {example} --quiet"
    for where, words in (("> /dev/full", "No space left on device"), (">&-", "standard output is closed")):
        done = subprocess.run(
            ["bash", "-c", f"{command} {where}"], capture_output=True, text=True, env=command_environment(), check=False
        )
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
