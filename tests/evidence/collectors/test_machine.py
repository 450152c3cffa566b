"""Kernel log, RDMA ports and GPUs: in the forms that their readers take, and bounded."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whichrank.evidence.collectors import fabric, gpus, host_tables, kernel_log, nvml
from whichrank.evidence.readers import host_state, ib_state, nvidia_smi
from whichrank.evidence.readers import kernel_log as kernel_reader
from whichrank.model.contracts import Item


def item(path: Path, label: str = "") -> Item:
    status = path.stat()
    return Item(path, label or path.name, status.st_size, status.st_mtime_ns)


def written(path: Path, data: bytes) -> Item:
    path.write_bytes(data)
    return item(path)


def kmsg_is_writable() -> bool:
    try:
        with Path("/dev/kmsg").open("w"):
            return os.access("/dev/kmsg", os.R_OK)
    except OSError:
        return False


@pytest.mark.skipif(not kmsg_is_writable(), reason="this user can't write to /dev/kmsg")
def test_the_kernel_log_since_a_moment(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_log, "SLACK_S", 0.5)
    mark = f"whichrank test {os.getpid()} {time.time_ns()}"
    Path("/dev/kmsg").write_text(f"<6>{mark}: before\n")
    time.sleep(kernel_log.SLACK_S + 0.5)
    start = time.time()
    Path("/dev/kmsg").write_text(f"<6>{mark}: after\n")
    data, why = kernel_log.since(start)
    assert not why
    assert f"{mark}: after".encode() in data
    assert f"{mark}: before".encode() not in data
    log = written(tmp_path / "kernel_log.txt", data)
    assert kernel_reader.sniff(log.head(), "kernel_log.txt")
    assert kernel_reader.read(log).quality == "complete"


def test_times_of_the_kernel_log_are_the_wall_clocks(tmp_path):
    now, uptime = time.time(), time.clock_gettime(time.CLOCK_MONOTONIC)
    said = [(uptime, b"NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus."), (uptime - 60, b"too old")]
    log = written(tmp_path / "kernel_log.txt", kernel_log._text(said, now - 10))
    assert b"too old" not in log.head()
    (event,) = kernel_reader.read(log).records
    assert abs(event.time_ns / 1e9 - now) < 1


def test_a_kernel_log_that_may_not_be_read(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    data, why = kernel_log.since(time.time(), tmp_path / "kmsg")
    assert not data
    assert "/dev/kmsg: No such file" in why
    assert "dmesg: is not installed" in why


def test_a_silent_kernel_log_is_a_log(tmp_path):
    log = written(tmp_path / "kernel_log.txt", kernel_log._text([], time.time()))
    assert kernel_reader.sniff(log.head(), "kernel_log.txt")
    reading = kernel_reader.read(log)
    assert (reading.quality, reading.records) == ("complete", [])


def test_file_systems_and_memory_as_df_tells_them(tmp_path):
    found = written(tmp_path / "state.txt", host_tables.tables(os.getpid()).encode())
    assert host_state.sniff(found.head(), "state.txt")
    (state,) = host_state.read(found).records
    assert state.memory["MemTotal"] > 1 << 26
    told = {row.path: row for row in state.file_systems}
    assert {"/", "/dev/shm"} <= set(told)
    theirs = subprocess.run(["df", "-k", "--output=size,avail,pcent", "/dev/shm"], capture_output=True, check=True)
    size, free, share = theirs.stdout.decode().splitlines()[1].split()
    assert told["/dev/shm"].size == int(size) * 1024
    assert abs(told["/dev/shm"].free - int(free) * 1024) < 1 << 28, "others write there too"
    assert abs(told["/dev/shm"].used_percent - int(share.rstrip("%"))) <= 2


def test_tables_of_nobody():
    assert host_tables.namespace(2**22 - 1) == 0
    assert host_tables.tables(2**22 - 1).startswith("Filesystem")


def port(root: Path, values: dict[str, str]) -> None:
    for name, value in values.items():
        path = root / "mlx5_0/ports/1" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")


def test_ports_as_their_reader_takes_them(tmp_path):
    port(tmp_path, {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)", "counters/link_downed": "3",
                    "hw_counters/local_ack_timeout_err": "7", "link_layer": "InfiniBand"})  # fmt: skip
    text = written(tmp_path / "fabric.after.txt", fabric.ports(tmp_path).encode())
    assert ib_state.sniff(text.head(), "fabric.after.txt")
    (found,) = ib_state.read(text).records
    assert (found.device, found.port, found.state, found.rate) == ("mlx5_0", 1, "ACTIVE", 400.0)
    assert found.counters["link_downed"] == 3
    assert found.counters["local_ack_timeout_err"] == 7


def test_no_ports(tmp_path):
    assert fabric.ports(tmp_path / "none") == ""


SMI = """#!/bin/sh
case "$1" in
  *clocks_event_reasons*) echo 'Field "clocks_event_reasons.active" is not a valid field to query.'; exit 2;;
  --query-gpu=*)
    printf 'index, uuid, utilization.gpu [%%], memory.used [MiB], temperature.gpu, power.draw [W], '
    echo 'clocks_throttle_reasons.active'
    echo '0, GPU-7e384753-0000-0000-0000-000000000000, 97 %, 1024 MiB, 61, 612.50 W, 0x0000000000000040';;
  *) echo "==============NVSMI LOG==============";;
esac
"""


@pytest.fixture
def smi(tmp_path, monkeypatch):
    """As on a host with an older driver and without nvidia-ml-py: this machine has no GPU."""
    program = tmp_path / "nvidia-smi"
    program.write_text(SMI)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "find_spec", lambda _name: None)
    return program


def test_an_older_driver_calls_the_reasons_otherwise(smi, tmp_path):
    data, why = gpus.table()
    assert not why
    table = written(tmp_path / "gpus.after.csv", data)
    assert nvidia_smi.sniff(table.head(), "gpus.after.csv")
    (found,) = nvidia_smi.read(table).records
    assert found.index == 0


def test_a_driver_that_is_wedged(smi, monkeypatch):
    smi.write_text("#!/bin/sh\nsleep 60\n")
    monkeypatch.setattr(gpus, "QUERY_S", 1.0)
    began = time.monotonic()
    data, why = gpus.table()
    assert not data
    assert "no answer" in why
    assert time.monotonic() - began < 30


def test_the_values_of_a_rank_in_the_history(smi):
    smi.write_text(SMI.replace("*clocks_event", "*never"))
    sampler = gpus.Sampler()
    sampler.start()
    try:
        deadline, heard = time.monotonic() + 5, {}
        while not heard and time.monotonic() < deadline:
            time.sleep(0.05)
            heard = sampler.take()
    finally:
        sampler.stop()
    values = gpus.of_rank({}, 0, heard)
    assert values == {"index": 0, "utilization_percent": 97, "memory_mib": 1024, "temperature_c": 61,
                      "power_w": 612.5, "slowed_by": "0x40"}  # fmt: skip
    assert gpus.of_rank({"CUDA_VISIBLE_DEVICES": "3,0"}, 1, heard) == values
    assert gpus.of_rank({"CUDA_VISIBLE_DEVICES": "GPU-7e384753-0000-0000-0000-000000000000"}, 0, heard) == values
    assert gpus.of_rank({}, 1, heard) is None
    assert sampler.take() == {}, "what was heard is told once"


class Library:
    """NVML of a host with two GPUs, one of them lost."""

    class NVMLError(Exception):
        value = 15

    NVML_ERROR_GPU_IS_LOST = 15

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def ask(self, gpu: int) -> str:
        if gpu:
            raise self.NVMLError
        return "a, b"


def test_a_lost_gpu_is_told_in_the_words_of_nvidia_smi():
    library = Library()
    lines = list(nvml.rows(library, {"index": str, "name": library.ask}))
    assert lines == ["0, a  b", "1, [GPU is lost]"]
