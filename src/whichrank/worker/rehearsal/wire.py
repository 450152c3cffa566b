"""Frames between a rank and the referee: a JSON header and raw bytes behind it."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

HEAD = struct.Struct("<IQ")
LARGEST = 1 << 34
SMALL = 1 << 16


def pack(header: dict[str, Any], size: int = 0) -> bytes:
    """The beginning of a frame whose payload has `size` bytes."""
    text = json.dumps(header, separators=(",", ":")).encode()
    return HEAD.pack(len(text), size) + text


def send(connection: socket.socket, header: dict[str, Any], payload: Sequence[memoryview] = ()) -> None:
    """Write one frame on a blocking socket."""
    size = sum(len(part) for part in payload)
    head = pack(header, size)
    if size < SMALL:
        connection.sendall(b"".join([head, *payload]))
        return
    connection.sendall(head)
    for part in payload:
        connection.sendall(part)


def receive(connection: socket.socket) -> tuple[dict[str, Any], bytearray]:
    """Read one frame from a blocking socket; EOFError when the other side has gone."""
    length, size = HEAD.unpack(exactly(connection, HEAD.size))
    header = json.loads(bytes(exactly(connection, length)))
    return header, exactly(connection, size)


def exactly(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        count = connection.recv_into(view[done:])
        if count == 0:
            raise EOFError("the referee has gone")
        done += count
    return data


class Inbox:
    """Frames cut out of what arrives on a non-blocking socket."""

    CHUNK = 1 << 16

    def __init__(self) -> None:
        self.data = bytearray()
        self.header: dict[str, Any] | None = None
        self.body = bytearray()
        self.filled = 0

    def read(self, connection: socket.socket) -> tuple[list[tuple[dict[str, Any], bytearray]], bool]:
        """The frames that are complete now, and whether the connection is still open."""
        frames: list[tuple[dict[str, Any], bytearray]] = []
        while True:
            payload = self.header is not None
            try:
                count = self._fill(connection)
            except BlockingIOError:
                return frames, True
            except OSError:
                return frames, False
            if count == 0:
                return frames, False
            while (frame := self._cut()) is not None:
                frames.append(frame)
            if count < self.CHUNK and not payload:
                return frames, True

    def _fill(self, connection: socket.socket) -> int:
        """Read into the payload if a large one is being read, else into the buffer; 0 at the end of the stream."""
        if self.header is not None:
            count = connection.recv_into(memoryview(self.body)[self.filled :])
            self.filled += count
            return count
        piece = connection.recv(self.CHUNK)
        self.data += piece
        return len(piece)

    def _cut(self) -> tuple[dict[str, Any], bytearray] | None:
        if self.header is None:
            if len(self.data) < HEAD.size:
                return None
            length, size = HEAD.unpack_from(self.data)
            if size > LARGEST:
                raise ValueError("a frame is too large")
            start = HEAD.size + length
            if len(self.data) < start:
                return None
            self.header = json.loads(bytes(self.data[HEAD.size : start]))
            here = min(size, len(self.data) - start)
            self.body = bytearray(size)
            self.body[:here] = self.data[start : start + here]
            self.filled = here
            del self.data[: start + here]
        if self.filled < len(self.body):
            return None
        frame = (self.header, self.body)
        self.header = None
        return frame
