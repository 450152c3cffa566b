"""As much of a Kubernetes API server as a real kubectl needs to list pods and to run a command in one of them.

A "pod" is a host of a namespace cluster. `exec` speaks SPDY/3.1 as the API server does: kubectl opens the streams
error, stdin, stdout and stderr, in this order.
"""

from __future__ import annotations

import json
import struct
import subprocess
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO
from urllib.parse import parse_qs, urlsplit

ERROR, STDIN, STDOUT, STDERR = 1, 3, 5, 7
SYN_STREAM, SYN_REPLY, PING = 1, 2, 6
FIN = 1
RESOURCES = {
    "kind": "APIResourceList", "groupVersion": "v1",
    "resources": [
        {"name": "pods", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"]},
        {"name": "pods/exec", "singularName": "", "namespaced": True, "kind": "PodExecOptions", "verbs": ["create"]},
    ],
}  # fmt: skip


def pod(name: str, address: str) -> dict:
    return {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "train"},
        "spec": {"containers": [{"name": "main", "image": "train"}]},
        "status": {"phase": "Running", "podIP": address},
    }  # fmt: skip


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pods: Mapping[str, str]
    start: Callable[[str, Sequence[str]], subprocess.Popen[bytes]]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        everybody = [pod(*one) for one in self.pods.items()]
        answers = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
            "/api/v1": RESOURCES,
            "/api/v1/namespaces/train/pods": {"kind": "PodList", "apiVersion": "v1", "metadata": {},
                                              "items": everybody},
            **{f"/api/v1/namespaces/train/pods/{p['metadata']['name']}": p for p in everybody},
        }  # fmt: skip
        body = json.dumps(answers.get(path, {"kind": "Status", "status": "Failure", "code": 404})).encode()
        self.send_response(200 if path in answers else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        parts = urlsplit(self.path)
        self.send_response(101)
        for name, value in (("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"),
                            ("X-Stream-Protocol-Version", "v4.channel.k8s.io")):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            _Exec(self.rfile, self.wfile, self.start(parts.path.split("/")[-2], parse_qs(parts.query)["command"])).run()


class _Exec:
    """One command in a pod, its streams on one connection."""

    def __init__(self, reads: IO[bytes], writes: IO[bytes], process: subprocess.Popen[bytes]) -> None:
        self.reads, self.writes, self.process = reads, writes, process
        self.lock = threading.Lock()
        self.headers = zlib.compressobj()  # one for the whole connection
        self.opened = threading.Event()

    def run(self) -> None:
        threading.Thread(target=self._answer, daemon=True).start()
        try:
            while head := self.reads.read(8):
                first, rest = struct.unpack(">II", head)
                body = self.reads.read(rest & 0xFFFFFF)
                if first >> 31:
                    self._control(first & 0xFFFF, body)
                elif first == STDIN and self.process.stdin:
                    self.process.stdin.write(body)
                    self.process.stdin.flush()
                    if rest >> 24 & FIN:
                        self.process.stdin.close()
        finally:
            self.process.kill()
            self.process.wait()

    def _control(self, kind: int, body: bytes) -> None:
        if kind == SYN_STREAM:
            (stream,) = struct.unpack(">I", body[:4])
            block = self.headers.compress(struct.pack(">I", 0)) + self.headers.flush(zlib.Z_SYNC_FLUSH)
            self._send(0x80030000 | SYN_REPLY, 0, struct.pack(">I", stream) + block)
            if stream == STDERR:
                self.opened.set()
        elif kind == PING:
            self._send(0x80030000 | PING, 0, body)

    def _answer(self) -> None:
        self.opened.wait(20)
        with suppress(OSError):
            pipes = [(STDOUT, self.process.stdout), (STDERR, self.process.stderr)]
            pumps = [threading.Thread(target=self._pump, args=pipe) for pipe in pipes]
            for pump in pumps:
                pump.start()
            for pump in pumps:
                pump.join()
            code = self.process.wait()
            status: dict = {"metadata": {}, "status": "Success"}
            if code:
                causes = [{"reason": "ExitCode", "message": str(code)}]
                status |= {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
            self._send(ERROR, FIN, json.dumps(status).encode())

    def _pump(self, stream: int, pipe: IO[bytes]) -> None:
        with suppress(OSError, ValueError):
            while piece := pipe.read1(1 << 16):
                self._send(stream, 0, piece)
            self._send(stream, FIN, b"")

    def _send(self, first: int, flags: int, body: bytes) -> None:
        with self.lock:
            self.writes.write(struct.pack(">II", first, flags << 24 | len(body)) + body)
            self.writes.flush()


@contextmanager
def serving(pods: Mapping[str, str], start: Callable[[str, Sequence[str]], subprocess.Popen[bytes]]) -> Iterator[dict]:
    """The kubeconfig of a server with these pods (name -> address), whose commands `start` starts."""
    handler = type("Handler", (_Handler,), {"pods": pods, "start": staticmethod(start)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "apiVersion": "v1", "kind": "Config", "current-context": "lab",
            "clusters": [{"name": "lab", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "users": [{"name": "lab", "user": {}}],
        }  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
