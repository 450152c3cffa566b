"""The host that prints of itself what all its peers print otherwise, and what it is not taken for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import crash_texts as texts
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.verdict import Verdict

HOSTS = ("birch-1", "birch-2", "birch-3", "birch-4")
TIMED_OUT = (
    "[rank{0}]:[E0311 10:20:30.000000000 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4, OpType=ALLREDUCE, NumelIn=512, NumelOut=512, Timeout(ms)=600000) ran for 600012 "
    "milliseconds before timing out.\n"
)
HANGS = "".join(TIMED_OUT.format(rank) for rank in range(32))
SLOW = "".join(f"birch-1 10:0{step}:00 step {step} loss 2.{step} 4.2 s\n" for step in range(9))


def verdict(folder: Path, lines: str, end: str = HANGS) -> Verdict:
    return diagnose([texts.write(folder, {"job.log": lines + end})]).verdict


def prolog(odd: str, usual: str, host: str = "birch-3", begin: str = "prolog {0}: ") -> str:
    """Three lines of every host; the second is `odd` on one of them."""
    lines = ""
    for number, name in enumerate(HOSTS):
        first = begin.format(name)
        lines += f"{first}8 GPUs healthy, {40 + 3 * number} days up\n{first}{odd if name == host else usual}\n"
        lines += f"{first}image trainer:5 pulled\n"
    return lines


SAID = [
    ("cache-not-shared", "/data xfs /dev/nvme0n1p1 1.7T rw", "/data lustre 10.1.0.5@o2ib:/scr 1.1P rw"),
    ("cache-not-shared", "mount /ckpt is overlay", "mount /ckpt is filer:/ckpt nfs4"),
    ("wrong-environment", "nccl.conf: NCCL_IB_TIMEOUT=22 NCCL_BUFFSIZE=65536", "nccl.conf: NCCL_IB_TIMEOUT=22"),
    ("memlock-ulimit", "ulimit memlock 65536 nofile 1048576", "ulimit memlock unlimited nofile 1048576"),
    ("fd-limit", "ulimit memlock unlimited nofile 1024", "ulimit memlock unlimited nofile 1048576"),
    ("mtu-mismatch", "bond0 up mtu 1500", "bond0 up mtu 9000"),
    ("mtu-mismatch", "df-ping stor1 56B 3/3, 8972B 0/3 -", "df-ping stor1 56B 3/3, 8972B 3/3 0.1ms"),
    ("clock-skew", "chronyd: no selectable sources", "chronyd: Selected source 10.0.0.1"),
]


@pytest.mark.parametrize(("cause", "odd", "usual"), SAID)
def test_the_host_and_the_cause(tmp_path: Path, cause: str, odd: str, usual: str) -> None:
    found = verdict(tmp_path, prolog(odd, usual))
    assert (found.cause, found.culprits.hosts, found.category) == (cause, ("birch-3",), "hang")
    assert odd in found.summary


@pytest.mark.parametrize("begin", ["[{0}] ", "{0} | ", "2026-03-11 10:00:01 preflight {0}: ", "{0}: entrypoint: "])
def test_wherever_the_name_stands(tmp_path: Path, begin: str) -> None:
    found = verdict(tmp_path, prolog(*SAID[0][1:], begin=begin))
    assert (found.cause, found.culprits.hosts) == ("cache-not-shared", ("birch-3",))


def test_a_job_that_is_too_slow(tmp_path: Path) -> None:
    lines = prolog("cgroup cpu.max 200000 100000", "cgroup cpu.max max 100000")
    found = verdict(tmp_path, lines, SLOW + "birch-1 10:10:00 ERROR slo: mean step above budget\n")
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "cpu-starved", ("birch-3",))


def test_direct_copies_that_one_host_does_not_make(tmp_path: Path) -> None:
    lines = prolog("GPU Direct RDMA Disabled for HCA 0", "GPU Direct RDMA Enabled for HCA 0")
    found = verdict(tmp_path, lines, SLOW + "birch-1 10:10:00 ERROR slo: mean step above budget\n")
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "gdr-disabled", ("birch-3",))


def test_a_job_of_which_a_person_says_that_it_was_slow(tmp_path: Path) -> None:
    """It ran into its time limit for that reason."""
    limit = "slurmstepd: error: *** JOB 551902 ON birch-1 CANCELLED AT 2025-08-22T13:02:09 DUE TO TIME LIMIT ***\n"
    asked = "note: 12 h should have given about 8000 steps, why only 2900?\n"
    lines = prolog("mlx5_0 rate: 50 Gb/sec (1X HDR)", "mlx5_0 rate: 200 Gb/sec (4X HDR)")
    found = verdict(tmp_path, lines, SLOW + limit + asked)
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "slow-network", ("birch-3",))


@pytest.mark.parametrize(
    ("odd", "usual"),
    [
        ("ecc 0, temp max 41C", "ecc 0, temp max 38C"),
        ("kernel 5.15.0-119-generic", "kernel 5.15.0-116-generic"),
        ("welcome to birch", "welcome to the birch cluster"),
    ],
)
def test_what_differs_and_tells_nothing(tmp_path: Path, odd: str, usual: str) -> None:
    assert verdict(tmp_path, prolog(odd, usual)).culprits.hosts == ()


def test_two_that_differ_are_nobody(tmp_path: Path) -> None:
    lines = prolog(*SAID[0][1:]).replace("birch-2: /data lustre 10.1.0.5@o2ib:/scr", "birch-2: /data ext4 /dev/sda1")
    assert verdict(tmp_path, lines).culprits.hosts == ()


def test_a_run_that_works_and_complains_of_nothing(tmp_path: Path) -> None:
    lines = prolog("cgroup cpu.max 200000 100000", "cgroup cpu.max max 100000")
    assert verdict(tmp_path, lines, SLOW).category == "healthy"


def test_a_run_that_finished(tmp_path: Path) -> None:
    found = verdict(tmp_path, prolog(*SAID[0][1:]), SLOW + "birch-1 10:10:00 training finished\n")
    assert found.category == "healthy"


def test_a_long_log_between_the_prolog_and_the_end(tmp_path: Path) -> None:
    work = "".join(f"birch-1 step {step} loss 2.1\n" for step in range(60_000))
    found = verdict(tmp_path, prolog(*SAID[0][1:]), work + HANGS)
    assert (found.cause, found.culprits.hosts) == ("cache-not-shared", ("birch-3",))


def ranks_of_hosts(odd: str, usual: str) -> str:
    """Two ranks on each of four hosts; a line names its rank alone, and the first one its host."""
    lines = "".join(
        f"{rank}: INFO launch host={HOSTS[rank // 2]} rank={rank}/8 pid={600 + rank}\n" for rank in range(8)
    )
    return lines + "".join(
        f"{rank}: INFO paths {odd if rank in (4, 5) else usual} for rank {rank} pid {600 + rank}\n" for rank in range(8)
    )


PATHS = ("ckpt=/ckpt (ext4 /dev/nvme0n1p3)", "ckpt=/ckpt (nfs4 10.3.0.5:/ckpt)")


def test_what_the_ranks_of_one_host_print(tmp_path: Path) -> None:
    waits = "".join(TIMED_OUT.format(rank) for rank in range(8))
    found = verdict(tmp_path, ranks_of_hosts(*PATHS), waits)
    assert (found.cause, found.culprits.hosts, found.culprits.ranks) == ("cache-not-shared", ("birch-3",), (4, 5))


def test_the_host_along_which_the_ranks_part(tmp_path: Path) -> None:
    """Of two sides the smaller one is all of one host, which has another file system."""
    loop = "".join(TIMED_OUT.format(rank).replace("512", "26214400" if rank in (4, 5) else "1") for rank in range(8))
    found = verdict(tmp_path, ranks_of_hosts(*PATHS), loop)
    assert (found.cause, found.culprits.ranks) == ("cache-not-shared", (4, 5))
    assert verdict(tmp_path / "alike", ranks_of_hosts(PATHS[1], PATHS[1]), loop).cause != "cache-not-shared"


def test_kernel_logs_of_hosts_tell_of_their_links(tmp_path: Path) -> None:
    """A slow link explains a job that gave up because it was slow."""
    files = {"train.log": SLOW + "birch-1 10:10:00 ERROR slo: mean step above budget\n"}
    for name in HOSTS:
        up = "1000 Mbps full duplex" if name == "birch-3" else "100000 Mbps full duplex"
        files[f"kern-{name}.log"] = (
            f"Nov  4 08:38:09 {name} kernel: mlx5_core 0000:41:00.0: firmware version: 22.39.2048\n"
            f"Nov  4 08:38:14 {name} kernel: mlx5_core 0000:41:00.0 ens5f0np0: NIC Link is Up, {up}\n"
            f"Nov  4 08:38:20 {name} kernel: EXT4-fs (nvme1n1): mounted filesystem with ordered data mode.\n"
        )
    found = diagnose([texts.write(tmp_path, files)]).verdict
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "slow-network", ("birch-3",))


@pytest.mark.parametrize("mark", ["+ ", "root@{0}:~# ", "++ "])
def test_answers_of_commands_that_a_shell_wrote_down(tmp_path: Path, mark: str) -> None:
    """A file per host; every command is short, and the answer does not repeat its name."""
    files = {"train.log": STARTED + SLOW + "birch-1 10:10:00 ERROR slo: mean step above budget\n"}
    for name in HOSTS:
        cpus = "400000 100000" if name == "birch-3" else "max 100000"
        shell = mark.format(name)
        files[f"prolog-{name}.log"] = f"{shell}hostname\n{name}\n{shell}cat /sys/fs/cgroup/cpu.max\n{cpus}\n"
    found = diagnose([texts.write(tmp_path, files)]).verdict
    assert (found.cause, found.culprits.hosts) == ("cpu-starved", ("birch-3",))


def test_the_own_name_of_a_host_is_no_difference(tmp_path: Path) -> None:
    lines = "".join(f"prolog {name}: chronyd on {name}.lan: 3 sources\n" for name in HOSTS)
    assert verdict(tmp_path, lines).culprits.hosts == ()


# -- tables with a heading

STARTED = "".join(f"{rank}: INFO launch host={HOSTS[rank // 2]} rank={rank}/8 pid={600 + rank}\n" for rank in range(8))


def table(heading: str, usual: str, odd: str, ruler: str = "") -> str:
    """A row per host below the heading."""
    rows = (f"{name}{odd if name == 'birch-3' else usual}\n" for name in HOSTS)
    return f"preflight ok\n{heading}\n{ruler}{''.join(rows)}all reachable\n"


@pytest.mark.parametrize(
    ("cause", "lines"),
    [
        (
            "nccl-version-mismatch",
            table("host     kernel  nccl    cuda", "  5.14    2.20.5  12.1", "  5.14    2.18.1  12.1"),
        ),
        ("mtu-mismatch", table("node  state  ping8972 -M do (ok/sent)", "  up  5/5", "  up  0/5", "-----  --  ---\n")),
        ("driver-mismatch", table("| host | driver | gpus |", " | 535.161.08 | 8", " | 550.54.15 | 8")),
        ("memlock-ulimit", table("hostname,memlock,nofile", ",unlimited,1048576", ",65536,1048576")),
    ],
)
def test_a_cell_of_a_table(tmp_path: Path, cause: str, lines: str) -> None:
    found = verdict(tmp_path, STARTED + lines, "".join(TIMED_OUT.format(rank) for rank in range(8)))
    assert (found.cause, found.culprits.hosts, found.culprits.ranks) == (cause, ("birch-3",), (4, 5))


@pytest.mark.parametrize(
    "lines",
    [
        table("host     nccl    temp", "  2.20.5  38", "  2.20.5  41"),
        table("host     nccl    temp", "  2.20.5  38", "  2.18.1  41").replace("birch-1  2.20.5", "birch-1  2.19.3"),
        table("host     iperf (Gb/s)  state", "  92.3  up", "  392.3  up"),
        "host     nccl    cuda\nbirch-1  2.20.5  12.1\nbirch-3  2.18.1  12.1\n",
    ],
    ids=["measured", "two differ", "faster", "two hosts"],
)
def test_a_table_that_tells_nothing(tmp_path: Path, lines: str) -> None:
    found = verdict(tmp_path, STARTED + lines, "".join(TIMED_OUT.format(rank) for rank in range(8)))
    assert found.culprits.hosts == ()


LIMIT = "slurmstepd: error: *** JOB 551902 ON birch-1 CANCELLED AT 2025-08-22T13:02:09 DUE TO TIME LIMIT ***\n"


def test_a_slow_link_in_a_table_and_a_job_that_ran_out_of_time(tmp_path: Path) -> None:
    found = verdict(tmp_path, STARTED + table("host     state  iperf (Gb/s)", "  up  92.3", "  up  9.3"), SLOW + LIMIT)
    assert (found.category, found.cause, found.culprits.hosts) == ("slow", "slow-network", ("birch-3",))


def test_a_row_of_one_gpu_in_a_job_that_ran_out_of_time(tmp_path: Path) -> None:
    rows = "".join(
        f"{name}  {gpu}  {30 + gpu}  {310 if (name, gpu) == ('birch-3', 1) else 700}.00 W\n"
        for name in HOSTS
        for gpu in range(2)
    )
    found = verdict(tmp_path, STARTED + "host  idx  temp  power.limit\n" + rows, SLOW + LIMIT)
    assert (found.category, found.cause) == ("slow", "gpu-thermal-or-power")
    assert (found.culprits.hosts, found.culprits.ranks) == (("birch-3",), (5,))


def test_lines_that_only_stand_at_the_same_place_are_not_compared(tmp_path: Path) -> None:
    """Ranks of several hosts print into one file in any order."""
    lines = ""
    for number, name in enumerate(HOSTS):
        said = [f"Using network Socket of {number}", f"comm 0x{number}f rank {number}", "NET/Plugin: No plugin found"]
        said = said[number % 3 :] + said[: number % 3]
        lines += "".join(f"{name} | {name}:7{number}:8{number} [0] NCCL INFO {text}\n" for text in said)
    lines += "birch-2 | NCCL version 2.21.5+cuda12.4\n"
    found = verdict(tmp_path, lines + lines, "".join(TIMED_OUT.format(rank) for rank in range(8)))
    assert found.cause != "nccl-version-mismatch"


def test_a_line_more_on_one_host_moves_those_below(tmp_path: Path) -> None:
    """Kernel lines of every host in a row: what all of them have is nobody's own."""
    lines = ""
    for name in HOSTS:
        said = [f"pci 0000:{bus}:00.0: 31.504 Gb/s available PCIe bandwidth" for bus in (91, 92, 93)]
        said[1:1] = ["pci 0000:41:00.0: PME# supported from D0 D3hot"] if name == "birch-3" else []
        lines += "".join(f"{name}: [    3.{at}77015] {text}\n" for at, text in enumerate(said))
    assert verdict(tmp_path, STARTED + lines, "".join(TIMED_OUT.format(rank) for rank in range(8))).culprits.hosts == ()
