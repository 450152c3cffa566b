"""What the live page costs: `watch --web` beside 64 ranks, without a browser, with one, and with 50."""

from __future__ import annotations

import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RANKS, SECONDS = 64, 15
RANK = "import time; time.sleep(600)"
START = f"RANK=$r LOCAL_RANK=$r WORLD_SIZE={RANKS} {sys.executable} -c '{RANK}'"
JOB = f"trap 'kill $(jobs -p)' TERM; for r in $(seq 0 {RANKS - 1}); do {START} & done; wait"


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond: ticks are too coarse for a share of one percent."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def browsers(url: str, count: int) -> list[socket.socket]:
    host, port, token = re.match(r"http://([^:]+):(\d+)/\?token=(\S+)", url).groups()
    found = []
    for _ in range(count):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(f"GET /events?token={token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        found.append(connection)
    return found


def measured(pid: int, clients: list[socket.socket]) -> tuple[float, int]:
    """Share of a core, and bytes that each client got per second."""
    begun, spent, heard = time.monotonic(), cpu_s(pid), 0
    while (left := begun + SECONDS - time.monotonic()) > 0:
        for client in select.select(clients, [], [], left)[0]:
            heard += len(client.recv(1 << 20))
    return (cpu_s(pid) - spent) / SECONDS, heard // max(1, len(clients)) // SECONDS


def main() -> None:
    out = Path(tempfile.mkdtemp()) / "out"
    whichrank = [sys.executable, "-m", "whichrank"]
    job = subprocess.Popen([*whichrank, "run", "--quiet", "--no-history", "--out", str(out), "--", "bash", "-c", JOB])
    try:
        time.sleep(20)
        page = subprocess.Popen([*whichrank, "watch", "--web", "0", str(out)], stdout=subprocess.PIPE, text=True)
        url = re.search(r"http://\S+", page.stdout.readline()).group()
        for count in (0, 1, 50):
            clients = browsers(url, count)
            time.sleep(2)
            share, size = measured(page.pid, clients)
            print(f"{RANKS} ranks, {count} browsers: {share:.2%} of a core, {size / 1024:.1f} KiB/s each")
            for client in clients:
                client.close()
        page.terminate()
        page.wait()
    finally:
        job.terminate()
        job.wait()


if __name__ == "__main__":
    main()
