"""What preflight runs on a host: requests come in as lines of JSON, answers go out as lines of JSON.

`python -m whichrank.evidence.probes._agent` serves standard input until it ends. Whoever started it is trusted with
what this user may do; the sockets it opens for tests answer nobody who does not know the token of the run.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from whichrank.evidence.probes import Place, _child, discover
from whichrank.evidence.probes.between import server
from whichrank.model.preflight import Launch

IDLE_S = 1800.0


class Agent:
    """The state of one run on one host."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.server: server.Server | None = None
        self.doing: dict[str, Callable[[dict[str, Any]], Any]] = {
            "hello": self._hello, "probe": self._probe, "clock": lambda _: {"now_s": time.time()},
            "serve": self._serve, "counts": self._counts, "resolve": _resolve, "connect": _connect,
            "volley": _volley, "rate": _rate, "iperf": _iperf,
            "rdma_serve": _rdma_serve, "rdma_send": _rdma_send,
        }  # fmt: skip

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """One request; whatever goes wrong is told, not raised."""
        try:
            return {"id": request.get("id"), "result": self.doing[str(request["do"])](request)}
        except Exception as error:  # noqa: BLE001 - the boundary to another host
            return {"id": request.get("id"), "error": f"{type(error).__name__}: {error}"[:500]}

    def _hello(self, _request: dict[str, Any]) -> dict[str, Any]:
        import socket

        from whichrank import __version__
        from whichrank.evidence.collectors.processes import boot_id

        return {"version": __version__, "hostname": socket.gethostname(), "boot_id": boot_id()}

    def _probe(self, request: dict[str, Any]) -> dict[str, Any]:
        """The probes that were asked for, all at once; by default those that load nothing."""
        given = request.get("launch") or {}
        launch = Launch(**{**given, "folders": tuple(given.get("folders", ()))})
        place = Place(self.root, launch)
        probes = discover()
        wanted = request.get("probes") or [n for n, p in probes.items() if not getattr(p, "LOADS", False)]
        work = {name: (partial(probes[name].measure, place), probes[name].LIMIT_S) for name in wanted if name in probes}
        answers = _child.bounded(work)
        return {name: a._asdict() for name, a in answers.items()}

    def _serve(self, request: dict[str, Any]) -> dict[str, Any]:
        if self.server is None:
            self.server = server.Server(str(request["token"]), request.get("port"))
        from whichrank.evidence.probes.between import iperf, perftest

        # The address that ssh came to: client, its port, this host, its port.
        reached_at = (os.environ.get("SSH_CONNECTION", "").split() + [""] * 3)[2]
        about = {**self.server.about(), "reached_at": reached_at}
        return {**about, "iperf": iperf.installed(), "perftest": perftest.installed()}

    def _counts(self, request: dict[str, Any]) -> dict[str, int]:
        return self.server.counts(str(request["volley"])) if self.server else {}


def _resolve(request: dict[str, Any]) -> dict[str, list[str]]:
    from whichrank.evidence.probes.names import resolve

    return {str(name): resolve(str(name)) for name in request["names"]}


def _connect(request: dict[str, Any]) -> list[dict[str, Any]]:
    from whichrank.evidence.probes.between import connect

    return connect.attempts(request["targets"], str(request["token"]), float(request["limit_s"]))


def _volley(request: dict[str, Any]) -> dict[str, Any]:
    from whichrank.evidence.probes.between import volley

    sizes = {int(size): int(count) for size, count in request["sizes"].items()}
    return volley.send(str(request["address"]), int(request["port"]), str(request["volley"]), sizes)


def _rate(request: dict[str, Any]) -> dict[str, Any]:
    from whichrank.evidence.probes.between import rate

    if request.get("iperf_port"):
        from whichrank.evidence.probes.between import iperf

        told = iperf.send(str(request["address"]), int(request["iperf_port"]), float(request["seconds"]))
        if told["gbits"] is not None:
            return told
    return rate.send(str(request["address"]), int(request["port"]), str(request["token"]), float(request["seconds"]))


def _iperf(_request: dict[str, Any]) -> dict[str, Any]:
    from whichrank.evidence.probes.between import iperf

    return iperf.serve() if iperf.installed() else {"port": None}


def _rdma_serve(request: dict[str, Any]) -> list[int | None]:
    from whichrank.evidence.probes.between import perftest

    return perftest.serve(list(request["tests"]))


def _rdma_send(request: dict[str, Any]) -> list[dict[str, Any]]:
    from whichrank.evidence.probes.between import perftest

    return perftest.send(list(request["tests"]))


def serve(requests: BinaryIO, answers: BinaryIO, root: Path = Path("/")) -> None:
    """Until the other side is gone or says nothing for half an hour."""
    import select

    agent = Agent(root)
    while select.select([requests], [], [], IDLE_S)[0]:
        line = requests.readline()
        if not line:
            return
        try:
            request = json.loads(line)
        except ValueError:
            continue
        if request.get("do") == "end":
            return
        answers.write(json.dumps(agent.answer(request)).encode() + b"\n")
        answers.flush()


def main() -> int:
    root = Path(sys.argv[sys.argv.index("--root") + 1]) if "--root" in sys.argv else Path("/")
    # What a library prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with os.fdopen(os.dup(0), "rb", buffering=0) as requests:
        serve(_Lines(requests), answers, root)  # type: ignore[arg-type]
    return 0


def serve_socket(connection: Any) -> None:
    """The same over a connection."""
    with connection.makefile("wb") as answers:
        serve(_Lines(connection), answers)  # type: ignore[arg-type]


class _Lines:
    """Lines of an unbuffered stream: `select` must see what a buffer would hide."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.rest = stream, b""

    def fileno(self) -> int:
        return int(self.stream.fileno())

    def readline(self) -> bytes:
        while b"\n" not in self.rest:
            piece = os.read(self.fileno(), 1 << 16)
            if not piece:
                return b""
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line


if __name__ == "__main__":
    os._exit(main())
