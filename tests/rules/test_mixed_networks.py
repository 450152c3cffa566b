"""One host on sockets among hosts on RDMA."""

from __future__ import annotations

from whichrank.flows.diagnose.pipeline import diagnose


def verdict(tmp_path, networks, *, timeouts=True):
    lines = []
    for number, network in enumerate(networks):
        prefix = f"gpu{number}:{100 + number}:{100 + number} [0] NCCL INFO "
        if network == "Socket":
            lines.append(prefix + "NET/IB : No device found.")
        lines.append(prefix + f"Using network {network}")
        lines.append(prefix + f"ncclCommInitRank comm 0x{number + 1}0 rank {number} nranks {len(networks)} cudaDev 0 "
                     "nvmlDev 0 busId 1000 commId 0xab - Init START")  # fmt: skip
    if timeouts:
        lines += [
            f"[rank{n}]:[E0214 11:20:01.000000000 ProcessGroupNCCL.cpp:632] [Rank {n}] Watchdog caught collective "
            "operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran "
            "for 600031 milliseconds before timing out."
            for n in range(len(networks))
        ]
    (tmp_path / "all.log").write_text("\n".join(lines) + "\n")
    return diagnose([tmp_path], jobs=1).verdict


def test_the_odd_host_and_its_ranks_are_named(tmp_path):
    found = verdict(tmp_path, ["IB", "IB", "Socket", "IB"])
    assert (found.category, found.cause) == ("hang", "ib-device-not-exposed")
    assert (found.culprits.hosts, found.culprits.ranks) == (("gpu2",), (2,))


def test_all_on_sockets_is_not_odd(tmp_path):
    found = verdict(tmp_path, ["Socket"] * 4)
    assert "gpu2" not in found.culprits.hosts
    assert "NCCL uses sockets on" not in found.summary


def adapters(tmp_path, counts, *, hca=""):
    lines = []
    for number, count in enumerate(counts):
        prefix = f"gpu{number}:{100 + number}:{100 + number} [0] NCCL INFO "
        if hca and count < max(counts):
            lines.append(prefix + f"NCCL_IB_HCA set by environment to {hca}")
        names = " ".join(f"[{n}]mlx5_{n}:1/IB" for n in range(count))
        lines += [prefix + f"NET/IB : Using {names} [RO]; OOB bond0:10.0.0.{number}<0>", prefix + "Using network IB"]
    (tmp_path / "all.log").write_text("\n".join(lines) + "\n")
    return diagnose([tmp_path], jobs=1).verdict


def test_the_host_with_fewer_adapters_is_named(tmp_path):
    found = adapters(tmp_path, [8, 8, 1, 8])
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "ib-device-not-exposed", ("gpu2",))
    assert "1 RDMA adapter" in found.summary


def test_a_variable_that_one_host_alone_has_is_the_reason(tmp_path):
    found = adapters(tmp_path, [8, 8, 1, 8], hca="mlx5_0")
    assert (found.cause, found.culprits.hosts) == ("wrong-environment", ("gpu2",))


def test_hosts_of_two_builds_are_not_odd(tmp_path):
    assert not adapters(tmp_path, [8, 8, 4, 4]).culprits.hosts
    assert not adapters(tmp_path, [8, 4, 2, 8, 8, 8]).culprits.hosts
