"""Rules on hardware: what must be found in a host's evidence, and what must accuse nobody."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.evidence.readers.test_kernel_log import HEALTHY, IN_THREE_LINES
from tests.evidence.readers.test_nvidia_smi import TEXT
from tests.evidence.readers.test_pcap import ACK, PUSH, SYN, A, B, capture, exchange, segment
from whichrank.facts import taxonomy
from whichrank.facts.fixes import with_fix
from whichrank.facts.hardware import xids
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.model.findings import Finding, Grade
from whichrank.model.verdict import Diagnosis

FAMILIES = {
    "gpu_hardware": ("ecc_error", "fell_off_bus", "gpu_fault", "nvlink_fault", "fabric_manager", "thermal_or_power"),
    "cuda_fault": ("application_xid", "gpu_page_fault", "kernel_saw_crash"),
    "pcie_p2p": ("pcie_degraded",),
    "rdma_fabric": ("link_flap", "memlock_on_host", "mtu_black_hole"),
    "net_interface": ("packet_loss", "no_answer"),
    "host_resources": (
        "kernel_out_of_memory", "open_files_on_host", "file_system_full", "shm_on_host", "hung_task", "frozen",
    ),
    "slow_rank": ("cpu_starved",),
}  # fmt: skip
RULES = [import_module(f"whichrank.rules.{family}.{name}") for family, names in FAMILIES.items() for name in names]
CODES = {rule.CODE for rule in RULES}

# Two hosts with two ranks each, by NCCL's own words.
NCCL = "".join(
    f"node{7 + r // 2}:{1000 + r}:{1000 + r} [{r % 2}] NCCL INFO ncclCommInitRankConfig comm 0x{r + 1}a rank {r}"
    f" nranks 4 cudaDev {r % 2} nvmlDev {r % 2} busId {('17000', '2a000')[r % 2]} commId 0xa1fa62f7 - Init START\n"
    for r in range(4)
)
FAILED = "".join(
    f"[rank{r}]:[E1115 02:46:30.000000000 ProcessGroupNCCL.cpp:685] [Rank {r}] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=15, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012"
    " milliseconds before timing out.\n"
    for r in (0, 1, 3)
)
RUNNING = "".join(
    f"2026-11-15 02:{30 + i // 60:02}:{i % 60:02},000 INFO step {i}/900 loss 0.{900 - i}\n" for i in range(900)
)


def job(folder: Path, *parts: str) -> None:
    (folder / "nccl.log").write_text(NCCL)
    (folder / "train.log").write_text(RUNNING[:20000] + "".join(parts))


def put(folder: Path, name: str, text: str | bytes) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


def judged(folder: Path) -> Diagnosis:
    return diagnose([folder], jobs=1)


def accused(diagnosis: Diagnosis) -> list[Finding]:
    """Findings of these rules that are held against somebody."""
    return [f for f in diagnosis.findings if f.code in CODES and f.severity != "info"]


def one(folder: Path, code: str) -> Finding:
    found = [f for f in judged(folder).findings if f.code == code]
    assert found, [(f.code, f.message) for f in judged(folder).findings]
    return found[0]


def dmesg(words: str, at: str = "02:36:11") -> str:
    return f"2026-11-15T{at}.000000+00:00 node8 kernel: {words}\n"


XID = "NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name=python, {words}"


def xid(code: int, words: str = "", bus: str = "17", pid: str = "'<unknown>'") -> str:
    return XID.format(bus=bus, code=code, pid=pid, words=words)


# -- the pages


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.CODE)
def test_a_rule_keeps_its_contract(rule):
    assert rule.CAUSE in taxonomy.causes()
    sections = ["What it finds", "Why it happens", "How it decides", "Example", "Fix", "Limits"]
    assert [line[3:] for line in with_fix(rule.__doc__, rule.CAUSE).splitlines() if line.startswith("## ")] == sections
    assert len(CODES) == len(RULES)


# -- what must be found


@pytest.mark.parametrize(
    ("words", "code", "cause"),
    [
        (xid(79, "GPU has fallen off the bus."), "GPUH102", "gpu-fell-off-bus"),
        ("NVRM: GPU 0000:17:00.0: GPU has fallen off the bus.", "GPUH102", "gpu-fell-off-bus"),
        (xid(48, "DBE (double bit error)"), "GPUH101", "ecc-error"),
        (xid(94, "Contained: CE User Channel (0x9). RST: No, D-RST: No"), "GPUH101", "ecc-error"),
        (xid(95, "Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No"), "GPUH101", "ecc-error"),
        (xid(64, "Row Remapper: remap failed"), "GPUH101", "ecc-error"),
        (xid(74, "NVLink: fatal error detected on link 2(0x0, 0x0)"), "GPUH104", "nvlink-fault"),
        (xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x0)"), "GPUH104", "nvlink-fault"),
        (xid(119, "Timeout after 6s of waiting for RPC response from GPU4 GSP!"), "GPUH103", "xid-gpu-fault"),
        (xid(62, "2027 0 0"), "GPUH103", "xid-gpu-fault"),
        (xid(13, "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address"), "CUDA160",
         "xid-application-fault"),
        (xid(31, "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"), "CUDA160", "xid-application-fault"),
    ],
)  # fmt: skip
def test_xids_name_the_rank_on_that_gpu(tmp_path, words, code, cause):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/kern.log", HEALTHY + dmesg(words))
    diagnosis = judged(tmp_path)
    assert (diagnosis.verdict.cause, diagnosis.verdict.culprits.ranks) == (cause, (2,))
    assert diagnosis.findings[0].code == code
    assert diagnosis.findings[0].onset_ns == 1794710171 * 10**9
    assert diagnosis.verdict.victims == (0, 1, 3)
    assert diagnosis.verdict.fix
    gpus = [(gpu.host, gpu.index) for gpu in diagnosis.verdict.culprits.gpus]
    assert gpus == ([] if code == "CUDA160" else [("node8", 0)])


def test_the_first_fault_wins_and_the_rest_follows(tmp_path):
    job(tmp_path, FAILED)
    put(
        tmp_path, "node8/kern.log",
        dmesg("pcieport 0000:16:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Link", "02:36:10")
        + dmesg(xid(79, "GPU has fallen off the bus."))
        + dmesg(xid(119, "Timeout after 6s of waiting for RPC response", pid="1002"), "02:36:14")
        + dmesg(xid(45, "Ch 00000001", bus="2a", pid="1003"), "02:36:15")
        + dmesg(xid(154, "GPU recovery action changed"), "02:36:16"),
    )  # fmt: skip
    diagnosis = judged(tmp_path)
    assert [f.code for f in accused(diagnosis)] == ["GPUH102"]
    assert (diagnosis.verdict.cause, diagnosis.verdict.culprits.ranks) == ("gpu-fell-off-bus", (2,))
    assert any("severity=Uncorrectable" in ref.quote for ref in diagnosis.findings[0].evidence)


@pytest.mark.parametrize(
    ("named", "code", "cause"),
    [(149, "GPUH104", "nvlink-fault"), (79, "GPUH102", "gpu-fell-off-bus"), (95, "GPUH101", "ecc-error"),
     (62, "GPUH103", "xid-gpu-fault"), (31, "CUDA160", "xid-application-fault")],
)  # fmt: skip
def test_an_xid_that_only_its_consequence_names(tmp_path, named, code, cause):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/kern.log", dmesg(xid(45, f"Ch 00000001 caused by previous Xid {named}", pid="1002")))
    diagnosis = judged(tmp_path)
    assert (diagnosis.verdict.cause, diagnosis.verdict.culprits.ranks) == (cause, (2,))
    assert (diagnosis.findings[0].code, diagnosis.findings[0].severity) == (code, "error")
    assert diagnosis.findings[0].grade < Grade.PROVES
    assert "only the Xid 45" in diagnosis.verdict.summary


def test_a_named_xid_that_is_in_the_log_counts_as_it_stands_there(tmp_path):
    job(tmp_path, FAILED)
    told = xid(145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link -1 (0x0 0x0)")
    follows = xid(45, "Ch 00000001 caused by previous Xid 145", pid="1002")
    put(tmp_path, "node8/kern.log", dmesg(told) + dmesg(follows))
    assert [(f.code, f.message) for f in accused(judged(tmp_path))] == []


def test_a_refused_access_beside_errors_of_the_links(tmp_path):
    job(tmp_path, FAILED)
    refused = dmesg(xid(137, "RLW_RXPIPE interrupt hit on link 3: PRIV Error", pid="1002"))
    put(tmp_path, "node8/kern.log", refused)
    alone = one(tmp_path, "CUDA160")
    put(tmp_path, "node8/kern.log", dmesg(xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 3 (0x0)"), "02:36:10") + refused)
    both = one(tmp_path, "CUDA160")
    assert "not the GPU's" in alone.message
    assert "not the GPU's" not in both.message
    assert both.grade is Grade.HINTS < alone.grade
    assert {a.cause for a in both.alternatives} == {"nvlink-fault", "fabric-manager"}
    assert any(" 145," in ref.quote for ref in both.evidence)


def test_faults_of_one_process_after_the_other_on_one_gpu(tmp_path):
    faults = [dmesg(xid(31, "MMU Fault", pid=str(500 + i)), f"02:3{i}:11") for i in range(3)]
    put(tmp_path, "node8/kern.log", "".join(faults[:2]))
    two = one(tmp_path, "CUDA160")
    put(tmp_path, "node8/kern.log", "".join(faults))
    three = one(tmp_path, "CUDA160")
    assert "not the GPU's" in two.message
    assert "not the GPU's" not in three.message
    assert three.grade < two.grade
    assert "xid-gpu-fault" in {a.cause for a in three.alternatives}


def test_a_lost_gpu_that_the_driver_tells_in_three_lines(tmp_path):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/kern.log", "".join(dmesg(line.strip()) for line in IN_THREE_LINES).replace(":41:", ":17:"))
    finding = one(tmp_path, "GPUH102")
    assert (finding.severity, finding.subject.ranks) == ("error", (2,))


@pytest.mark.parametrize("pid", [1002, 4711])
def test_a_page_fault_of_an_amd_gpu(tmp_path, pid):
    """In a container the kernel's pids are others than the job's: rank 2 is the only one that failed."""
    job(tmp_path, FAILED)
    lines = (
        "[gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32777)",
        f" Process python pid {pid} thread python pid {pid}",
        "VM_L2_PROTECTION_FAULT_STATUS:0x00301030",
    )
    put(tmp_path, "node8/kern.log", "".join(dmesg(f"amdgpu 0000:17:00.0: amdgpu: {line}") for line in lines))
    finding = one(tmp_path, "CUDA162")
    assert (finding.cause, finding.severity, finding.subject.ranks) == ("cuda-illegal-access", "error", (2,))


def test_a_gpu_that_no_rank_is_known_of_is_named(tmp_path):
    put(tmp_path, "node8/dmesg.txt", "[100.000000] " + xid(79, "GPU has fallen off the bus.") + "\n")
    finding = one(tmp_path, "GPUH102")
    assert (finding.subject.ranks, finding.subject.hosts) == ((), ("node8",))
    assert "0000:17:00" in finding.message
    assert "node8" in finding.message
    assert finding.next[0].command.startswith("lspci -vvv -s 0000:17:00;"), "a command that can be run as it is"


def test_an_nvswitch(tmp_path):
    job(tmp_path, FAILED)
    put(tmp_path, "kern.log", dmesg("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"))
    finding = one(tmp_path, "GPUH104")
    assert (finding.severity, finding.subject.hosts) == ("error", ("node8",))
    assert "link 30" in finding.message


@pytest.mark.parametrize(
    ("words", "grade", "ranks"),
    [
        (
            "Out of memory: Killed process 1002 (python) total-vm:1kB, anon-rss:212044288kB, file-rss:0kB",
            Grade.PROVES,
            (2,),
        ),
        (
            "Memory cgroup out of memory: Killed process 77 (pt_main_thread) total-vm:1kB, anon-rss:1kB",
            Grade.SUPPORTS,
            (2,),
        ),
    ],
)
def test_the_kernel_killed_for_memory(tmp_path, words, grade, ranks):
    job(tmp_path, FAILED)
    put(tmp_path, "kern.log", dmesg(words))
    diagnosis = judged(tmp_path)
    finding = next(f for f in diagnosis.findings if f.code == "HOST150")
    assert (finding.grade, finding.subject.ranks, finding.subject.hosts) == (grade, ranks, ("node8",))
    assert diagnosis.verdict.cause == "host-out-of-memory"


def test_the_kernel_killed_something_of_another_job(tmp_path):
    """All ranks live, and none of them is the process that was killed."""
    job(tmp_path, FAILED)
    put(tmp_path, "kern.log", dmesg("Memory cgroup out of memory: Killed process 77 (python) total-vm:1kB"))
    for rank in range(4):
        stack = 'Thread 0x00007f60 (most recent call first):\n  File "/job/train.py", line 7 in main\n'
        put(tmp_path, f"stacks/rank_{rank}.txt", stack)
    diagnosis = judged(tmp_path)
    assert [f.severity for f in diagnosis.findings if f.code == "HOST150"] == ["info"]
    assert diagnosis.verdict.cause != "host-out-of-memory"


@pytest.mark.parametrize(("known", "told"), [(False, ["storage-stall"]), (True, [])])
def test_a_program_by_any_name_hangs_in_the_kernel(tmp_path, known, told):
    """As grep shows it; whose it is counts only where a job is known."""
    if known:
        job(tmp_path, FAILED)
    lines = "".join(
        f"messages:Jun 17 20:18:08 ip-10-0-0-7 kernel: INFO: task {name}:60808 blocked for more than 120 seconds.\n"
        for name in ("strat1_sim", "kworker/3:1")
    )
    put(tmp_path, "pasted.txt", lines)
    found = [f for f in judged(tmp_path).findings if f.code == "HOST154"]
    assert [f.cause for f in found if f.severity == "error"] == told
    assert all(f.grade is Grade.HINTS and "strat1_sim" in f.message for f in found if f.severity == "error")


@pytest.mark.parametrize(("known", "told"), [(False, ["host-out-of-memory"]), (True, [])])
def test_memory_ran_out_and_the_log_is_cut(tmp_path, known, told):
    if known:
        job(tmp_path, FAILED)
    put(tmp_path, "kern.log", dmesg("python invoked oom-killer: gfp_mask=0x14000c0(GFP_KERNEL), order=0"))
    found = [f for f in judged(tmp_path).findings if f.code == "HOST150"]
    assert [f.cause for f in found] == told
    assert all(f.grade <= Grade.SUPPORTS for f in found)


def test_a_native_crash_that_the_kernel_saw(tmp_path):
    job(tmp_path, FAILED)
    put(tmp_path, "kern.log", dmesg("python[1003]: segfault at 7f ip 00007f sp 00007f error 4 in libnccl.so.2[7f+3]"))
    finding = one(tmp_path, "CUDA161")
    assert (finding.subject.ranks, finding.severity) == ((3,), "error")
    assert "libnccl.so.2" in finding.message


def test_a_kernel_line_amid_the_output_of_the_job_is_of_its_run(tmp_path):
    silent = "Dec 02 01:23:23 h2-114 kernel: nfs: server scratch-02 not responding, still trying"
    late = (
        "[rank0]:[E1202 01:40:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation "
        "timeout: WorkNCCL(SeqNum=812, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600015 "
        "milliseconds before timing out."
    )
    put(tmp_path, "job.log", f"0: step 100 loss 2.31\n1: step 100 loss 2.31\n1: {silent}\n0: {late}\n")
    assert judged(tmp_path).verdict.cause == "storage-stall"
    put(tmp_path, "job.log", f"{silent}\n0: step 100 loss 2.31\n1: step 100 loss 2.31\n0: {late}\n")
    assert judged(tmp_path).verdict.cause != "storage-stall"


def test_a_task_that_hangs_on_a_file_server(tmp_path):
    job(tmp_path, FAILED)
    put(
        tmp_path, "kern.log",
        dmesg("nfs: server filer1 not responding, still trying", "02:35:00")
        + dmesg("INFO: task python:1002 blocked for more than 120 seconds.", "02:37:00"),
    )  # fmt: skip
    finding = one(tmp_path, "HOST154")
    assert (finding.category, finding.subject.ranks, "filer1" in finding.message) == ("hang", (2,), True)


def test_a_link_that_flaps(tmp_path):
    job(tmp_path, FAILED)
    put(
        tmp_path, "kern.log",
        dmesg(f"{PORT}: Link down") + dmesg(f"{PORT}: Link up", "02:36:14"),
    )  # fmt: skip
    finding = one(tmp_path, "RDMA151")
    assert (finding.severity, finding.subject.hosts, finding.subject.links[0].a.device) == (
        "error",
        ("node8",),
        "enp92s0",
    )


def test_counters_that_rose_between_two_looks(tmp_path):
    for when, count in (("before", 3), ("after", 5)):
        put(tmp_path, f"{when}/node8/sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", f"{count}\n")
        put(tmp_path, f"{when}/node8/sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
        put(tmp_path, f"{when}/node8/ethtool-S-enp92s0.txt", f"NIC statistics:\n     rx_discards_phy: {count * 1000}\n")
    flap, loss = one(tmp_path, "RDMA151"), one(tmp_path, "NETI150")
    assert "link_downed rose by 2" in flap.message
    assert [ref.quote for ref in flap.evidence] == ["mlx5_0/1 link_downed 3", "mlx5_0/1 link_downed 5"]
    assert "rx_discards_phy rose by 2,000" in loss.message


def smi(folder: Path, name: str, *changes: tuple[str, str], bus: str = "17") -> None:
    text = (
        TEXT.read_text().replace("00000000:00:06.0", f"00000000:{bus}:00.0").replace("GPU-7d4a6e84", f"GPU-{bus}4a6e84")
    )
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    put(folder, name, text)


BUSY = (
    "Idle                                           : Active",
    "Idle                                           : Not Active",
)
HOT = ("HW Thermal Slowdown                        : Not Active", "HW Thermal Slowdown                        : Active")
NARROW = ("Current                                : 16x", "Current                                : 8x")
PORT = "mlx5_core 0000:5c:00.0 enp92s0"
NO_FABRIC = "        State                                          : N/A"
CORRECTED = "DRAM Correctable                           : 0"
DRAM = "DRAM Uncorrectable                         : 0"


@pytest.mark.parametrize(("row", "told"), [
    ("0, 100 %, 88, 510 MHz, 1755 MHz", ["gpu-thermal-or-power"]),
    ("0, 3 %, 88, 510 MHz, 1755 MHz", []),
    ("0, 100 %, 61, 510 MHz, 1755 MHz", []),
    ("0, 100 %, 88, 1410 MHz, 1755 MHz", []),
])  # fmt: skip
def test_a_busy_gpu_at_half_its_clock(tmp_path, row, told):
    """Nobody asked for the reasons: load, heat and clock together tell it."""
    head = "index, utilization.gpu [%], temperature.gpu, clocks.current.sm [MHz], clocks.max.sm [MHz], power.limit [W]"
    put(tmp_path, "gpus.csv", f"{head}\n{row}, 350.00 W\n")
    assert [f.cause for f in judged(tmp_path).findings if f.code == "GPUH106"] == told


def test_a_hot_gpu(tmp_path):
    job(tmp_path)
    smi(tmp_path, "node8/nvidia-smi-q.txt", BUSY, HOT)
    finding = one(tmp_path, "GPUH106")
    assert (finding.category, finding.severity, finding.subject.ranks) == ("slow", "warning", (2,))
    assert "345 of 1980 MHz" in finding.message


def test_a_narrow_link_among_others(tmp_path):
    smi(tmp_path, "node8/nvidia-smi-a.txt", NARROW)
    smi(tmp_path, "node8/nvidia-smi-b.txt", bus="2a")
    finding = one(tmp_path, "PCIE151")
    assert (finding.grade, "width 8 of 16" in finding.message) == (Grade.SUPPORTS, True)


LIMITED = (
    "[Tue Sep  2 04:11:12 2025] mlx5_core 0000:3b:00.0: "
    "31.504 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x4 "
    "link at 0000:3a:02.0 (capable of 504.112 Gb/s with 32.0 GT/s PCIe x16 link)\n"
)
WIDE = (
    "[Tue Sep  2 04:11:12 2025] mlx5_core 0000:3b:00.0: "
    "504.112 Gb/s available PCIe bandwidth (32.0 GT/s PCIe x16 link)\n"
    "[Tue Sep  2 04:11:14 2025] mlx5_core 0000:3b:00.0 ens3np0: Link up\n"
)


@pytest.mark.parametrize(("others", "grade"), [(WIDE, Grade.SUPPORTS), (LIMITED, Grade.HINTS)])
def test_an_adapter_on_a_narrow_link(tmp_path, others, grade):
    """Where every host says so, they may be built so."""
    put(tmp_path, "dmesg_ldn-g04.txt", others)
    put(tmp_path, "dmesg_ldn-g05.txt", LIMITED)
    finding = one(tmp_path, "PCIE151")
    assert (finding.grade, finding.category) == (grade, "slow")
    assert "31 of 504 Gb/s" in finding.message
    assert finding.subject.hosts == ("ldn-g05",)


def test_memory_errors_that_were_added(tmp_path):
    job(tmp_path, FAILED)
    smi(tmp_path, "node8/before.txt")
    smi(tmp_path, "node8/after.txt", (DRAM, DRAM.replace(": 0", ": 2")))
    finding = one(tmp_path, "GPUH101")
    assert (finding.severity, finding.grade, finding.subject.ranks) == ("error", Grade.PROVES, (2,))


def test_a_gpu_that_is_lost(tmp_path):
    text = "Unable to determine the device handle for GPU 0000:17:00.0: GPU is lost.  Reboot the system\n"
    job(tmp_path, FAILED)
    put(tmp_path, "node8/nvidia-smi-q.txt", text)
    finding = one(tmp_path, "GPUH102")
    assert (finding.subject.ranks, finding.grade) == ((2,), Grade.PROVES)


def test_a_fabric_that_is_not_ready(tmp_path):
    job(tmp_path, FAILED)
    smi(tmp_path, "node8/nvidia-smi-q.txt", (NO_FABRIC, NO_FABRIC.replace("N/A", "In Progress")))
    assert one(tmp_path, "GPUH105").severity == "error"


@pytest.mark.parametrize(
    ("state", "ranks"), [("T (stopped)", (2,)), ("t (tracing stop)", None), ("S (sleeping)", None)]
)
def test_a_stopped_rank(tmp_path, state, ranks):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/proc/1002/status", f"Name:\tpython\nState:\t{state}\nTgid:\t1002\nPid:\t1002\nPPid:\t1\n")
    found = [f for f in judged(tmp_path).findings if f.code == "HOST155"]
    assert [f.subject.ranks for f in found] == ([ranks] if ranks else [])


LIMITS = "max locked memory       (kbytes, -l) 8192\nopen files                      (-n) 1024\n"
REFUSED = "node8:1002:1002 [0] NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n"
PLACE = 'Traceback (most recent call last):\n{0}  File "t.py", line 5, in main\n{0}'
TOO_MANY = "[rank2]: " + PLACE.format("[rank2]: ") + "OSError: [Errno 24] Too many open files\n"
FULL = PLACE.format("") + "OSError: [Errno 28] No space left on device: '/scratch/ckpt.pt'\n"
DF = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/sda1       100G   40G   60G  40% /\n"


def test_limits_count_where_they_were_reached(tmp_path):
    job(tmp_path, TOO_MANY)
    put(tmp_path, "nccl.log", NCCL + REFUSED)
    put(tmp_path, "node8/ulimit.txt", LIMITS)
    memlock, files = one(tmp_path, "RDMA152"), one(tmp_path, "HOST152")
    assert (memlock.severity, memlock.subject.ranks, "8,192 KiB" in memlock.message) == ("error", (2,), True)
    assert (files.severity, files.subject.ranks, "1,024 files" in files.message) == ("error", (2,), True)


def test_file_systems_count_where_writing_failed(tmp_path):
    job(tmp_path, FULL)
    put(
        tmp_path,
        "node8/df.txt",
        DF + "/dev/nvme0n1    894G  894G     0 100% /scratch\n/dev/loop3  64M  64M  0 100% /snap/core\n",
    )
    finding = one(tmp_path, "HOST153")
    assert (finding.severity, finding.grade, "/scratch" in finding.message) == ("error", Grade.PROVES, True)


def test_tiny_shared_memory_with_a_bus_error(tmp_path):
    job(tmp_path, "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. \n")
    put(tmp_path, "node8/df.txt", DF + "shm              64M   64M     0 100% /dev/shm\n")
    finding = one(tmp_path, "HOST151")
    assert (finding.severity, finding.grade) == ("error", Grade.PROVES)


def test_a_container_that_is_held_back(tmp_path):
    job(tmp_path)
    put(tmp_path, "before/node8/cpu.stat", "usage_usec 1\nnr_periods 100\nnr_throttled 0\nthrottled_usec 5\n")
    put(tmp_path, "after/node8/cpu.stat", "usage_usec 9\nnr_periods 1100\nnr_throttled 600\nthrottled_usec 9\n")
    finding = one(tmp_path, "SLOW150")
    assert (finding.subject.ranks, finding.grade, "60%" in finding.message) == ((2, 3), Grade.SUPPORTS, True)


def test_packets(tmp_path):
    frames = exchange() * 8
    put(tmp_path, "loss.pcap", capture(frames))
    assert one(tmp_path, "NETI150").category == "slow"
    silent = [segment(A, B, 100, flags=SYN)] * 5
    put(tmp_path, "loss.pcap", capture(silent))
    assert "29500" in one(tmp_path, "NETI151").message
    stuck = [segment(A, B, 1 + i * 100, 1, PUSH, 100) for i in range(4)] + [segment(B, A, 1, 401, ACK)]
    stuck += [segment(A, B, 401, 1, PUSH, 8948)] * 6 + [segment(B, A, 1, 401, ACK)]
    put(tmp_path, "loss.pcap", capture(stuck))
    assert "8948" in one(tmp_path, "RDMA153").message


# -- what must accuse nobody


def test_recorded_healthy_hardware(tmp_path):
    job(tmp_path)
    put(tmp_path, "node8/dmesg.txt", HEALTHY)
    smi(tmp_path, "node8/nvidia-smi-q.txt")
    diagnosis = judged(tmp_path)
    assert [f.message for f in diagnosis.findings if f.code in CODES] == []


@pytest.mark.parametrize(
    ("code", "words"),
    [(13, "Graphics SM Warp Exception"), (31, "MMU Fault"), (48, "DBE: uncorrectable ECC error"), (62, "0 0 0"),
     (74, "NVLink: fatal error detected on link 2"), (79, "GPU has fallen off the bus."), (94, "Contained: SM"),
     (95, "Uncontained: uncorrectable ECC error"), (119, "Timeout after 6s of waiting for RPC response")],
)  # fmt: skip
def test_xids_from_before_the_run(tmp_path, code, words):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/kern.log", dmesg(xid(code, words), "01:00:00") + dmesg("usb 1-1: new device", "02:50:00"))
    diagnosis = judged(tmp_path)
    by_kernel = [f for f in diagnosis.findings if any(ref.source.endswith("kern.log") for ref in f.evidence)]
    assert [(f.code, f.severity) for f in by_kernel if f.severity != "info"] == []
    assert by_kernel
    assert all("before the run" in f.message for f in by_kernel)


@pytest.mark.parametrize(
    "words",
    [xid(31, "MMU Fault"), "mlx5_core 0000:5c:00.0 enp92s0: Link down", "python[999]: segfault at 7f ip 0 sp 0 error 4",
     "Out of memory: Killed process 9999 (python) total-vm:1kB, anon-rss:1kB"],
)  # fmt: skip
def test_noise_during_a_run_that_goes_well(tmp_path, words):
    job(tmp_path)
    put(tmp_path, "node8/kern.log", dmesg(words, "02:33:00"))
    assert [(f.code, f.severity) for f in judged(tmp_path).findings if f.severity != "info"] == []


@pytest.mark.parametrize(("first", "code"), [(None, 43), (31, 31)])
def test_a_stopped_channel_counts_alone_and_follows_another(tmp_path, first, code):
    job(tmp_path, FAILED)
    before = dmesg(xid(first, "MMU Fault"), "02:36:10") if first else ""
    put(tmp_path, "node8/kern.log", before + dmesg(xid(43, "Ch 00000010", pid="1002")))
    finding = one(tmp_path, "CUDA160")
    assert f"Xid {code} " in finding.message
    assert (finding.subject.ranks, len(finding.evidence)) == ((2,), 1)


@pytest.mark.parametrize("code", [13, 31, 62, 79, 94])
def test_an_undated_xid_of_a_job_that_runs_well(tmp_path, code):
    job(tmp_path)
    put(tmp_path, "node8/dmesg.txt", "[1000.000000] " + xid(code, "words") + "\n")
    assert accused(judged(tmp_path)) == []


def test_an_undated_xid_that_is_far_older_than_its_log(tmp_path):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/dmesg.txt", f"[1000.000000] {xid(31, 'words')}\n[900000.000000] usb 1-1: new device\n")
    assert accused(judged(tmp_path)) == []


@pytest.mark.parametrize(
    "words",
    [
        xid(45, "Ch 00000001", pid="1002"),
        xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."),
        xid(92, "High single-bit ECC error rate"),
        xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        xid(145, "RLW_SRC_TRACK Nonfatal XC1 i0 Link -1 (0x0 0x0)"),
        xid(13, "Graphics SM Warp Exception", bus="9b"),
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
        "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5",
        "Out of memory: Killed process 9999 (chrome) total-vm:1kB, anon-rss:1kB",
        "chrome[999]: segfault at 7f ip 00007f sp 00007f error 4 in libc.so.6[7f+3]",
        "INFO: task kworker/3:1:991 blocked for more than 120 seconds.",
        "CPU7: Core temperature above threshold, cpu clock throttled (total events = 1)",
        "amdgpu 0000:17:00.0: [gfxhub] page fault (src_id:0 ring:9 vmid:0 pasid:0, for process  pid 0 thread  pid 0)",
        "amdgpu 0000:17:00.0: [gfxhub] page fault (src_id:0 ring:9 vmid:3 pasid:7, for process x pid 9 thread x pid 9)",
        "amdgpu 0000:17:00.0: amdgpu:  Process python pid 1002 thread python pid 1002",
        "mce: [Hardware Error]: Machine check events logged",
    ],
)
def test_what_accuses_nobody_even_when_the_job_failed(tmp_path, words):
    job(tmp_path, FAILED)
    put(tmp_path, "node8/kern.log", dmesg(words))
    assert [(f.code, f.message) for f in accused(judged(tmp_path))] == []


def test_a_server_that_came_back(tmp_path):
    job(tmp_path, FAILED)
    silent = dmesg("nfs: server filer1 not responding, still trying") + dmesg("nfs: server filer1 OK", "02:36:40")
    put(tmp_path, "kern.log", silent)
    assert accused(judged(tmp_path)) == []


def test_links_that_come_up_at_boot(tmp_path):
    job(tmp_path, FAILED)
    put(
        tmp_path,
        "node8/dmesg.txt",
        f"[   20.000000] {PORT}: Link down\n[   25.000000] {PORT}: Link up\n",
    )
    assert accused(judged(tmp_path)) == []


def test_counters_seen_once_or_at_their_ceiling(tmp_path):
    job(tmp_path, FAILED)
    tree = "node8/sys/class/infiniband/mlx5_0/ports/1"
    for when in ("before", "after"):
        put(tmp_path, f"{when}/{tree}/counters/link_downed", "255\n")
        put(tmp_path, f"{when}/{tree}/counters/symbol_error", "65535\n")
    put(tmp_path, f"once/{tree.replace('mlx5_0', 'mlx5_1')}/counters/link_downed", "7\n")
    put(tmp_path, "once/node8/ethtool-S-enp92s0.txt", "NIC statistics:\n     rx_discards_phy: 48211\n")
    put(
        tmp_path, "once/nvlink.txt", "GPU 0: NVIDIA GB300\n\t Link 0: Replay Errors: 9\n\t Link 0: Recovery Errors: 7\n"
    )
    assert accused(judged(tmp_path)) == []


def test_unused_ports_that_are_down(tmp_path):
    job(tmp_path, FAILED)
    shape = "CA 'mlx5_{}'\n\tPort 1:\n\t\tState: {}\n\t\tPhysical state: {}\n"
    text = shape.format(0, "Active", "LinkUp") + shape.format(1, "Down", "Disabled")
    put(tmp_path, "node8/ibstat.txt", text)
    assert accused(judged(tmp_path)) == []


def test_corrected_and_lifetime_errors_of_memory(tmp_path):
    job(tmp_path, FAILED)
    old = "        Aggregate\n            SRAM Correctable                           : 0"
    smi(tmp_path, "node8/nvidia-smi-q.txt", (CORRECTED, CORRECTED + "9"),
        (old, old.replace(": 0", ": 7")))  # fmt: skip
    assert accused(judged(tmp_path)) == []


def test_an_idle_gpu_at_a_low_clock_and_generation(tmp_path):
    job(tmp_path)
    smi(
        tmp_path,
        "node8/nvidia-smi-q.txt",
        HOT,
        ("Current                                : 5", "Current                                : 1"),
    )
    assert accused(judged(tmp_path)) == []


def test_low_limits_and_full_disks_of_a_job_that_runs(tmp_path):
    job(tmp_path)
    put(tmp_path, "node8/ulimit.txt", LIMITS)
    put(tmp_path, "node8/df.txt", DF + "/dev/sdb1  10G  10G  0 100% /old\nshm  64M  0  64M  0% /dev/shm\n")
    put(tmp_path, "node8/cpu.stat", "nr_periods 900\nnr_throttled 100\n")
    assert accused(judged(tmp_path)) == []


def test_refused_and_plain_connections(tmp_path):
    put(tmp_path, "lo.pcap", (TEXT.parent / "loopback.pcap").read_bytes())
    assert accused(judged(tmp_path)) == []


def test_could_not_read_is_not_clear(tmp_path):
    put(tmp_path, "dmesg.txt", "dmesg: read kernel buffer failed: Operation not permitted\n")
    diagnosis = judged(tmp_path)
    assert diagnosis.verdict.cause == "unknown"
    assert {code for code in diagnosis.coverage.clear if code in CODES} == set()
    assert CODES - {s.code for s in diagnosis.coverage.not_evaluated} == set()


# -- the table


def test_every_xid_has_a_meaning_and_a_source():
    table = xids.all_xids()
    assert len(table) == 268
    assert all(row.meaning and row.source and row.name for row in table)
    blamed = [row for row in table if row.blame in ("memory", "bus", "gpu", "nvlink", "application")]
    assert [(row.kind, row.code) for row in blamed if not row.fix] == []


@pytest.mark.parametrize(
    ("code", "blame"),
    [(13, "application"), (31, "application"), (43, "application"), (45, "consequence"), (48, "memory"), (63, "nobody"),
     (64, "memory"), (74, "nvlink"), (79, "bus"), (94, "memory"), (95, "memory"), (109, "gpu"), (119, "gpu"),
     (154, "nobody"), (16, "nobody")],
)  # fmt: skip
def test_whom_an_xid_blames(code, blame):
    fact = xids.xid(code)
    assert fact is not None
    assert fact.blame == blame


@pytest.mark.parametrize(("up_again", "cause"), [("10:14:07", "gpu-fell-off-bus"), ("10:16:20", "ib-link-flap")])
def test_a_link_that_was_up_again_long_before_the_failure_is_not_its_cause(tmp_path, up_again, cause):
    lost = "NVRM: Xid (PCI:0000:5d:00): 79, pid=4242, name=python3, GPU has fallen off the bus."
    (tmp_path / "node3.dmesg").write_text(
        "2026-03-01T10:14:02,118000+00:00 mlx5_core 0000:3b:00.0 ens3f0np0: Link down\n"
        f"2026-03-01T{up_again},500000+00:00 mlx5_core 0000:3b:00.0 ens3f0np0: Link up\n"
        f"2026-03-01T10:16:31,002000+00:00 {lost}\n"
    )
    (tmp_path / "train.log").write_text(
        "2026-03-01 10:16:31,900 [rank13]: RuntimeError: CUDA error: unspecified launch failure\n"
    )
    assert diagnose([tmp_path], jobs=1).verdict.cause == cause


@pytest.mark.parametrize(("code", "codes"), [(-9, ["HOST103"]), (-11, ["CUDA160", "CUDA104"])])
def test_an_xid_of_another_program_where_this_job_was_killed(tmp_path, code, codes):
    """A job that somebody ended did not fail of what another program did on the same GPU."""
    words = f"failed (exitcode: {code}) local_rank: 2 (pid: 1002) of binary: /usr/bin/python3"
    job(tmp_path, f"E1115 00:18:45.700000 900 torch/distributed/elastic/multiprocessing/api.py:869] {words}\n")
    xid = "NVRM: Xid (PCI:0000:17:00): 31, pid=4242, name=python, Ch 00000008. MMU Fault: ENGINE GRAPHICS"
    put(tmp_path, "kern.log", dmesg(xid))
    assert [f.code for f in judged(tmp_path).findings] == codes


@pytest.mark.parametrize(
    ("words", "of_this_job"),
    [
        ("Expected to have finished reduction in the prior iteration before starting a new one.", False),
        ("CUDA error: an illegal memory access was encountered", True),
    ],
)
def test_an_xid_of_another_program_where_this_job_says_what_it_failed_of(tmp_path, words, of_this_job):
    trace = f'Traceback (most recent call last):\n  File "/srv/train.py", line 9, in <module>\nRuntimeError: {words}\n'
    job(tmp_path, "".join(f"[rank{rank}]: {line}\n" for rank in range(4) for line in trace.splitlines()))
    xid = "NVRM: Xid (PCI:0000:17:00): 43, pid=4242, name=python, channel 0x000000c2"
    put(tmp_path, "kern.log", dmesg(xid))
    assert ("CUDA160" in {f.code for f in judged(tmp_path).findings}) == of_this_job


def siblings(tmp_path: Path, width: int = 16, clock: int = 1730, heat: int = 62) -> Diagnosis:
    rows = [f"a40-0{host},{n},NVIDIA A40,16,1730,61" for host in range(1, 5) for n in range(8)]
    rows[19] = f"a40-03,3,NVIDIA A40,{width},{clock},{heat}"
    put(tmp_path, "gpus.csv", "node,index,name,pcie.link.width.current,clocks.sm,temperature.gpu\n" + "\n".join(rows))
    return judged(tmp_path)


def test_a_link_that_is_narrower_than_those_of_the_siblings(tmp_path: Path) -> None:
    found = siblings(tmp_path, width=4).verdict
    assert (found.cause, found.culprits.hosts, found.culprits.gpus[0].index) == ("pcie-degraded", ("a40-03",), 3)


def test_a_hot_gpu_at_half_the_clock_of_its_siblings(tmp_path: Path) -> None:
    found = siblings(tmp_path, clock=525, heat=88).verdict
    assert (found.cause, found.culprits.hosts) == ("gpu-thermal-or-power", ("a40-03",))


def test_siblings_that_are_alike_accuse_nobody(tmp_path: Path) -> None:
    assert not accused(siblings(tmp_path))
    assert not accused(siblings(tmp_path, clock=525))  # cool: it may be idle


@pytest.mark.parametrize(("pending", "cause"), [(3, "ecc-error"), (1, "cuda-illegal-access")])
def test_a_row_remap_that_is_pending_on_the_gpu_of_the_rank_that_failed(tmp_path, pending, cause):
    """On another GPU it is a warning."""
    query = "nvidia-smi --query-gpu=index,pci.bus_id,ecc.errors.uncorrected.volatile.total,remapped_rows.pending"
    asked = "".join(
        f"== n3{host} == {query} --format=csv,noheader\n"
        + "".join(f"{gpu}, 00000000:{gpu}3:00.0, 0, {'Yes' if host and gpu == pending else 'No'}\n" for gpu in range(4))
        for host in range(2)
    )
    (tmp_path / "prolog.txt").write_text(asked)
    log = "".join(
        f"n3{rank // 4}:{500 + rank}:{500 + rank} [{rank % 4}] NCCL INFO ncclCommInitRank comm 0x{rank}f rank {rank} "
        f"nranks 8 cudaDev {rank % 4} nvmlDev {rank % 4} busId {rank % 4}3000 commId 0x3f1c7d0e2b9a4c55 - Init START\n"
        for rank in range(8)
    )
    failed = 'Traceback (most recent call last):\n  File "fit.py", line 3, in <module>\n    loss.backward()\n'
    failed += "RuntimeError: CUDA error: unspecified launch failure\n"
    log += "".join(f"[rank7]: {line}\n" for line in failed.splitlines())
    (tmp_path / "job.log").write_text(log)
    verdict = diagnose([tmp_path], jobs=1).verdict
    assert (verdict.cause, verdict.culprits.ranks) == (cause, (7,))


@pytest.mark.parametrize(("held", "starved"), [(287, True), (200, False)])
def test_a_quota_that_holds_a_group_back_all_the_time_needs_one_look(tmp_path, held, starved):
    put(
        tmp_path,
        "host_node-32.txt",
        f"node-32$ cat /sys/fs/cgroup/cpu/job/cpu.stat\nnr_periods 287\nnr_throttled {held}\n",
    )
    put(tmp_path, "job.log", "".join(f"step {n} loss 2.1\n" for n in range(9)))
    assert ("cpu-starved" in [f.cause for f in diagnose([tmp_path], jobs=1).findings]) == starved


def test_the_quota_of_one_process(tmp_path):
    """By the pid above its counters, and the rank that says that pid."""
    log = "".join(f"10:52:50 trn-b2 rank{n} INFO starting pid {17356 + n}\n" for n in range(4))
    log += "".join(f"10:53:{s:02} trn-b2 rank{n} INFO step {s} loss 2.1\n" for s in range(9) for n in range(4))
    put(tmp_path, "torchrun.log", log)
    counted = {17358: "nr_periods 108\nnr_throttled 106\nthrottled_time 7532155423\n"}
    put(tmp_path, "proc.txt", "".join(f"== pid {p}\n1:cpu:/\n{counted.get(p, '')}" for p in range(17356, 17360)))
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.category, found.cause, found.culprits.ranks) == ("slow", "cpu-starved", (2,))


def test_quotas_of_tasks_as_grep_prints_them(tmp_path):
    counted = "task_{0}/cpu.stat:nr_periods {1}\ntask_{0}/cpu.stat:nr_throttled {2}\ntask_{0}/cgroup.procs:{3}\n"
    text = "[root@c5-12 step_0]# grep . task_2/cpu.* task_3/cpu.*\n"
    text += counted.format(2, 0, 0, 19336) + counted.format(3, 1173, 739, 19337)
    put(tmp_path, "cgroup.txt", text)
    for rank in range(4):
        first = f'{{"rank": {rank}, "event": "init", "host": "c5-1{rank // 2 + 1}", "pid": {19334 + rank}}}\n'
        steps = "".join(f'{{"rank": {rank}, "step": {n}, "loss": 0.{n}, "step_ms": 900.1}}\n' for n in range(1, 9))
        put(tmp_path, f"metrics.{rank}.jsonl", first + steps)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks, found.culprits.hosts) == ("cpu-starved", (3,), ("c5-12",))


def test_the_rank_on_a_gpu_that_the_list_of_nvidia_smi_lacks(tmp_path):
    """Its number is the place of its rank among those of the host; what the others' kernels do says nothing of it."""
    text = "root@n2:~# dmesg -T | tail -n 2\n"
    text += "[Sun Jul 20 05:48:20 2025] NVRM: Xid (PCI:0000:9b:00): 79, pid=1, name=x, GPU has fallen off the bus.\n"
    text += "root@n2:~# nvidia-smi\nUnable to determine the device handle for GPU2: 0000:9B:00.0: Unknown Error\n"
    text += "root@n2:~# nvidia-smi -L\n"
    text += "".join(f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-a2e0...)\n" for n in (0, 1, 3))
    put(tmp_path, "console.txt", text)
    log = "nodes: n1=ranks 0-3  n2=ranks 4-7\n"
    log += "".join(
        f"[rank{rank}]: Traceback (most recent call last):\n[rank{rank}]: RuntimeError: CUDA error: {what}\n"
        for rank, what in ((5, "unspecified launch failure"), (4, "unspecified launch failure"), (6, "unknown error"))
    )
    put(tmp_path, "train.log", log)
    found = diagnose([tmp_path], jobs=1).verdict
    assert (found.cause, found.culprits.ranks) == ("gpu-fell-off-bus", (6,))
    put(tmp_path, "console.txt", "\n".join(text.split("\n")[:2]) + "\n")
    found = diagnose([tmp_path], jobs=1).verdict
    assert found.cause == "gpu-fell-off-bus"
    assert found.culprits.ranks != (4, 5)
