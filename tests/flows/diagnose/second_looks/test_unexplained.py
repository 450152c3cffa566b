"""Where nothing says why: what is compared with the words of known causes, and what is only listed."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.flows.diagnose.unexplained import new_lines
from whichrank.model.verdict import Verdict

STEPS = "".join(f"2026-11-18 10:17:4{n},078 rank0 step {2 * n} loss 0.1{n}\n" for n in range(1, 6))


def judged(folder: Path, text: str) -> Verdict:
    (folder / "job.log").write_text(text)
    return diagnose([folder], jobs=1).verdict


def test_the_code_in_a_traceback_is_not_what_anybody_said() -> None:
    trace = 'Traceback (most recent call last):\n  File "/a.py", line 3, in main\n    return launch(self._config)\n'
    prefixed = "".join(f"[rank0]: {line}\n" for line in trace.splitlines())
    texts = [("a.log", trace.encode()), ("b.log", prefixed.encode())]
    assert not [text for _, _, text in new_lines(texts) if "return launch" in text]


def test_what_an_output_ends_with_is_listed_and_accuses_nobody(tmp_path: Path) -> None:
    verdict = judged(tmp_path, STEPS + "2026-11-18 10:17:46,568 rank0 writing checkpoint ./step_10.pt (6.4 MB)\n")
    assert (verdict.cause, verdict.culprits.ranks) == ("unknown", ())
    assert [other.cause for other in verdict.alternatives] == ["rank-stuck-in-checkpoint"]


def test_the_report_of_the_launcher_and_the_start_of_nccl_name_no_cause(tmp_path: Path) -> None:
    report = (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        "======\n/app/train.py FAILED\n------\nFailures:\n[1]:\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -15 (pid: 1724)\n  traceback : Signal 15 (SIGTERM) received by PID 1724\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : -6 (pid: 1723)\n"
        "  traceback : Signal 6 (SIGABRT) received by PID 1723\n"
    )
    start = (
        "vm:1861:1861 [0] NCCL INFO ncclCommInitRankConfig comm 0x27 rank 1 nranks 5 cudaDev 0 nvmlDev 0 busId 60 "
        "commId 0x98 - Init START\nvm:1861:1861 [0] NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0>\n"
    )
    assert judged(tmp_path, start + report).cause == "unknown"


def test_the_end_of_a_cut_traceback_and_its_frames_name_no_cause() -> None:
    cut = (
        "    return launch_agent(self._config, self._entrypoint, list(args))\n"
        '  File "/site-packages/torch/distributed/launcher/api.py", line 308, in launch_agent\n'
        "    raise ChildFailedError(\n"
        "frame #1: <unknown function> + 0x68ef03 (0x7feb3068ef03 in /site-packages/torch/lib/libtorch_cuda.so)\n"
        "  exitcode  : -6 (pid: 1029)\n"
    )
    assert not list(new_lines([("job.log", cut.encode())]))


def test_what_the_job_got_over_is_not_named(tmp_path: Path) -> None:
    overflow = "".join(f"[rank {n}] WARNING gradient overflow: inf/nan found in fp16 gradients\n" for n in range(4))
    later = "".join(f"step {n}0 loss 0.{n} scale 8192\n" for n in (1, 2, 3))
    assert judged(tmp_path, overflow + later).cause != "nan-origin"
