"""Tables of values by rank: who is late, and whose replica differs."""

from __future__ import annotations

import random

import pytest

from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.grades import SUPPORTED


def verdict(tmp_path, text, name="out.log"):
    (tmp_path / name).write_text(text)
    return diagnose([tmp_path], jobs=1).verdict


def timers(world, slow=(), wait_of_slow=2.0, factor=1.5, seed=0, steps=5):
    noise = random.Random(seed)
    text = ""
    for step in range(steps):
        text += f"iteration {step}\ntimes across ranks (ms):\n    forward-backward:\n"
        for rank in range(world):
            text += f"     rank {rank:2}: {1500 * (factor if rank in slow else 1) + noise.gauss(0, 6):.2f}\n"
        text += "    grads-all-reduce:\n"
        for rank in range(world):
            wait = wait_of_slow if rank in slow or not slow else 700
            text += f"     rank {rank:2}: {wait + noise.gauss(0, 0.5):.2f}\n"
    return text


@pytest.mark.parametrize("world", [4, 8, 16])
def test_the_rank_that_needs_longer_and_waits_least(tmp_path, world):
    found = verdict(tmp_path, timers(world, (world - 2,)))
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "straggler", (world - 2,))


@pytest.mark.parametrize("seed", range(8))
def test_equal_ranks_name_nobody(tmp_path, seed):
    assert verdict(tmp_path, timers(8, seed=seed, wait_of_slow=20)).culprits.ranks == ()


def inputs(slow_since, seed=0, world=4, steps=24):
    noise = random.Random(seed)
    rows = ""
    for step in range(0, 4 * steps, 4):
        for rank in range(world):
            late = rank == 2 and slow_since is not None and step >= slow_since
            rows += f"[rank {rank}] step {step} input {1.6 if late else 0.12 + noise.random() / 40:.2f}s train 0.09s\n"
    return rows + "training finished\n"


@pytest.mark.parametrize("since", [64, 40])
def test_a_rank_that_became_slow_later(tmp_path, since):
    found = verdict(tmp_path, inputs(since))
    assert (found.category, found.culprits.ranks) == ("slow", (2,))


@pytest.mark.parametrize(("since", "seed"), [(92, 0), *((None, seed) for seed in range(4))])
def test_the_last_measurements_alone_name_nobody(tmp_path, since, seed):
    assert verdict(tmp_path, inputs(since, seed)).culprits.ranks == ()


def test_half_of_the_ranks_are_not_the_odd_ones(tmp_path):
    assert verdict(tmp_path, timers(8, (0, 1, 2, 3))).cause != "straggler"


def test_the_ranks_of_one_host(tmp_path):
    rows = "".join(
        f"| {step} | n{rank // 4} | {rank} | {0.9 if rank // 4 == 1 else 0.02} | {0.01 if rank // 4 == 1 else 0.8} |\n"
        for step in (10, 20, 30)
        for rank in range(12)
    )
    found = verdict(tmp_path, f"| step | host | rank | data s | comm s |\n|---|---|---|---|---|\n{rows}")
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("input-bound", (4, 5, 6, 7), ("n1",))


def checksums(odd, since, world=4):
    lines = []
    for step in (100, 200, 300):
        for rank in range(world):
            wrong = rank in odd and step >= since
            lines.append(f"[rank{rank}] step {step} param_md5 {step:06x}{'bad' + str(rank) if wrong else 'aaaa'}")
    return "\n".join(lines) + "\n"


def test_the_replica_that_differs_from_the_majority(tmp_path):
    found = verdict(tmp_path, checksums((2,), 200))
    assert (found.category, found.cause, found.culprits.ranks) == ("corruption", "replica-divergence", (2,))
    assert "step 200" in found.summary


def test_without_a_majority_nobody_is_named(tmp_path):
    found = verdict(tmp_path, checksums((1, 2, 3), 100))
    assert (found.cause, found.culprits.ranks) == ("replica-divergence", ())
    assert found.confidence < SUPPORTED


def test_replicas_that_agree_again_were_computed_wrongly_once(tmp_path):
    """Parameters that differ stay different: these are digests of what each GPU computes anew."""
    text = checksums((2,), 200).replace("300 param_md5 00012cbad2", "300 param_md5 00012caaaa")
    found = verdict(tmp_path, text)
    assert (found.category, found.cause, found.culprits.ranks) == ("corruption", "gpu-computes-wrong", (2,))


def test_rounds_of_a_test_that_name_no_step(tmp_path):
    rows = "".join(
        f"[rank{rank}] burn-in gemm digest {'0bad0bad' if rank == 1 and turn == 3 else '5e1f77a0'}\n"
        for turn in range(6)
        for rank in range(4)
    )
    found = verdict(tmp_path, rows)
    assert (found.category, found.cause, found.culprits.ranks) == ("corruption", "gpu-computes-wrong", (1,))


def test_equal_replicas_are_fine(tmp_path):
    assert verdict(tmp_path, checksums((), 0)).cause != "replica-divergence"


def test_words_that_come_close_to_a_cause_are_a_weak_verdict(tmp_path):
    found = verdict(tmp_path, "the HCA refuses GPU Direct RDMA, peermem module missing, GDR stays disabled\n")
    assert (found.cause, found.culprits.ranks) == ("gdr-disabled", ())
    assert found.confidence < SUPPORTED


def test_causes_that_are_not_close_enough_are_listed(tmp_path):
    found = verdict(tmp_path, "the adapter lost its memory while driver and kernel modules differ\n")
    assert found.cause == "unknown"
    assert found.alternatives


def averages(data, whole, ranks=(None,)):
    """Lines of the ImageNet example: the value of the step, and in parentheses the mean."""
    return "".join(
        f"{'' if rank is None else f'[GPU rank {rank}] '}Epoch: [1][{step}/5004]\tTime {whole - 0.2:.3f} ({whole:.3f})"
        f"\tData {data / 10:.3f} ({data:.3f})\tLoss 6.9 (6.9)\n"
        for step in range(0, 100, 10)
        for rank in ranks
    )


@pytest.mark.parametrize(
    "text",
    [
        averages(0.63, 0.94),
        averages(1.2, 2.77, ranks=(0, 1, 2)),
        "".join(f"iter {n}/9000  time: 0.51, data_time: 0.33, loss: 2.1\n" for n in range(10)),
        "".join(f"[{n}/9000] step_time=0.51s data_time=0.33s loss=2.1\n" for n in range(10)),
        "".join(f"{n}/90 loss 1.3 | data 0.282 s | step 0.093 s | 21.3 tiles/s\n" for n in range(10)),
    ],
)
def test_steps_that_wait_for_data(tmp_path, text):
    found = verdict(tmp_path, text)
    assert (found.category, found.cause) == ("slow", "input-bound")


@pytest.mark.parametrize(
    "text",
    [
        averages(0.05, 0.94),
        "iter 1/9000  time: 0.51, data_time: 0.33, loss: 2.1\n",
        "".join(f"iter {n}/9000  time: 0.51, data_time: 0.02, loss: 2.1\n" for n in range(10)),
        "data: 0.9 of the corpus\ntime: 0.9\n" * 10,
        "".join(f"{n}/90 loss 1.3 | data 0.009 s | step 0.093 s | 21.3 tiles/s\n" for n in range(10)),
        "data 0.9 split 0.1, step 0.5 of the scheduler\n" * 10,
    ],
)
def test_steps_that_do_not(tmp_path, text):
    assert verdict(tmp_path, text).cause != "input-bound"


def test_the_line_of_a_long_log_is_the_one_in_the_file(tmp_path):
    """Of a long text only the end is read."""
    text = averages(0.63, 0.94) + "an ordinary line of the log\n" * 80_000 + averages(0.63, 0.94)
    (tmp_path / "out.log").write_text(text)
    finding = next(f for f in diagnose([tmp_path], jobs=1).findings if f.code == "SLOW113")
    (ref,) = finding.evidence
    assert text.splitlines()[int(ref.locator.removeprefix("line ")) - 1].strip() == ref.quote


def test_a_legend_says_what_short_names_are(tmp_path):
    lines = ["# per-host means; fb = forward and backward kernels, cw = wait in collectives"]
    for step in range(9000, 9006):
        for host in range(8):
            slow = host == 5
            lines.append(
                f"[step {step}] node-{host:03} ranks {8 * host}-{8 * host + 7} "
                f"fb={3.45 if slow else 2.6 + 0.005 * host:.3f} cw={0.5 if slow else 1.36:.3f}"
            )
    found = verdict(tmp_path, "\n".join(lines) + "\n")
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "straggler", ("node-005",))
    assert found.culprits.ranks == tuple(range(40, 48))


def test_times_by_name_and_the_larger_difference_tells(tmp_path):
    text = "".join(
        f"rank={rank} batch={step} t_fwd={2.8 if rank == 3 else 0.21} t_bwd_sync={0.3 if rank == 3 else 3.1} "
        f"t_data={0.27 if rank == 3 else 0.03}\n"
        for step in range(20)
        for rank in range(4)
    )
    found = verdict(tmp_path, text)
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "straggler", (3,))


def fetches(slow_host):
    """Two hosts of four ranks, a file each; every rank prints what it spends per 100 steps."""
    files = {}
    for host in range(2):
        said = f"host=vm-{host} rank={4 * host} local_rank=0 pid=100\n"
        for _ in range(6):
            for rank in range(4 * host, 4 * host + 4):
                fetch = 41.5 if host == slow_host else 0.3
                said += f"[vm-{host}] [rank {rank}] last 100: fetch {fetch + rank / 100:.2f}s  fwd+bwd 35.{rank}s\n"
        files[f"vm-{host}.log"] = said
    return files


@pytest.mark.parametrize("host", [0, 1, None])
def test_of_two_hosts_one_needs_far_longer(tmp_path, host):
    for name, text in fetches(host).items():
        (tmp_path / name).write_text(text)
    found = diagnose([tmp_path], jobs=1).verdict
    ranks = () if host is None else tuple(range(4 * host, 4 * host + 4))
    assert (found.category == "slow", found.culprits.ranks) == (host is not None, ranks)


def test_a_time_that_somebody_chose_is_no_measurement(tmp_path):
    text = "".join(
        f'time=2026-01-03T18:23:4{rank}.1Z level=warn rank={rank} msg="GET failed, will retry" backoff={wait}s\n'
        for rank, wait in enumerate((2.0, 2.1, 2.0, 4.1, 2.0, 1.9))
    )
    assert verdict(tmp_path, text).culprits.ranks == ()


def test_who_fetches_a_little_longer_while_the_others_wait_far_longer_is_late(tmp_path):
    """What stands out in the data explains a small part of what the others wait."""
    text = "".join(
        f"rank={rank} step={step} data={0.030 if rank == 2 else 0.010:.3f}s work={0.90 if rank == 2 else 0.40:.2f}s "
        f"allreduce_wait={0.02 if rank == 2 else 0.54:.2f}s\n"
        for step in range(12)
        for rank in range(4)
    )
    found = verdict(tmp_path, text)
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "straggler", (2,))


@pytest.mark.parametrize(("after", "slow"), [(0.50, False), (0.90, True)])
def test_a_message_that_did_not_change_the_pace_slowed_nothing_down(tmp_path, after, slow):
    """A GPU that complains of its power in the midst of steps that go on as before."""
    steps = [f"step {step} loss 2.1 {0.5 if step < 12 else after:.2f} s/step\n" for step in range(24)]
    warning = "Detected clocks event due to power violation in GPU 3.\n"
    found = verdict(tmp_path, "".join(steps[:12]) + warning + "".join(steps[12:]))
    assert (found.category == "slow") == slow


def test_a_rank_that_waits_far_longer_than_it_is_late_is_a_hint_at_most(tmp_path):
    """Everybody waits for the network: who computes a little longer is not why."""
    text = "".join(
        f"rank{rank} INFO step {step} fwd {80 if rank == 0 else 9 + rank}.0 ms sync_wait {980 + step} ms\n"
        for step in range(12)
        for rank in range(4)
    )
    found = verdict(tmp_path, text)
    assert found.confidence < SUPPORTED
