"""Throughput by iperf3, where both ends have it: it fills faster links than a sender in Python can."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
from typing import Any

from whichrank.evidence.collectors.tools import ask
from whichrank.evidence.probes.processes import listening

_SLACK_S, _READY_S = 8.0, 3.0


def installed() -> bool:
    return shutil.which("iperf3") is not None


def serve() -> dict[str, Any]:
    """A server for one client, on a port that is free now; it ends with its client, or after half a minute."""
    with socket.socket() as one:
        one.bind(("", 0))
        port = int(one.getsockname()[1])
    command = ["timeout", "30", "iperf3", "--server", "--one-off", "--port", str(port)]
    subprocess.Popen(  # noqa: S603 - a program found on the path
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + _READY_S
    while not listening(port) and time.monotonic() < deadline:
        time.sleep(0.01)
    return {"port": port}


def send(address: str, port: int, seconds: float) -> dict[str, Any]:
    """Gb/s as the receiver counted them. Its exit code is 0 even where it could not connect: `error` tells."""
    program = shutil.which("iperf3")
    if program is None:
        return {"gbits": None, "why": "iperf3 is not installed"}
    command = [program, "--client", address, "--port", str(port), "--time", str(max(1, round(seconds))), "--json"]
    said, why = ask([*command, "--connect-timeout", "3000"], max(1.0, seconds) + _SLACK_S)
    return read(said, why)


def read(said: bytes, why: str = "") -> dict[str, Any]:
    """Out of the JSON of iperf3."""
    try:
        document = json.loads(said)
        if document.get("error"):
            return {"gbits": None, "why": str(document["error"])[:200]}
        end = document["end"]
        gbits = float(end["sum_received"]["bits_per_second"]) / 1e9
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"gbits": None, "why": why or "iperf3 gave no answer"}
    return {"gbits": round(gbits, 6), "why": "", "retransmits": end.get("sum_sent", {}).get("retransmits")}
