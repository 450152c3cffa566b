"""RDMA bandwidth by perftest's ib_write_bw, where both ends have it.

Results are read by the heading of the table: versions differ in columns and in units (`MB/sec` and `MiB/sec` both mean
2^20 bytes; `--report_gbits` gives 10^9 bits).
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import threading
import time
from typing import Any

from whichrank.evidence.collectors.tools import ask
from whichrank.evidence.probes.processes import listening

PROGRAM = "ib_write_bw"
_DURATION_S, _MARGIN_S = 3, 1
"""perftest leaves out the margin at both ends and refuses a duration that is not longer than two margins."""
_READY_S, _LIMIT_S = 5.0, 15.0
_MOST_TESTS = 16
_COLUMN = re.compile(r"#\w{1,20}|\b[A-Za-z]\w{0,15}(?: [A-Za-z]\w{0,15}){0,2}\[[^\]]{1,12}\]")
_AVERAGE = re.compile(r"^BW average\[(.+)\]$")
_UNITS = {"Gb/sec": 1.0, "MB/sec": 8 * 2**20 / 1e9, "MiB/sec": 8 * 2**20 / 1e9}
_TROUBLE = re.compile(
    r"^[ \t]{0,16}(\S?.{0,200}?(?:Couldn't|[Ff]ailed|Unable|Completion with error|syndrom|error|not detect|mismatch)"
    r".{0,300})$",
    re.MULTILINE,
)


def installed() -> bool:
    return shutil.which(PROGRAM) is not None


def words(test: dict[str, Any], port: int) -> list[str]:
    """The options that both sides must share; the client adds the address of the server."""
    given = [
        PROGRAM, "-d", str(test["device"]), "-i", str(int(test.get("ib_port") or 1)), "-p", str(port),
        "-D", str(_DURATION_S), "-f", str(_MARGIN_S), "-q", "2", "-F", "--report_gbits",
    ]  # fmt: skip
    gid = test.get("gid")
    return [*given, "-x", str(int(gid))] if isinstance(gid, int) else given


def serve(tests: list[dict[str, Any]]) -> list[int | None]:
    """A server for each test, for one client; it ends with its client, or soon by itself. Gives their ports."""
    if not installed():
        return [None for _ in tests]
    ports: list[int | None] = []
    for test in tests[:_MOST_TESTS]:
        with socket.socket() as one:
            one.bind(("", 0))
            port = int(one.getsockname()[1])
        command = ["timeout", str(int(_LIMIT_S) + 5), *words(test, port)]
        subprocess.Popen(  # noqa: S603 - a program found on the path
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        ports.append(port)
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline and not all(listening(port) for port in ports if port):
        time.sleep(0.02)
    return ports


def send(tests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All tests at the same time, each towards the `address` and `port` of its server."""
    found: list[dict[str, Any]] = [{"gbits": None, "why": "not run"} for _ in tests]

    def one(number: int, test: dict[str, Any]) -> None:
        said, why = ask([*words(test, int(test["port"])), str(test["address"])], _LIMIT_S)
        found[number] = read(said.decode("utf-8", "replace"), why)

    threads = [threading.Thread(target=one, args=(n, test)) for n, test in enumerate(tests[:_MOST_TESTS])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(_LIMIT_S + 5)
    return found


def read(said: str, why: str = "") -> dict[str, Any]:
    """`gbits` of the last row of the table, and the MTU that it ran with; else why there is none."""
    column, factor = -1, 1.0
    gbits: float | None = None
    for line in said.splitlines():
        if "BW average[" in line:
            names = _COLUMN.findall(line)
            units = [(n, match[1]) for n, name in enumerate(names) if (match := _AVERAGE.match(name))]
            column, factor = (units[0][0], _UNITS.get(units[0][1], 0.0)) if units else (-1, 1.0)
            continue
        cells = line.split()
        if column >= 0 and len(cells) > column and cells[0].isdigit():
            try:
                gbits = float(cells[column]) * factor
            except ValueError:
                continue
    if gbits is None:
        trouble = _TROUBLE.findall(said)
        return {"gbits": None, "why": (why or (trouble[-1] if trouble else f"{PROGRAM} gave no result"))[:300]}
    mtu = re.search(r"^\s*Mtu\s+:\s+(\d+)\[B\]", said, re.MULTILINE)
    return {"gbits": round(gbits, 3), "why": "", "mtu": int(mtu[1]) if mtu else None}
