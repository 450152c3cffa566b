"""`whichrank.process_group` and the recommended settings in real jobs on Gloo."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.lab.setup import free_port

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
RANK = Path(__file__).parent / "rank.py"


def job(what, world=2, each=None, **environ):
    """Run ranks as processes of their own; returns (exit code, stdout, stderr) of each."""
    # Compiled modules may be kept: importing torch without them takes many seconds.
    unwanted = ("NCCL_", "TORCH_", "GLOO_", "PYTHONDONTWRITEBYTECODE")
    common = {name: v for name, v in os.environ.items() if not name.startswith(unwanted)}
    common |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world), **environ}
    processes = [
        subprocess.Popen([sys.executable, str(RANK), what], stdout=-1, stderr=-1, text=True,
                         env={**common, "RANK": str(rank), **((each or {}).get(rank, {}))})
        for rank in range(world)
    ]  # fmt: skip
    return [(p.wait(), out, err) for p in processes for out, err in [p.communicate(timeout=300)]]


@pytest.mark.bars
def test_groups_come_up_and_go_down():
    for code, out, err in job("plain"):
        assert code == 0, err
        assert out.splitlines() == ["value 16 of 2", "done 2"]
        assert "Warning" not in err


def test_recommended_settings_record_and_nobody_warns(tmp_path):
    ((code, _out, err),) = job("record", world=1, OUT=str(tmp_path))
    assert code == 0, err
    for word in ("deprecated", "Invalid", "nknown", "ignored", "Warning"):
        assert word not in err, err
    from whichrank.evidence.readers import flight_recorder
    from whichrank.model.contracts import Item

    path = tmp_path / "dump_0"
    dump = flight_recorder.read(Item(path, path.name, path.stat().st_size, 0)).records[0]
    assert len(dump) >= 4, "the recorder really records"
    timeouts = {dump.calls[call].timeout_ms for call in dump.call}
    assert timeouts == {7000, 60000}, "each group has its own timeout"


OTHERS = [pytest.param(purpose, marks=pytest.mark.bars) for purpose in ("production", "bench")]


@pytest.mark.parametrize("purpose", ["debug", *OTHERS])
def test_recommended_settings_under_torchrun(tmp_path, purpose):
    """As users do it: the shell output of the command, then torchrun."""
    script = (
        f"eval \"$({sys.executable} -c 'from whichrank.cli.main import main; main()' env --for {purpose} "
        f'--out {tmp_path})"\n'
        f"exec {sys.executable} -m torch.distributed.run --nproc_per_node 2 --master_port {free_port()} {RANK} plain\n"
    )
    unwanted = ("NCCL_", "TORCH_", "GLOO_", "PYTHONDONTWRITEBYTECODE")
    environ = {name: v for name, v in os.environ.items() if not name.startswith(unwanted)}
    environ["OMP_NUM_THREADS"] = "1"  # torchrun warns when it has to choose
    done = subprocess.run(
        ["bash", "-eu", "-c", script], capture_output=True, text=True, env=environ, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done 2") == 2
    for word in ("deprecated", "Invalid", "nknown", "ignored", "Warning"):
        assert word not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Jobs whose ranks may be forked: (exit code, stderr) of each rank, by the name of the job."""
    folder = tmp_path_factory.mktemp("forked")
    jobs = {
        "absent": {"what": "absent", "world": 3},
        "differ": {"what": "differ", "world": 2, "each": {"1": {"NCCL_ALGO": "Ring"}}},
        "fail": {"what": "fail", "world": 2},
    }
    for attempt in ("first", "second"):
        (folder / attempt).mkdir()
        done = subprocess.run(
            [sys.executable, str(RANK.with_name("forked_ranks.py")), str(folder / attempt)],
            input=json.dumps(jobs), capture_output=True, text=True, env=watched.environment(), timeout=300, check=True,
        )  # fmt: skip
        codes = json.loads(done.stdout)
        ends = {
            name: [
                (codes[name][str(rank)], (folder / attempt / f"{name}.{rank}.err").read_text())
                for rank in range(job["world"])
            ]
            for name, job in jobs.items()
        }
        # Another test may have taken a port between its choice and its use.
        if not any("any local network address" in err for ranks in ends.values() for _, err in ranks):
            break
    return ends


def test_absent_ranks_are_named(ended):
    for code, err in ended["absent"][:2]:
        assert code != 0
        assert "1 of 3 ranks did not join within 4 s: 2" in err
    assert ended["absent"][2][0] == 0


@pytest.mark.bars
def test_a_store_that_is_not_there():
    code, _out, err = job("absent", world=1, each={0: {"RANK": "1", "WORLD_SIZE": "2"}})[0]
    assert code != 0
    assert "rank 0 did not join" in err


def test_ranks_must_agree(ended):
    for code, err in ended["differ"]:
        assert code != 0
        assert "NCCL_ALGO is not set on ranks 0, 'Ring' on ranks 1" in err


def test_an_error_is_not_hidden_by_the_way_down(ended):
    assert "ValueError: on purpose" in ended["fail"][1][1]
    assert all("Traceback" in err or code == 0 for code, err in ended["fail"])
