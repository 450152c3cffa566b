"""`whichrank profile` on real jobs: the profile, the answer, and a job that notices nothing."""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run import watched
from whichrank.flows.trace.analyse import trace

pytestmark = pytest.mark.slow
HERE = Path(__file__).parents[2]
JOB = HERE / "jobs" / "steps.py"


def torchrun(world):
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={world}", str(JOB)]


def forked(world):
    return watched.forked(JOB, world=world, options=("--preload", "torch._dynamo"))


def profile(out, job, *options, **variables):
    command = [sys.executable, "-m", "whichrank", "profile", "--out", str(out), *options, "--", *job]
    env = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)


# A launcher that forks has no rank when it starts: which ranks are asked for can't be told apart there.
CHOSEN = pytest.param(torchrun, 3, ("--ranks", "0-1"), marks=pytest.mark.bars)


@pytest.mark.parametrize(("launcher", "world", "ranks"), [(forked, 2, ()), CHOSEN])
def test_ranks_of_a_real_job(tmp_path, launcher, world, ranks):
    options = ("--skip", "5", "--steps", "4", *ranks)
    done = profile(tmp_path / "out", launcher(world), *options, KIND="host", SLOW="1", STEPS="13")
    assert done.returncode == 0, done.stderr[-2000:]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["rank-0.json.gz", "rank-1.json.gz", "trace.html"]
    report = trace([tmp_path / "out"])
    assert [one.steps for one in report.ranks] == [4, 4]
    assert [(late.rank, late.reason) for late in report.stragglers] == [(1, "host")]
    assert "Rank 1 is late" in done.stderr
    (cost,) = [note for note in report.notes if note.startswith("A step took")]
    assert cost in " ".join(done.stderr.split())
    assert {(share.op, share.bytes) for share in report.collectives} == {("all_reduce", 33280)}
    assert not shapes_in(tmp_path / "out" / "rank-0.json.gz")


def shapes_in(file):
    """The operators whose shapes the profile holds."""
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    return {event["name"] for event in events if "Input Dims" in event.get("args", {})}


@pytest.mark.parametrize("options", [("--skip", "3", "--shapes"), ("--skip", "1")])
def test_shapes_are_recorded_on_request_and_where_no_step_before_tells_sizes(tmp_path, options):
    done = profile(tmp_path / "out", forked(2), *options, "--steps", "2", "--no-report", STEPS="8")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "aten::addmm" in shapes_in(tmp_path / "out" / "rank-0.json.gz")
    assert {share.bytes for share in trace([tmp_path / "out"]).collectives} == {33280}


@pytest.mark.parametrize("launcher", [forked, pytest.param(torchrun, marks=pytest.mark.bars)])
def test_a_watched_job_is_profiled_on_request(tmp_path, launcher):
    command = [sys.executable, "-m", "whichrank", "run", "--profile", "--out", str(tmp_path / "out"), "--"]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "OMP_NUM_THREADS": "1", "STEPS": "18"}
    done = subprocess.run(
        [*command, *launcher(2)], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    report = trace([tmp_path / "out" / "profile"])
    assert [one.steps for one in report.ranks] == [5, 5]
    assert len(report.buckets) == 4
    assert sum(one.bytes for one in report.buckets) > 100_000
    assert [name for one in report.buckets for name in one.parameters][:2] == ["layers.7.bias", "layers.7.weight"]
    assert sum(len(one.parameters) for one in report.buckets) == 16
    assert {one.buckets: one.step_us for one in report.bucket_sizes}[4] == report.step_us
    assert "layers.7.bias to layers.6.weight (4)" in done.stderr
    assert "WHERE THE TIME GOES" in done.stderr
    assert (tmp_path / "out" / "run.json").exists()


@pytest.mark.parametrize("rank", range(3))
def test_chosen_ranks(tmp_path, rank):
    wishes = json.dumps(
        {"folder": str(tmp_path), "ranks": [0, 1], "skip": 1, "steps": 1, "seconds": 9, "most_bytes": 9,
         "shapes": False, "stacks": False, "nvtx": False}
    )  # fmt: skip
    code = "from whichrank.worker import profiler; profiler.begin(); print(profiler._profile is not None)"
    known = {**os.environ, "PYTHONPATH": str(HERE.parent / "src"), "RANK": str(rank), "WHICHRANK_PROFILE": wishes}
    done = subprocess.run([sys.executable, "-c", code], env=known, capture_output=True, text=True, check=True)
    assert done.stdout == f"{rank < 2}\n"


def test_the_jobs_exit_code_is_its_own(tmp_path):
    done = profile(tmp_path / "out", [sys.executable, "-c", "import sys; sys.exit(7)"], "--skip", "100")
    assert done.returncode == 7
    assert "nothing was recorded" in done.stderr


def test_a_job_with_a_hook_of_its_own_goes_on_behind_the_profile(tmp_path):
    """torch raises an error where a hook takes itself away while others behind it are still to be called."""
    script = tmp_path / "train.py"
    script.write_text(
        "import time, torch\n"
        "from torch.optim import optimizer\n"
        "time.sleep(0.5)\n"
        "steps = []\n"
        "optimizer.register_optimizer_step_post_hook(lambda *_: steps.append(1))\n"
        "model = torch.nn.Linear(4, 4)\n"
        "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(8):\n"
        "    model(torch.randn(2, 4)).sum().backward()\n"
        "    sgd.step()\n"
        "print(len(optimizer._global_optimizer_post_hooks), 'hooks,', len(steps), 'steps')\n"
    )
    done = profile(tmp_path / "out", [sys.executable, str(script)], "--skip", "2", "--steps", "2", "--no-report")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "2 hooks, 8 steps" in done.stdout
    assert (tmp_path / "out" / "rank-0.json.gz").exists()


def test_a_profile_that_fails_never_disturbs_the_job(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch, torch.profiler\n"
        "def broken(*a, **k): raise RuntimeError('no profiler today')\n"
        "torch.profiler.profile = broken\n"
        "p = torch.nn.Parameter(torch.zeros(3)); o = torch.optim.SGD([p], lr=1)\n"
        "for _ in range(20):\n"
        "    import time; time.sleep(0.02); p.grad = torch.ones(3); o.step()\n"
        "print('trained', p.sum().item())\n"
    )
    done = profile(tmp_path / "out", [sys.executable, str(script)], "--skip", "1")
    assert done.returncode == 0
    assert "trained -60.0" in done.stdout
    assert "no profiler today" in done.stderr


@pytest.mark.bars
@pytest.mark.parametrize("turn", range(20))
@pytest.mark.parametrize("kind", ["compute", "host", "data"])
def test_a_hundred_milliseconds_on_one_of_eight_ranks(tmp_path, kind, turn):
    """The delay comes and goes every ten steps of one job; the profile is taken while it is there."""
    slow, block, blocks = (3 * turn + 1) % 8, 10, 11
    out, times = tmp_path / "out", tmp_path / "times.json"
    job = {"KIND": kind, "SLOW": str(slow), "TIMES": str(times), "PAUSE_S": "0.004"}
    options = ("--skip", str(2 * block), "--steps", "6", "--no-report")
    done = profile(out, torchrun(8), *options, **job, BLOCK=str(block), STEPS=str(block * blocks))
    assert done.returncode == 0, done.stderr[-2000:]
    took = json.loads(times.read_text())
    each = [statistics.mean(took[n * block + 1 : (n + 1) * block]) for n in range(blocks)]
    # The first block warms up, the third is profiled, and while the fourth runs the profile is written.
    measured = 1e6 * (statistics.mean(each[4::2]) - statistics.mean([each[1], *each[5::2]]))
    (late,) = trace([out]).stragglers
    assert (late.rank, late.reason) == (slow, {"compute": "compute", "host": "host", "data": "data-loader"}[kind])
    assert late.cost_us_per_step == pytest.approx(measured, rel=0.1)


def test_the_hook_stays_while_a_process_of_the_job_may_import_it(tmp_path):
    """Another user could put code at the place of a folder that is gone."""
    from whichrank.run import profile

    note = tmp_path / "path"
    script = f"echo $PYTHONPATH > {note}; {sys.executable} -c 'import time; time.sleep(60)' & echo $! > {tmp_path}/pid"
    before = {**os.environ}
    try:
        assert profile.run(["sh", "-c", script], tmp_path / "out", profile.Wishes(), print) == 0
        folder = Path(note.read_text().strip().split(os.pathsep)[0])
        assert folder.is_dir()
        assert folder.stat().st_mode & 0o777 == 0o700
    finally:
        os.kill(int((tmp_path / "pid").read_text()), 9)
        os.environ.update(before)
    while profile.in_use(folder):
        pass
    os.utime(folder, (1, 1))
    profile.sweep()
    assert not folder.exists()


def test_the_hook_of_a_job_that_has_ended_is_gone(tmp_path):
    from whichrank.run import profile

    note = tmp_path / "path"
    assert profile.run(["sh", "-c", f"echo $PYTHONPATH > {note}"], tmp_path / "out", profile.Wishes(), print) == 0
    assert not Path(note.read_text().strip().split(os.pathsep)[0]).exists()


def test_profiles_go_into_no_folder_of_another(tmp_path, monkeypatch):
    from whichrank.model.errors import UsageError
    from whichrank.run import profile

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError):
        profile.run(["true"], tmp_path / "out", profile.Wishes(), print)


NVTX = """
import os, time, torch, torch.cuda.profiler, torch.autograd.profiler
rank = os.environ["RANK"]
def say(words):
    os.write(1, f"{rank} {words}\\n".encode())
class Ranges:
    def __init__(self, record_shapes): pass
    def __enter__(self): say("ranges on")
    def __exit__(self, *_): say("ranges off")
torch.autograd.profiler.emit_nvtx = Ranges
torch.cuda.is_available = lambda: rank == "1"
torch.cuda.profiler.start = lambda: say("capture on")
torch.cuda.profiler.stop = lambda: say("capture off")
p = torch.nn.Parameter(torch.zeros(3)); o = torch.optim.SGD([p], lr=1)
for number in range(12):
    p.grad = torch.ones(3); o.step(); time.sleep(0.02); say(f"step {number}")
"""


def test_nvtx_ranges_are_there_for_the_chosen_steps_alone_and_need_a_device(tmp_path):
    """Stand-ins for the device, which rank 1 alone has: torch's context of ranges, and the marks that Nsight Systems
    starts and stops by."""
    script = tmp_path / "train.py"
    script.write_text(NVTX)
    job = watched.forked(script, world=2, options=("--preload", "torch._dynamo"))
    done = profile(tmp_path / "out", job, "--nvtx", "--skip", "3", "--steps", "4")
    assert done.returncode == 0, done.stderr[-2000:]
    without, lines = ([line[2:] for line in done.stdout.splitlines() if line.startswith(rank)] for rank in ("0 ", "1 "))
    assert without == [f"step {number}" for number in range(12)]
    assert "NVTX ranges need a CUDA device" in done.stderr
    on, off = lines.index("ranges on"), lines.index("ranges off")
    assert lines.index("capture on") == on - 1
    assert lines.index("capture off") == off + 1
    assert sum(line.startswith("step") for line in lines[on:off]) == 4
    assert "NVTX ranges were put around operators and collectives of 1 rank" in done.stderr
    assert [p.name for p in (tmp_path / "out").glob("*.nvtx")] == ["rank-1.nvtx"]
