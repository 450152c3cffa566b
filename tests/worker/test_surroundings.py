"""What a process tells about its connections and its network: as `ss` and `ip` would."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whichrank.worker import network, sockets, surroundings


@pytest.fixture
def pair():
    """A connection whose receiver does not read."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        door.listen()
        near = socket.create_connection(door.getsockname())
        far, _ = door.accept()
        near.setblocking(False)
        near.send(b"x" * 1_000_000)
        time.sleep(0.3)
        yield near, far
        near.close()
        far.close()


def address(one: socket.socket) -> str:
    host, port = one.getsockname()
    return f"{host}:{port}"


def told(text: str, here: str) -> tuple[list[str], dict[str, str]]:
    """State, queues, addresses and values of a connection."""
    lines = text.splitlines()
    at = next(at for at, line in enumerate(lines) if line.split()[3:4] == [here] and not line.startswith("LISTEN"))
    values = lines[at + 1] if at + 1 < len(lines) and lines[at + 1].startswith("\t") else ""
    return lines[at].split(), dict(word.split(":", 1) for word in values.split() if ":" in word)


def test_a_receiver_that_does_not_read(pair):
    near, far = pair
    row, values = told(sockets.own(), address(near))
    back, _ = told(sockets.own(), address(far))
    assert row[0] == back[0] == "ESTAB"
    assert int(row[2]) > 0, "bytes that were not acknowledged wait in the sender's queue"
    assert int(back[1]) > 0, "and others in the receiver's"
    assert row[4] == address(far)
    assert int(values["notsent"]) > 0
    assert int(values["bytes_acked"]) > 0
    assert "rwnd_limited" in values
    assert int(values["lastack"]) < 60_000


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss is not installed")
def test_the_same_as_ss(pair):
    near, _far = pair
    _, values = told(sockets.own(), address(near))
    theirs = subprocess.run(["ss", "-tin", f"src {address(near)}"], capture_output=True, text=True, check=True).stdout
    found = dict(word.split(":", 1) for word in theirs.splitlines()[-1].split() if ":" in word)
    same = (
        "rto",
        "mss",
        "pmtu",
        "advmss",
        "rcvmss",
        "bytes_acked",
        "segs_in",
        "data_segs_in",
        "notsent",
        "wscale",
        "cwnd",
    )
    assert {name: values.get(name) for name in same} == {name: found.get(name) for name in same}


def test_a_process_that_is_not_asked(pair):
    near, _far = pair
    row, _ = told(sockets.of_process(os.getpid()), address(near))
    own, _ = told(sockets.own(), address(near))
    assert row[:1] + row[3:5] == own[:1] + own[3:5]
    assert int(row[2]) == int(own[2])
    assert re.fullmatch(r"timer:\((on|persist),[\w.]+,\d+\)", row[5])


def test_an_attempt_to_connect_that_nobody_answers():
    door = socket.socket()
    door.bind(("127.0.0.1", 0))
    door.listen(0)
    callers = []
    for _ in range(4):  # more than the queue takes: the rest stay in SYN-SENT
        callers.append(socket.socket())
        callers[-1].setblocking(False)
        callers[-1].connect_ex(door.getsockname())
    time.sleep(0.2)
    try:
        states = {line.split()[0] for text in (sockets.own(), sockets.of_process(os.getpid()))
                  for line in text.splitlines() if f" {address(door)}" in line}  # fmt: skip
    finally:
        for one in (door, *callers):
            one.close()
    assert {"LISTEN", "SYN-SENT"} <= states


def test_ipv6_and_others():
    with socket.socket(socket.AF_INET6) as door, socket.socket(type=socket.SOCK_DGRAM), socket.socketpair()[0]:
        try:
            door.bind(("::1", 0))
        except OSError:
            pytest.skip("there is no IPv6")
        door.listen(7)
        line = next(line for line in sockets.own().splitlines() if "[::1]" in line)
    assert line.split() == ["LISTEN", "0", "7", f"[::1]:{line.split()[3].rpartition(':')[2]}", "[::]:*"]


def test_no_descriptor_is_left_or_held():
    before = set(Path("/proc/self/fd").iterdir())
    sockets.own()
    network.own()
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_interfaces_and_counters():
    text = network.own("start")
    assert re.match(r"== start \d{4}-\d\d-\d\dT[\d:.]+Z ==\n", text)
    loopback = r"^\d+: lo: <LOOPBACK,UP,LOWER_UP> mtu \d+ qdisc \w+ state UNKNOWN carrier_changes 0$"
    assert re.search(loopback, text, re.MULTILINE)
    assert "    inet 127.0.0.1/8\n" in text
    names, values = (line.split() for line in text.splitlines() if line.startswith("Tcp:"))
    assert int(values[names.index("OutSegs")]) > 0
    assert sum(line.startswith("TcpExt:") for line in text.splitlines()) == 2


@pytest.mark.skipif(shutil.which("ip") is None, reason="ip is not installed")
def test_the_same_as_ip():
    theirs = json.loads(subprocess.run(["ip", "-j", "-s", "addr"], capture_output=True, check=True).stdout)
    lines = [line for line in network.own().splitlines() if re.match(r"\d+: ", line)]
    ours = [re.match(r"\d+: ([^:]+): <(.*)> mtu (\d+) qdisc (\S+) state (\S+) ", line).groups() for line in lines]
    expected = [(i["ifname"], set(i["flags"]), str(i["mtu"]), i["qdisc"], i["operstate"]) for i in theirs]
    assert [(name, set(flags.split(",")), *rest) for name, flags, *rest in ours] == expected


def test_a_process_in_a_namespace_of_its_own(tmp_path):
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen(["unshare", "-rn", sys.executable, "-c", code], stdin=-1, stdout=-1, stderr=-3, text=True)
    if child.stdout.readline() != "ready\n":
        child.communicate()
        pytest.skip("namespaces can't be made here")
    try:
        assert network.namespace(child.pid) not in (0, network.namespace())
        text = network.of_process(child.pid)
    finally:
        child.communicate("")
    assert re.search(r"^\s+lo:\s+0 ", text, re.MULTILINE)
    assert "eth0" not in text


def test_one_file_for_one_namespace(tmp_path):
    surroundings.settle(str(tmp_path), "1.2")
    surroundings.answer(str(tmp_path), "1.2", "take1", "")
    first = (tmp_path / f"net.{network.namespace()}.take1").stat().st_mtime_ns
    surroundings.answer(str(tmp_path), "3.4", "take1", str(os.getpid()))
    assert {path.name for path in tmp_path.iterdir()} == {
        "1.2.places", "1.2.take1.sockets", "3.4.take1.sockets",
        f"net.{network.namespace()}.start", f"net.{network.namespace()}.take1",
    }  # fmt: skip
    assert (tmp_path / f"net.{network.namespace()}.take1").stat().st_mtime_ns == first


def test_a_folder_that_is_gone_harms_nobody(tmp_path):
    surroundings.settle(str(tmp_path / "gone"), "1.2")
    surroundings.answer(str(tmp_path / "gone"), "1.2", "take1", "x")


def test_where_the_output_goes(tmp_path):
    out = tmp_path / "rank.log"
    code = (
        "import json, sys\nfrom whichrank.worker.surroundings import places\nsys.stderr.write(json.dumps(places()))\n"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TORCHELASTIC_ERROR_FILE": "/x/error.json"}
    with out.open("w") as stream:
        done = subprocess.run([sys.executable, "-c", code], env=environ, stdout=stream, stderr=-1, check=True)
    found = json.loads(done.stderr)
    assert found["error_file"] == "/x/error.json"
    assert found["output"] == [{"path": str(out), "inode": out.stat().st_ino, "size": 0}]


@pytest.mark.parametrize("pid", ["", "x", "0", "1", "-5", "99999999999", "1²"])
def test_leave_for_nobody(pid):
    assert surroundings.permit_tracing(pid) is False


def test_leave_for_the_watcher():
    """Yama decides; without it the kernel knows no such request, and nothing happens."""
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=-1)
    try:
        yama = Path("/proc/sys/kernel/yama/ptrace_scope").exists()
        assert surroundings.permit_tracing(str(child.pid)) is yama
        if yama:
            ctypes.CDLL(None).prctl(surroundings._PR_SET_PTRACER, 0, 0, 0, 0)
    finally:
        child.communicate(b"")
