"""One inconspicuous line of one host or rank, and loud consequences."""

# ruff: noqa: E501  (messages stand in one piece, as they are printed)

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

TIMED_OUT = (
    "[rank{0}]:[E611 20:44:35.399505119 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum={1}, OpType={2}, NumelIn={3}, NumelOut={3}, Timeout(ms)=600000) ran for 600050 "
    "milliseconds before timing out.\n"
)
ENDED = (
    "W0206 11:33:50.544000 26 torch/distributed/elastic/agent/server/api.py:688] Received Signals.SIGTERM death signal, "
    "shutting down workers\n"
)
WORKERS = (
    "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py:557: UserWarning: This DataLoader will create "
    "12 worker processes in total. Our suggested max number of worker in current system is 4, which is smaller than what "
    "this DataLoader is going to create.\n"
)


def verdict(folder: Path, files: dict[str, str]) -> Verdict:
    return diagnose([texts.write(folder, files)], jobs=1).verdict


# -- what one of several files alone says


def host_files(odd: int | None, slow: str) -> dict[str, str]:
    """Four hosts of two ranks: `slow` ends the log of the first."""
    files = {}
    for host in range(4):
        said = WORKERS if host == odd else ""
        steps = "".join(
            f"2025-02-06 11:3{step - 1}:00 rank={2 * host + r} | step {step} loss {3 - step / 9:.2f} 4.4 s\n"
            for step in range(1, 5)
            for r in (0, 1)
        )
        files[f"vit-worker-{host}.log"] = (
            f"[entrypoint] python 3.11.9, torch 2.4.1, 2 x A100\n{said}{steps}{slow if host == 0 else ''}{ENDED}"
        )
    return files


COMPLAINS = "2025-02-06 11:33:45 rank=0 | ERROR below 50% for 60 minutes, 17% of the reference speed\n"


def test_a_hint_in_the_file_of_one_host_explains_a_slow_job_that_was_ended(tmp_path):
    found = verdict(tmp_path, host_files(2, COMPLAINS))
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "cpu-starved", ("vit-worker-2",))
    assert found.culprits.ranks == (4, 5)


def test_nobody_complained_of_a_slow_job(tmp_path):
    assert verdict(tmp_path, host_files(2, "")).cause == "job-ended-from-outside"


def test_a_job_that_somebody_ended_after_a_long_silence_may_have_stood_still(tmp_path):
    at_work = verdict(tmp_path, host_files(None, ""))
    assert (at_work.cause, at_work.confidence > 0.85) == ("job-ended-from-outside", True)
    silent = {name: said.replace("11:33:50", "12:20:11") for name, said in host_files(None, "").items()}
    found = verdict(tmp_path, silent)
    assert (found.category, found.cause, found.confidence <= 0.6) == ("hang", "collective-stalled", True)
    assert [a.cause for a in found.alternatives] == ["job-ended-from-outside"]


# -- what a program raises because it is slow


GPUS = (
    "$ nvidia-smi --query-gpu=index,pci.bus_id,pcie.link.width.current --format=csv\n"
    "index, pci.bus_id, pcie.link.width.current\n"
    + "".join(f"{i}, 00000000:{i}1:00.0, {1 if i == 2 else 16}\n" for i in range(4))
)
RAISED = 'Traceback (most recent call last):\n  File "/home/a/guard.py", line 31, in check\n    raise {0}(msg)\n{0}: rank {1}: 60 steps at {2}\n'


@pytest.mark.parametrize(
    ("name", "said", "category", "cause", "ranks"),
    [
        ("guard.TooSlow", "117 tok/s/gpu, giving up", "slow", "pcie-degraded", (2,)),
        ("ValueError", "a negative loss", "crash", "rank-exception", ()),
    ],
)
def test_who_gives_up_because_it_is_slow_is_not_why(tmp_path, name, said, category, cause, ranks):
    log = GPUS + "$ torchrun --nproc_per_node 4 train.py\n" + "".join(RAISED.format(name, r, said) for r in range(4))
    found = verdict(tmp_path, {"nohup.out": log})
    assert (found.category, found.cause) == (category, cause)
    if ranks:
        assert found.culprits.ranks == ranks


# -- clocks, versions, cut data, masks of clock reasons


def test_a_clock_that_is_minutes_off_breaks_the_rendezvous(tmp_path):
    files = {
        f"cn-{host}.log": f"== cn-{host} == chronyc tracking | grep '^System': System time     : {off} seconds slow of NTP time\n"
        f"cn-{host}:88{host}:883 [0] bootstrap.cc:121 NCCL WARN Bootstrap Root : mismatch in rank count from procs 8 : 12\n"
        for host, off in enumerate(("0.000004131", "873.104431152", "0.000011870"))
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.hosts) == ("clock-skew", ("cn-1",))


TRUNCATED = (
    "mx9:9132:9732 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 96 bytes instead of 88\n"
    "[rank2]: torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:2006, internal error\n"
    "[rank2]: ncclInternalError: Internal check failed.\n[rank2]: Last error:\n"
    "[rank2]: Message truncated : received 96 bytes instead of 88\n"
)


def test_who_received_a_longer_message_is_not_the_odd_one(tmp_path):
    found = verdict(tmp_path, {"job.out": "mx7: torch ok\nmx8: torch ok\n" + TRUNCATED})
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("nccl-version-mismatch", (), ())


def test_a_host_with_another_version_is(tmp_path):
    lines = "".join(
        f"mx{h}: image 5d0e mounted ro\nmx{h}: driver 535.161.08, 8/8 GPUs\n"
        f"mx{h}: torch {'2.2.2 nccl (2, 19, 3)' if h == 7 else '2.3.1 nccl (2, 20, 5)'} transformers 4.41.2\n"
        for h in (6, 7, 8, 9)
    )
    found = verdict(tmp_path, {"job.out": lines + TRUNCATED})
    assert (found.cause, found.culprits.hosts) == ("nccl-version-mismatch", ("mx7",))


def test_a_rank_that_skipped_a_cut_file_ran_out_first(tmp_path):
    cut = "[rank3] /opt/webdataset/handlers.py:34: UserWarning: ReadError('unexpected end of data', <Pipe>, 'pipe:cat /data/train-000693.tar')\n"
    ends = "".join(
        TIMED_OUT.format(rank, 41, "ALLGATHER" if rank == 3 else "ALLREDUCE", 3 if rank == 3 else 26214400)
        for rank in range(4)
    )
    found = verdict(tmp_path, {"all.log": cut + ends})
    assert (found.cause, found.culprits.ranks) == ("uneven-inputs", (3,))


@pytest.mark.parametrize(
    ("mask", "cause"),
    [("0x0000000000000048", "gpu-thermal-or-power"), ("0x80", "gpu-thermal-or-power"), ("0x1", ""), ("0x10", "")],
)
def test_a_mask_of_clock_reasons(tmp_path, mask, cause):
    log = f"05-24 02:45:05 dcgm dgx-07: gpu 1 clocks_event_reasons.active {mask} sm 345 MHz temp 90 C\n"
    log += "".join(TIMED_OUT.format(rank, 41, "ALLREDUCE", 512) for rank in (0, 2, 3))
    found = verdict(tmp_path, {"all.log": log})
    assert (found.cause == "gpu-thermal-or-power") == bool(cause)
    if cause:
        assert found.category == "hang"


# -- hosts by names that stand further behind, and hosts of a cause that is known


PINGED = "".join(
    f"[prolog] lh05 ping -M do -s 8972 lh0{h}: 3 packets transmitted, "
    + (
        "0 received, 100% packet loss, time 2048ms\n"
        if h == 7
        else "3 received, 0% packet loss, time 2029ms; rtt 0.2 ms\n"
    )
    for h in (6, 7, 8)
)


def test_what_one_host_says_of_each_of_the_others(tmp_path):
    inits = "".join(
        f"lh0{5 + h}:510{h}:510{h} [0] NCCL INFO comm 0x5{h} rank {h} nranks 4 cudaDev 0 nvmlDev 0 busId 2 commId 0x9 - Init START\n"
        for h in range(4)
    )
    ends = "".join(TIMED_OUT.format(rank, 1, "BROADCAST", 26214400) for rank in range(4))
    found = verdict(tmp_path, {"slurm.out": PINGED + inits + ends})
    assert (found.cause, found.culprits.hosts) == ("mtu-mismatch", ("lh07",))


SMALL_AND_LARGE = "".join(
    f"[preflight] r3n0{h}: kernel 5.15 gpus 8/8\n[preflight] r3n0{h}: dns ok\n"
    f"[preflight] r3n0{h}: ping -M do r3n01: 56 B 3/3 ok 0.09{h} ms, 8972 B 3/3 {'lost' if h == 3 else 'ok 0.139 ms'}\n"
    for h in range(1, 5)
)


def test_large_packets_that_one_host_loses(tmp_path):
    ends = "".join(TIMED_OUT.format(rank, 3, "BROADCAST", 26214400) for rank in range(4))
    found = verdict(tmp_path, {"slurm.out": SMALL_AND_LARGE + ends})
    assert (found.cause, found.culprits.hosts) == ("mtu-mismatch", ("r3n03",))


REFUSED = (
    "[2026-07-21 16:45:49] wk{0}:338{0}:368 [3] misc/socket.cc:578 NCCL WARN socketPollConnect: connect to "
    "172.17.0.1<41017> returned Connection refused, exceeded error retry count after 35 attempts\n"
)
CLOSED = (
    "[2026-07-21 16:45:49] wk{0}:334{0}:364 [1] misc/socket.cc:71 NCCL WARN socketProgress: Connection closed by remote "
    "peer wk0<44283>\n"
)


def test_the_host_that_lists_another_interface_and_not_the_one_that_left_first(tmp_path):
    files = {
        f"wk{h}.out": f"----- wk{h} environment -----\nNCCL_IB_DISABLE=1\nNCCL_SOCKET_IFNAME={'docker0' if h == 1 else 'eth1'}\n"
        f"16:44:35 rank={h} init_process_group done\n{CLOSED.format(h) if h in (1, 3) else REFUSED.format(h)}"
        for h in range(4)
    }
    found = verdict(tmp_path, files)
    assert (found.cause, found.culprits.hosts) == ("wrong-interface", ("wk1",))


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("eval: first batch of 8 took 48.9 s", "rank-stuck-in-evaluation"),
        ("epoch 0 read 84 batches, mean 1.377", "uneven-inputs"),
    ],
)
def test_the_last_words_of_the_late_rank(tmp_path, said, cause):
    steps = "".join(f"[r{r}] epoch 0 batch {b} loss 1.4\n" for b in (5, 10, 15) for r in range(4))
    ends = "".join(TIMED_OUT.format(rank, 41, "ALLREDUCE", 512) for rank in (0, 2, 3))
    found = verdict(tmp_path, {"all.log": f"{steps}[r1] {said}\n{ends}"})
    assert (found.cause, found.culprits.ranks) == (cause, (1,))
