"""The reader of a host's limits, file systems, memory, processes and cgroups."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import host_state
from whichrank.model.contracts import Item, Reading
from whichrank.records.host import HostState

ALL = """\
Linux node12 5.15.0-91-generic #101-Ubuntu SMP Tue Nov 14 13:30:08 UTC 2023 x86_64 x86_64 GNU/Linux
core file size          (blocks, -c) 0
max locked memory       (kbytes, -l) 8192
open files                      (-n) 1024
max user processes              (-u) unlimited

Filesystem      Size  Used Avail Use% Mounted on
/dev/sda1       100G  100G     0 100% /
tmpfs            64M   64M     0 100% /dev/shm
a-long-name.cluster.local:/export/data
                2.0T  1.9T   50G  98% /data

Filesystem       Inodes   IUsed    IFree IUse% Mounted on
/dev/sda1       6553600 6553600        0  100% /

               total        used        free      shared  buff/cache   available
Mem:           503Gi       498Gi       1.0Gi       2.0Gi       4.0Gi       1.5Gi
Swap:             0B          0B          0B

USER         PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND
root        1234 99.0  1.0  1000  1000 ?        Dl   10:00   1:00 python train.py --x 1
root        1235 99.0  1.0  1000  1000 ?        Tl   10:00   1:00 python train.py --x 1

tmpfs on /dev/shm type tmpfs (rw,nosuid,nodev,size=65536k)
nr_periods 100
nr_throttled 60
"""


def read(folder: Path, text: str | bytes, label: str = "host.txt") -> Reading:
    path = folder / "evidence"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return host_state.read(Item(path, label, path.stat().st_size, 0))


def only(folder: Path, text: str, label: str = "host.txt") -> HostState:
    assert host_state.sniff(text.encode()[:4096], label.rsplit("/", 1)[-1])
    (state,) = read(folder, text, label).records
    assert isinstance(state, HostState)
    return state


def test_a_file_with_everything(tmp_path):
    state = only(tmp_path, ALL)
    assert state.host == "node12"
    assert state.limits == {"core": 0, "memlock": 8 << 20, "nofile": 1024, "nproc": -1}
    assert (state.cite("memlock").locator, state.cite("memlock").quote[:17]) == ("line 3", "max locked memory")
    assert [(f.path, f.size, f.free, f.used_percent, f.inodes) for f in state.file_systems] == [
        ("/", 100 << 30, 0, 100, False),
        ("/dev/shm", 64 << 20, 0, 100, False),
        ("/data", 2 << 40, 50 << 30, 98, False),
        ("/", 6553600, 0, 100, True),
    ]
    assert state.file_systems[2].device == "a-long-name.cluster.local:/export/data"
    assert (state.memory["MemTotal"], state.memory["MemAvailable"]) == (503 << 30, 3 << 29)
    assert [(p.pid, p.state, p.command, p.line) for p in state.processes] == [
        (1234, "D", "python train.py --x 1", 21), (1235, "T", "python train.py --x 1", 22),
    ]  # fmt: skip
    assert state.cgroup == {"nr_periods": 100, "nr_throttled": 60}
    assert state.mounts["/dev/shm"].startswith("tmpfs (rw")


def test_limits_of_a_process_by_its_path(tmp_path):
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        "Max locked memory         8388608              8388608              bytes     \n"
        "Max open files            1024                 1048576              files     \n"
    )
    state = only(tmp_path, text, "node7/proc/4711/limits")
    assert (state.host, state.pid, state.limits) == ("node7", 4711, {"memlock": 8 << 20, "nofile": 1024})


@pytest.mark.parametrize(
    ("line", "value"), [("ulimit -l : 8192", 8 << 20), ("ulimit -l unlimited", -1), ("ulimit -l=64", 65536)]
)
def test_a_limit_as_people_write_it(tmp_path, line, value):
    assert only(tmp_path, f"some words\n{line}\n").limits == {"memlock": value}


def test_states_of_processes(tmp_path):
    status = "Name:\tpython\nUmask:\t0022\nState:\tT (stopped)\nTgid:\t555\nPid:\t555\nPPid:\t1\n"
    state = only(tmp_path, status + status.replace("555", "556").replace("T (stopped)", "D (disk sleep)"))
    assert [(p.pid, p.state, p.parent) for p in state.processes] == [(555, "T", 1), (556, "D", 1)]
    listing = (
        "  PID STAT WCHAN                CMD\n  900 D    rpc_wait_bit_killable python train.py\n  901 Ss   -  bash\n"
    )
    assert [(p.pid, p.state, p.waits_in) for p in only(tmp_path, listing).processes] == [
        (900, "D", "rpc_wait_bit_killable"), (901, "S", ""),
    ]  # fmt: skip


def test_a_cgroup_that_killed(tmp_path):
    text = "low 0\nhigh 0\nmax 1204\noom 3\noom_kill 2\noom_group_kill 0\n"
    assert only(tmp_path, text, "node7/memory.events").cgroup["oom_kill"] == 2
    assert read(tmp_path, "max 5\nhigh 3\n").quality == "ignored"


@pytest.mark.parametrize(
    "command", ["df -h", "df -i", "ps aux", "ulimit -a", "cat /proc/meminfo", "cat /proc/self/limits", "mount"]
)
def test_this_host(tmp_path, command):
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=100)
    if done.returncode:
        pytest.skip(f"{command} does not work here")
    state = only(tmp_path, done.stdout)
    assert state.limits or state.file_systems or state.memory or state.processes or state.mounts


def test_what_is_not_of_a_host():
    assert not host_state.sniff(b"step 5 loss 0.1\n", "train.log")
    assert not host_state.sniff(b"[rank0]: OSError: [Errno 24] Too many open files\n", "train.log")


def test_long_lines_take_linear_time(tmp_path):
    def work(n):
        lines = ("a" * 4 * n + " (", " " * 4 * n, "Max " + "a " * 2 * n, "1 " * 2 * n, "ulimit -l " * (n // 2))
        read(tmp_path, ALL + "\n".join(lines * 20))

    cost.linear(work, 500)


@given(st.integers(0, len(ALL)), st.binary(max_size=300))
def test_survives_cuts_and_noise(tmp_path_factory, cut, noise):
    whole = ALL.encode()
    for text in (whole[:cut] + noise + whole[cut:], noise):
        host_state.sniff(text[:4096], "x")
        read(tmp_path_factory.mktemp("fuzz"), text)
