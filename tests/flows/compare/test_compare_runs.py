"""`compare` on two runs: what was changed stands first; what differs in every two runs is not there at all."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.flows.compare.planted_runs import PLANTINGS, record
from whichrank.evidence.collectors import conditions
from whichrank.flows.compare.inputs import compare
from whichrank.flows.compare.run_profile import Profile, arguments, profile
from whichrank.flows.compare.runs import _command

SAMPLE = ROOT / "tests" / "samples" / "compared_runs.tar.xz"
PLANTED = [name for name in PLANTINGS if name != "nothing"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "compared_runs"


@pytest.mark.parametrize("name", PLANTED)
def test_what_was_planted_stands_first(recorded: Path, name: str) -> None:
    found, _ = compare(recorded / name / "a", recorded / name / "b")
    assert found[0].what == PLANTINGS[name].first


def test_two_runs_of_the_same_do_not_differ(recorded: Path, whichrank) -> None:
    assert compare(recorded / "nothing" / "a", recorded / "nothing" / "b")[0] == []
    told = whichrank("compare", recorded / "nothing" / "a", recorded / "nothing" / "b")
    assert told.returncode == 0
    assert told.stdout.startswith("No difference: settings, versions, code, limits")


def distract(folder: Path) -> None:
    """What often changes beside the reason: output, names, tools, logging, another shell."""
    path = folder / "conditions.json"
    said = json.loads(path.read_text())
    said["environment"] |= {"NCCL_DEBUG": "INFO", "LANG": "de_DE.UTF-8", "TORCH_SHOW_CPP_STACKTRACES": "1"}
    said["command"] += ["--run-name", "second-try", "--output-dir", "/scratch/second"]
    said["packages"] |= {"tqdm": "99.1", "setuptools": "99.2"}
    said["host"]["memory_kb"] = int(said["host"]["memory_kb"] * 1.01)
    said["limits"]["stack size"] = "unlimited"
    path.write_text(json.dumps(said))


def test_what_was_planted_stands_first_among_harmless_changes(recorded: Path, tmp_path: Path) -> None:
    import shutil

    right = []
    for name in PLANTED:
        pair = Path(shutil.copytree(recorded / name, tmp_path / name))
        distract(pair / "b")
        found, _ = compare(pair / "a", pair / "b")
        assert len(found) > 3
        right.append(found[0].what == PLANTINGS[name].first)
    assert len(right) >= 12
    assert sum(right) >= len(right) - 1, dict(zip(PLANTED, right, strict=True))


def test_an_archive_of_a_bundle_will_do(recorded: Path, tmp_path: Path) -> None:
    for side in ("a", "b"):
        with tarfile.open(tmp_path / f"{side}.tar.gz", "w:gz") as archive:
            archive.add(recorded / "open-files" / side, "run")
    found, _ = compare(tmp_path / "a.tar.gz", tmp_path / "b.tar.gz")
    assert found[0].what == "limit on open files"


def test_older_bundles_are_compared_by_what_they_have(tmp_path: Path) -> None:
    for side, value in (("a", "eth0"), ("b", "eth1")):
        place = tmp_path / side / "bundle" / "environment"
        place.mkdir(parents=True)
        (place / "rank_0.env").write_text(f"RANK=0\nMASTER_PORT={id(side)}\nWORLD_SIZE=1\nNCCL_SOCKET_IFNAME={value}\n")
    found, looked = compare(tmp_path / "a", tmp_path / "b")
    assert [d.what for d in found] == ["setting NCCL_SOCKET_IFNAME"]
    assert "not in both" in looked[-1]


def test_arguments_without_what_no_two_runs_share() -> None:
    words = [
        "/usr/bin/torchrun",
        "--master_port",
        "29500",
        "--rdzv-id=7",
        "./train.py",
        "--output_dir",
        "/x/1",
        "--lr=0.1",
    ]
    assert arguments(words) == ["torchrun", "train.py", "--lr=0.1"]


@pytest.mark.parametrize(
    ("was", "now", "what"),
    [
        ("torchrun --nnodes 2 train.py a.yaml", "torchrun --nnodes 2 train.py b.yaml", "arguments of train.py"),
        ("torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 4 train.py", "argument --nproc_per_node"),
        ("torchrun train.py --lr=0.1", "torchrun train.py --lr=0.5", "argument --lr"),
        ("torchrun train.py --lr 0.1", "torchrun train.py --lr 0.5", "argument --lr"),
        ("torchrun train.py", "torchrun train.py --compile", "argument --compile"),
        ("bash go.sh one", "bash go.sh two", "arguments of go.sh"),
    ],
)  # fmt: skip
def test_words_that_differ_are_told_by_what_they_belong_to(was: str, now: str, what: str) -> None:
    found = list(_command(Profile(command=was.split()), Profile(command=now.split())))
    assert [one.what for one in found] == [what]


def test_secrets_of_a_command_are_not_kept() -> None:
    command = ["python", "train.py", "--api-key", "s3cr3t", "--auth_token=s3cr3t", "--lr", "0.1", "hf_abcdefghijk"]
    kept = conditions.without_secrets(command)
    assert kept == [
        "python",
        "train.py",
        "--api-key",
        "<removed>",
        "--auth_token=<removed>",
        "--lr",
        "0.1",
        "<removed>",
    ]


def test_a_rank_that_only_the_verdict_calls_slow_stands_before_the_verdict_itself(tmp_path: Path) -> None:
    who = {"ranks": [1], "code": [{"file": "train.py", "line": 16, "function": "main", "rank": 1}]}
    slow = {"verdict": {"category": "slow", "cause": "straggler", "culprits": who}}
    for side, verdict in (("a", None), ("b", slow)):
        (tmp_path / side).mkdir()
        (tmp_path / side / "run.json").write_text('{"state": "ended", "world_size": 2, "exit_code": 0}')
        if verdict:
            (tmp_path / side / "verdict.json").write_text(json.dumps(verdict))
    found, _ = compare(tmp_path / "a", tmp_path / "b")
    assert [(one.what, one.b) for one in found] == [
        ("rank 1", "holds the others up"),
        ("verdict", "slow: straggler, rank 1"),
    ]
    assert found[0].why == "mostly at train.py:16"


def test_damaged_files_are_no_run(tmp_path: Path) -> None:
    for name, text in (("run.json", "[1"), ("conditions.json", '{"ranks": 7, "host": []}'), ("history.jsonl", "\0\n{")):
        (tmp_path / name).write_text(text)
    assert not profile(tmp_path).known


@pytest.mark.bars
@pytest.mark.parametrize("name", PLANTINGS)
def test_planted_again_for_real(name: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    record(name, tmp_path)
    found, _ = compare(tmp_path / name / "a", tmp_path / name / "b")
    assert [d.what for d in found[:1]] == ([PLANTINGS[name].first] if PLANTINGS[name].first else [])
