"""A process that speaks RAS: what NCCL 2.28.9 answered when it was recorded, over a real socket."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

SAMPLES = Path(__file__).parents[2] / "samples" / "nccl"


def serve(line: socket.socket, kind: str, pids: list[str]) -> None:
    """Commands are lines; the report ends with the connection."""
    form, rest = "text", b""
    while True:
        while b"\n" not in rest:
            piece = line.recv(4096)
            if not piece:
                return
            rest += piece
        raw, _, rest = rest.partition(b"\n")
        command = raw.decode().strip().lower()
        if command.startswith("client protocol"):
            line.sendall(b"SERVER PROTOCOL 2\n")
        elif command.startswith("timeout"):
            line.sendall(b"OK\n")
        elif command == "set format json" and kind == "json":
            form = "json"
            line.sendall(b"OK\n")
        elif command in ("status", "verbose status"):
            line.sendall(report(form, pids))
            return
        else:
            line.sendall(f"ERROR: Unknown command {raw.decode()}\n".encode())


def report(form: str, pids: list[str]) -> bytes:
    """The recorded report of two ranks, with the processes that this one pretends to speak for."""
    name = "status.json.txt" if form == "json" else "status.txt"
    text = (SAMPLES / "host2" / name).read_text()
    text = text[text.index("{") :] if form == "json" else text[text.index("NCCL version") :]
    for old, new in zip(("480", "479"), pids, strict=False):
        text = text.replace(f'"pid": {old}', f'"pid": {new}').replace(f"process {old} ", f"process {new} ")
    return text.encode()


def main(kind: str, address: str, pids: list[str]) -> None:
    host, _, port = address.rpartition(":")
    door = socket.socket()
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    door.bind((host, int(port)))
    door.listen()
    sys.stdout.write(f"{door.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        line, _ = door.accept()
        with line:
            if kind == "mute":
                time.sleep(60)
            elif kind == "other":
                line.sendall(b"220 mail.example ESMTP\r\n")
                line.recv(4096)
            else:
                serve(line, kind, pids)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
