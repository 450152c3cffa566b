"""Evidence by fsspec: the same verdict as from local files, bounded, and nothing outside the folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec")

from whichrank.cli.main import run  # noqa: E402
from whichrank.evidence import remote  # noqa: E402
from whichrank.model.errors import UsageError  # noqa: E402

SAMPLE = Path(__file__).parents[1] / "samples/flight_recorder/gloo_skip"


@pytest.fixture
def bucket():
    system = fsspec.filesystem("memory")
    for path in SAMPLE.rglob("*"):
        if path.is_file():
            system.pipe_file(f"/bucket/job/{path.relative_to(SAMPLE)}", path.read_bytes())
    yield system
    system.rm("/bucket", recursive=True)


def ran(capsys, *words):
    return run(words), capsys.readouterr()


@pytest.mark.parametrize("url", ["memory://bucket/job", f"file://{SAMPLE}"])
def test_the_same_verdict_as_from_local_files(bucket, url, capsys):
    code, said = ran(capsys, "diagnose", "--format", "json", url)
    there = json.loads(said.out)
    local, said = ran(capsys, "diagnose", "--format", "json", str(SAMPLE))
    assert code == local == 1
    assert there["verdict"] == json.loads(said.out)["verdict"]


def test_summaries_of_a_store(bucket, capsys, tmp_path):
    out = tmp_path / "job.whichrank"
    code, said = ran(capsys, "reduce", "memory://bucket/job", "--out", str(out))
    assert code == 0, said.err
    assert out.stat().st_size > 500
    code, said = ran(capsys, "reduce", "memory://bucket/job")
    assert code == 2
    assert "--out" in said.err


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("memory://bucket/nothing", "nothing at"),
        ("nosuch://x/y", "unknown protocol"),
        ("file:///nonexistent/x", "nothing at"),
    ],
)
def test_what_can_not_be_had_is_a_usage_error(url, why, tmp_path):
    with pytest.raises(UsageError, match=why):
        remote.fetch(url, tmp_path / "f")


def test_names_do_not_lead_outside(tmp_path):
    for name in ("/b/../../etc/passwd", "/b/x/../../../y", "/other", "b//..//z"):
        target = remote._target(tmp_path, "/b", name)
        assert target.resolve().is_relative_to(tmp_path)
    assert remote._target(tmp_path, "/b/file.log", "/b/file.log") == tmp_path / "file.log"
    assert not remote.is_url("C:\\x")
    assert not remote.is_url("a/b")
