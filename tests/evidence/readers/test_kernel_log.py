"""The reader of kernel logs: every prefix, every message, and much that says nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import kernel_log
from whichrank.evidence.readers.kernel_log.lines import MATCHERS
from whichrank.model.contracts import Item, Reading
from whichrank.records.hardware import KERNEL_KINDS, KernelEvent

LOST = "NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
AT = 1794710171_000000000  # 2026-11-15T02:36:11Z

HEALTHY = """\
[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02) (x86_64-linux-gnu-gcc-13) #45-Ubuntu SMP
[    0.000000] Command line: BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt
[    1.204233] ACPI BIOS Error (bug): Could not resolve symbol [\\_SB.PC00], AE_NOT_FOUND (20230628/psargs-330)
[    2.100201] pci 0000:17:00.0: BAR 1: assigned [mem 0x1000-0x2000 64bit pref]
[    8.811031] nvidia: module license 'NVIDIA' taints kernel.
[    9.013310] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04
[   11.401122] nvidia-nvswitch0: open (major=508)
[   15.330122] EXT4-fs (sda1): mounted filesystem with ordered data mode. Quota mode: none.
[   16.001211] audit: type=1400 audit(1794700016.001:2): apparmor="STATUS" operation="profile_load" name="lsb_release"
[   20.031100] IPv6: ADDRCONF(NETDEV_CHANGE): eth0: link becomes ready
[   20.431100] docker0: port 1(veth12ab) entered blocking state
[   31.100310] systemd[1]: Started Journal Service.
[  120.110000] perf: interrupt took too long (2505 > 2500), lowering kernel.perf_event_max_sample_rate to 79750
[  300.000001] NVRM: Persistence mode is deprecated and will be removed in a future release.
[  412.000001] nvidia_uvm: module uses symbols from proprietary module nvidia, inheriting taint.
"""


def read(folder: Path, text: str | bytes, label: str = "dmesg.txt") -> Reading:
    path = folder / "evidence"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return kernel_log.read(Item(path, label, path.stat().st_size, 0))


def events(folder: Path, text: str | bytes, label: str = "dmesg.txt") -> list[KernelEvent]:
    return [event for event in read(folder, text, label).records if isinstance(event, KernelEvent)]


@pytest.mark.parametrize(
    ("prefix", "when", "uptime", "host"),
    [
        ("[12345.678901] ", None, 12345678901000, None),
        ("[    5.000001] ", None, 5000001000, None),
        ("<4>[12345.678901] ", None, 12345678901000, None),
        ("kern  :err   : [12345.678901] ", None, 12345678901000, None),
        ("[Sun Nov 15 02:36:11 2026] ", AT, None, None),
        ("2026-11-15T02:36:11,000000+00:00 ", AT, None, None),
        ("2026-11-15T03:36:11.000000+01:00 node7 kernel: ", AT, None, "node7"),
        ("2026-11-14T21:36:11-0500 node7.cluster kernel: ", AT, None, "node7.cluster"),
        ("2026-11-15T02:36:11.000000+00:00 node7 kernel: [12345.678901] ", AT, 12345678901000, "node7"),
        ("Nov 15 02:36:11 node7 kernel: ", -4051429 * 10**9, None, "node7"),
        ("Nov  5 02:36:11 gpu-a kernel: [12345.678901] ", -4915429 * 10**9, 12345678901000, "gpu-a"),
        ("6,1234,12345678901,-;", None, 12345678901000, None),
        ("node7: [12345.678901] ", None, 12345678901000, "node7"),
        ("node7: Nov 15 02:36:11 node7 kernel: ", -4051429 * 10**9, None, "node7"),
        ("\x1b[32m[12345.678901]\x1b[0m ", None, 12345678901000, None),
        ("", None, None, None),
    ],
)
def test_prefixes(tmp_path, prefix, when, uptime, host):
    (event,) = events(tmp_path, prefix + LOST + "\n")
    assert (event.kind, event.code, event.device, event.pid) == ("xid", 79, "0000:17:00", None)
    assert (event.time_ns, event.uptime_ns, event.host) == (when, uptime, host)
    assert event.ref.quote == LOST
    assert event.ref.locator == "line 1"


def test_a_line_of_the_journal_as_json(tmp_path):
    line = (
        '{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1794710171000000","_HOSTNAME":"node7",'
        f'"__MONOTONIC_TIMESTAMP":"12345678901","MESSAGE":"{LOST}"}}\n'
    )
    assert kernel_log.sniff(line.encode(), "journal.json")
    (event,) = events(tmp_path, line)
    assert (event.time_ns, event.uptime_ns, event.host, event.code) == (AT, 12345678901000, "node7", 79)


XIDS = {
    "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from "
    "GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).": (119, "0000:9b:00", 2024380, "nvidia-smi", {}),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No": (
        94, "0000:01:00", 7194, "", {"mig": "GPU-I:05"}),
    "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:00): 13, pid='7194', name=python, Graphics SM Warp Exception": (
        13, "0000:01:00", 7194, "python", {"mig": "GPU-I:05 GPU-CI:00"}),
    "NVRM: Xid (PCI:0000:01:00): 95, pid=7062, Uncontained: LTC TAG (0x2, 0x1). RST: Yes, D-RST: No": (
        95, "0000:01:00", 7062, "", {}),
    "NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x0)": (
        149, "0018:01:00", None, "", {"fatal": 1, "link": 8}),
    "NVRM: Xid (PCI:0018:01:00): 145, RLW_SRC_TRACK Nonfatal XC1 i0 Link -1 (0x0 0x0)": (
        145, "0018:01:00", None, "", {"fatal": 0, "link": -1}),
    "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149": (
        45, "0000:dc:00", 1818990, "python3", {"caused_by": 149}),
    "NVRM: Xid (0000:03:00): 13, 0001 00000000 0000a0c0 00000000": (13, "0000:03:00", None, "", {}),
    "NVRM: Xid (GPU-5269b708-3d67-bed8-bd90-92a6b1f30d3c): 31, pid=5, name=python, MMU Fault": (
        31, "GPU-5269b708-3d67-bed8-bd90-92a6b1f30d3c", 5, "python", {}),
    "NVRM: Xid (PCI:0000:09:00): 79, pid=0, GPU has fallen off the bus.": (79, "0000:09:00", None, "", {}),
}  # fmt: skip


@pytest.mark.parametrize("line", XIDS)
def test_xids_of_every_driver(tmp_path, line):
    code, device, pid, process, data = XIDS[line]
    (event,) = events(tmp_path, f"[1.000000] {line}\n")
    assert (event.code, event.device, event.pid, event.process) == (code, device, pid, process)
    assert {key: event.data.get(key) for key in data} == data
    assert ("caused_by" in event.data) is ("caused_by" in data)


MESSAGES = {
    "nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal, Link 30 LTSSM Fault Up": (
        "sxid", "nvidia-nvswitch0", None, {"code": 20034, "fatal": 1, "link": 30}),
    "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)": (
        "sxid", "nvidia-nvswitch3", None, {"code": 12028, "fatal": 0, "link": 32}),
    "NVRM: GPU 0000:18:00.0: GPU has fallen off the bus.": ("gpu_lost", "0000:18:00.0", None, {}),
    "NVRM: GPU 0000:18:00.0: RmInitAdapter failed! (0x24:0xffff:1211)": ("gpu_init_failed", "0000:18:00.0", None, {}),
    "NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d": ("gpu_name", "0000:9b:00", None, {}),
    "NVRM: GPU 0000:18:00.0 has fallen off the bus and is not responding to commands.": ("gpu_lost", "", None, {}),
    "NVRM: The NVIDIA GPU 0000:18:00.0 (PCI ID: 10de:2330) installed in this system has fallen off the bus and is not "
    "responding to commands.": ("gpu_lost", "0000:18:00.0", None, {}),
    "amdgpu 0000:26:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:3 pasid:32777, for process "
    "python pid 991 thread python pid 992)": ("gpu_page_fault", "0000:26:00.0", 991, {}),
    "amdgpu 0000:26:00.0: [gfxhub] page fault (src_id:0 ring:221 vmid:0 pasid:0, for process  pid 0 thread  pid 0)": (
        "gpu_page_fault", "0000:26:00.0", 0, {}),
    "amdgpu 0000:26:00.0: amdgpu: [mmhub0] no-retry page fault (src_id:0 ring:144 vmid:3 pasid:35032)": (
        "gpu_page_fault", "0000:26:00.0", None, {}),
    "amdgpu 0000:26:00.0: amdgpu: GCVM_L2_PROTECTION_FAULT_STATUS:0x00801031": (
        "gpu_page_fault", "0000:26:00.0", None, {}),
    "amdgpu 0000:26:00.0: amdgpu:  Process python pid 991 thread python pid 992": (
        "gpu_process", "0000:26:00.0", 991, {}),
    "amdgpu 0000:26:00.0: amdgpu:  for process python pid 991 thread python pid 992)": (
        "gpu_process", "0000:26:00.0", 991, {}),
    "pcieport 0000:00:03.1: AER: Correctable error message received from 0000:00:00.0": (
        "pcie_error", "0000:00:03.1", None, {"severity": "corrected"}),
    "pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5": (
        "pcie_error", "0000:00:1c.5", None, {"severity": "corrected"}),
    "pcieport 0000:00:03.1: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer, (Receiver ID)": (
        "pcie_error", "0000:00:03.1", None, {"severity": "fatal"}),
    "pcieport 0000:00:03.1: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer": (
        "pcie_error", "0000:00:03.1", None, {"severity": "nonfatal"}),
    "Out of memory: Killed process 991 (python) total-vm:1kB, anon-rss:212044288kB, file-rss:0kB, shmem-rss:0kB": (
        "oom_kill", "", 991, {"scope": "host", "anon_kb": 212044288}),
    "Out of memory: Kill process 991 (python) score 900 or sacrifice child": ("oom_kill", "", 991, {"scope": "host"}),
    "Memory cgroup out of memory: Killed process 991 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB": (
        "oom_kill", "", 991, {"scope": "cgroup"}),
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=a,oom_memcg=/b,task=python,pid=991,uid=0": (
        "oom_kill", "", 991, {"scope": "cgroup"}),
    "python[4711]: segfault at 7f10 ip 00007f1a sp 00007ffc error 4 in libnccl.so.2.21.5[7f1a+3]": (
        "segfault", "", 4711, {"library": "libnccl.so.2.21.5"}),
    "traps: python[4711] general protection fault ip:7f sp:7f error:0 in libtorch_cuda.so[7f+1]": (
        "segfault", "", 4711, {"what": "general protection"}),
    "mlx5_core 0000:5c:00.0 enp92s0: Link down": ("link_down", "enp92s0", None, {}),
    "mlx5_core 0000:5c:00.0 enp92s0: Link up": ("link_up", "enp92s0", None, {}),
    "ixgbe 0000:01:00.0 eth0: NIC Link is Down": ("link_down", "eth0", None, {}),
    "igb 0000:01:00.0 enp1s0: igb: enp1s0 NIC Link is Up 1000 Mbps Full Duplex": ("link_up", "enp1s0", None, {}),
    "bond0: (slave eth2): link status definitely down for interface eth2, disabling it": (
        "link_down", "eth2", None, {}),
    "mlx5_core 0000:5c:00.0: mlx5_pcie_event:299:(pid 1): Detected insufficient power on the PCIe slot (27W).": (
        "nic_fault", "0000:5c:00.0", None, {}),
    "mlx5_core 0000:5c:00.0: Port module event[error]: module 0, Cable error, High Temperature": (
        "nic_fault", "0000:5c:00.0", None, {}),
    "mlx5_core 0000:5c:00.0: Port module event: module 1, Cable unplugged": ("link_down", "0000:5c:00.0", None, {}),
    "mlx5_core 0000:5c:00.0: Port module event: module 1, Cable plugged": ("link_up", "0000:5c:00.0", None, {}),
    "nfs: server filer1 not responding, still trying": ("server_silent", "", None, {"server": "filer1"}),
    "nfs: server filer1 OK": ("server_back", "", None, {"server": "filer1"}),
    "INFO: task python:991 blocked for more than 120 seconds.": ("hung_task", "", 991, {"seconds": 120}),
    "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:991]": ("soft_lockup", "", 991, {"seconds": 22}),
    "blk_update_request: I/O error, dev sda, sector 1234 op 0x0:(READ)": ("io_error", "sda", None, {}),
    "EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2": ("io_error", "nvme0n1p1", None, {}),
    "CPU7: Core temperature above threshold, cpu clock throttled (total events = 1)": (
        "cpu_throttled", "CPU7", None, {}),
    "mce: [Hardware Error]: Machine check events logged": ("machine_check", "", None, {"corrected": 0}),
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0": ("machine_check", "", None, {"corrected": 0}),
    "mlx5_core 0000:3b:00.0 mlx5_0: Port: 1 Link DOWN": ("link_down", "mlx5_0/1", None, {}),
    "mlx5_core 0000:3b:00.0 mlx5_0: Port: 1 Link ACTIVE": ("link_up", "mlx5_0/1", None, {}),
    "mlx5_core 0000:3b:00.0: wait_func:1180: CREATE_EQ(0x301) timeout. Will cause a leak of a command resource": (
        "nic_fault", "0000:3b:00.0", None, {}),
    "NETDEV WATCHDOG: ens1 (ice): transmit queue 3 timed out": ("nic_fault", "ens1", None, {}),
    "ena 0000:00:06.0 ens6: Keep alive watchdog timeout.": ("nic_fault", "ens6", None, {}),
    "bnxt_en 0000:3b:00.0 ens1f0np0: Firmware fatal reset event, master 1": ("nic_fault", "0000:3b:00.0", None, {}),
    "LustreError: 167-0: s-MDT0000-mdc-ffff: This client was evicted by s-MDT0000; in progress operations will fail": (
        "server_silent", "", None, {"server": "s-MDT0000"}),
    "Lustre: scratch-OST001b-osc-ffff7cfd60ce: Connection restored to 10.12.4.9@o2ib (at 10.12.4.9@o2ib)": (
        "server_back", "", None, {"server": "scratch-OST001b"}),
    "libceph: mon0 (1)10.0.0.1:6789 session lost, hunting for new mon": ("server_silent", "", None, {"server": "mon0"}),
    "libceph: mon0 (1)10.0.0.1:6789 session established": ("server_back", "", None, {"server": "mon0"}),
    "ceph: mds0 hung": ("server_silent", "", None, {"server": "mds0"}),
    "ceph: mds0 came back": ("server_back", "", None, {"server": "mds0"}),
    "CIFS: VFS: \\\\srv has not responded in 180 seconds. Reconnecting...": ("server_silent", "", None, {}),
    "nvme nvme0: I/O tag 123 (007b) opcode 0x1 (I/O Cmd) QID 4 timeout, aborting req_op:WRITE(1) size:131072": (
        "io_error", "nvme0", None, {}),
    "EXT4-fs (nvme0n1p1): Remounting filesystem read-only": ("io_error", "nvme0n1p1", None, {}),
}  # fmt: skip


@pytest.mark.parametrize("line", MESSAGES)
def test_messages(tmp_path, line):
    kind, device, pid, data = MESSAGES[line]
    assert kind in KERNEL_KINDS
    (event,) = events(tmp_path, f"[1.000000] {line}\n")
    assert (event.kind, event.device, event.pid) == (kind, device, pid)
    assert {key: event.data.get(key) for key in data} == data


IN_THREE_LINES = (
    "NVRM: The NVIDIA GPU 0000:41:00.0\n",
    "NVRM: (PCI ID: 10de:2330) installed in this system has\n",
    "NVRM: fallen off the bus and is not responding to commands.\n",
)


@pytest.mark.parametrize("prefix", ["[ 1843.308145] ", "2026-11-15T02:36:11.000000+00:00 node7 kernel: ", ""])
def test_a_lost_gpu_told_in_three_lines(tmp_path, prefix):
    (event,) = events(tmp_path, "".join(prefix + line for line in IN_THREE_LINES))
    assert (event.kind, event.device, event.line) == ("gpu_lost", "0000:41:00.0", 3)


def test_a_lost_gpu_whose_address_is_not_above(tmp_path):
    others = "[1.000000] usb 1-1: new device\n" * 9
    (event,) = events(tmp_path, "[1.000000] " + IN_THREE_LINES[0] + others + "[1.000000] " + IN_THREE_LINES[2])
    assert (event.kind, event.device) == ("gpu_lost", "")


def test_a_healthy_log_says_only_that_it_booted(tmp_path):
    assert kernel_log.sniff(HEALTHY.encode(), "x")
    assert [event.kind for event in events(tmp_path, HEALTHY)] == ["boot"]


def test_the_audit_line_ties_the_boot_to_the_clock(tmp_path):
    text = HEALTHY + f"[10171.000000] {LOST}\n[90000.000000] usb 1-1: new device\n"
    event = events(tmp_path, text)[-1]
    assert event.time_ns == 1794700016_001000000 - 16_001211000 + 10171_000000000
    assert event.ref.time is not None
    assert event.ref.time.startswith("2026-11-15T02:36:")
    assert event.age_ns == (90000 - 10171) * 10**9


@pytest.mark.parametrize(
    ("label", "host"),
    [
        ("node7/dmesg.txt", "node7"),
        ("bundle/gpu-node-12/var/log/kern.log", "gpu-node-12"),
        ("dmesg-node7.txt", "node7"),
        ("node7.cluster.local/dmesg", "node7.cluster.local"),
        ("host=dgx01/dmesg.txt", "dgx01"),
        ("logs/dmesg.txt", None),
        ("gpu0/dmesg.txt", None),
        ("nodes/dmesg.txt", None),
    ],
)
def test_hosts_by_path(tmp_path, label, host):
    (event,) = events(tmp_path, LOST + "\n", label)
    assert (event.host, event.ref.host) == (host, host)


def test_what_is_no_kernel_log():
    assert not kernel_log.sniff(b"[rank0]: Traceback (most recent call last):\n", "train.log")
    assert not kernel_log.sniff(b"node7:1:1 [0] NCCL INFO Bootstrap\n", "nccl.log")
    assert not kernel_log.sniff(b"\x80\x02}q\x00" * 100, "dmesg")
    assert not kernel_log.sniff(b"messages of the day\n", "messages.txt")


BORING = {
    "dmesg": "[{0:12.6f}] ACPI: SSDT 0x000000006EF00000 000108 (v02 INTEL  CpuSsdt)\n",
    "dmesg -T": "[Mon Nov  3 02:11:05 2025] ACPI: SSDT 0x000000006EF00000 ({0})\n",
    "dmesg --time-format iso": "2025-11-03T02:11:05,123456+00:00 ACPI: SSDT 0x000000006EF00000 ({0})\n",
    "dmesg -x": "kern  :info  : [{0:12.6f}] ACPI: SSDT 0x000000006EF00000\n",
    "many hosts": "node7: [{0:12.6f}] ACPI: SSDT 0x000000006EF00000\n",
    "/dev/kmsg": "6,{0},{0},-;ACPI: SSDT 0x000000006EF00000\n",
    "journalctl -k": "Nov 03 02:11:05 node7 kernel: ACPI: SSDT 0x000000006EF00000 ({0})\n",
}


@pytest.mark.parametrize("shape", BORING)
def test_boring_lines_for_kilobytes_are_a_kernel_log_too(tmp_path, shape):
    boring = "".join(BORING[shape].format(n) for n in range(400))
    last = (
        BORING[shape]
        .format(400)
        .replace("ACPI: SSDT 0x000000006EF00000", "NVRM: Xid (PCI:0000:17:00): 79, GPU has fallen off the bus.")
    )
    assert len(boring) > 8192
    assert kernel_log.sniff(boring.encode()[:4096], "host.txt")
    assert [event.code for event in events(tmp_path, boring + last, "host.txt") if event.kind == "xid"] == [79]


def test_a_syslog_may_begin_with_other_programs():
    head = b"".join(b"Nov  3 02:11:05 node7 systemd[1]: Started Session %d of User root.\n" % n for n in range(80))
    assert kernel_log.sniff(head[:4096], "syslog.1")
    assert not kernel_log.sniff(head[:4096], "rank0.log")


def test_a_forbidden_log_is_not_a_clean_one(tmp_path):
    text = "dmesg: read kernel buffer failed: Operation not permitted\n"
    assert kernel_log.sniff(text.encode(), "dmesg.txt")
    reading = read(tmp_path, text)
    assert (reading.quality, reading.records) == ("unusable", [])
    assert "no clean log" in reading.note


def test_floods_are_kept_within_bounds(tmp_path):
    flood = "".join(
        f"[{i}.000000] pcieport 0000:00:1c.5: AER: Corrected error received: id=00e5\n" for i in range(9000)
    )
    reading = read(tmp_path, flood + f"[9001.000000] {LOST}\n")
    assert len(reading.records) == 81
    assert reading.records[-1].code == 79  # type: ignore[attr-defined]
    assert reading.note == "8920 repeated event(s) not kept"


@pytest.mark.parametrize("mark", sorted({mark for mark, _ in MATCHERS}))
def test_long_lines_take_linear_time(tmp_path, mark):
    filling = (b"mlx5_1 link Xid (PCI: pid= a]: 00:00.0 ", b"(" * 40, b" " * 40, b"0" * 40, b"ab:" * 13)
    with cost.at_most(2):
        read(tmp_path, b"".join(mark + piece * 800 + mark + b"\n" for piece in filling) * 4)


@given(st.binary(max_size=400), st.sampled_from([*XIDS, *MESSAGES]), st.integers(0, 200))
def test_survives_anything(tmp_path_factory, noise, line, cut):
    folder = tmp_path_factory.mktemp("fuzz")
    data = f"[1.000000] {line}\n".encode()
    for text in (noise + data, data[:cut] + noise + data[cut:], noise):
        kernel_log.sniff(text[:4096], "dmesg")
        for event in events(folder, text):
            assert event.kind in KERNEL_KINDS
