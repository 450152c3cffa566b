"""One helper process per host, spoken to in lines of JSON; all hosts are asked at the same time.

A host that does not answer in time is reported and left; the others are not held up by it.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol

from msgspec import Struct, field

from whichrank.fleet.engines import Engine

_MOST = 32 << 20
_END_S = 2.0
_FINAL = ("connect to host", "resolve", "denied", "verification failed", "can't be started")
"""Words of ssh's errors that another way does not change."""


class Reply(Struct, frozen=True):
    """What a host answered, or why it did not."""

    result: Any = None
    why: str = ""
    sent_s: float = 0.0
    received_s: float = 0.0


class Channel(Protocol):
    """A way to one host: file descriptors to write to and to read from."""

    reads: int
    writes: int

    def reason(self) -> str: ...

    def close(self) -> None: ...


class ProcessChannel(Struct):
    """A command on this machine whose standard streams lead to the host."""

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    reads: int = -1
    writes: int = -1

    @staticmethod
    def start(command: Sequence[str]) -> ProcessChannel:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the channel
        process = subprocess.Popen(  # noqa: S603 - what the user asked for, no shell
            list(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
        )
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - both are pipes
        os.set_blocking(process.stdout.fileno(), False)
        return ProcessChannel(process, errors, process.stdout.fileno(), process.stdin.fileno())

    def reason(self) -> str:
        """Its last words, or how it ended."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)
        self.errors.seek(0)
        lines = [
            line.strip() for line in self.errors.read(8192).decode("utf-8", "replace").splitlines() if line.strip()
        ]
        code = self.process.poll()
        return lines[-1][:300] if lines else f"its command ended with code {code}" if code is not None else "no answer"

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]
        try:
            self.process.wait(_END_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        self.errors.close()


class HostHelpers(Struct):
    """The helpers of all hosts. A host that failed once is not asked again."""

    channels: dict[str, Channel]
    lost: dict[str, str] = field(default_factory=dict)
    """Host -> why it can't be asked any more."""
    again: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Host -> the command of another way to it."""
    _first: dict[str, str] = field(default_factory=dict)
    _rest: dict[str, bytes] = field(default_factory=dict)
    _next: int = 0

    @property
    def hosts(self) -> list[str]:
        return [host for host in self.channels if host not in self.lost]

    def ask_all(self, request: Mapping[str, Any], limit_s: float, least_s: float | None = None) -> dict[str, Reply]:
        return self.ask(dict.fromkeys(self.hosts, request), limit_s, least_s)

    def ask(
        self, requests: Mapping[str, Mapping[str, Any]], limit_s: float, least_s: float | None = None
    ) -> dict[str, Reply]:
        """One request for each of these hosts, and their answers.

        With `least_s` nobody gets more than that, or than four times what half of the hosts took, whichever is longer.
        """
        self._next += 1
        replies: dict[str, Reply] = {}
        sent: dict[str, float] = {}
        for host, request in requests.items():
            if host in self.lost:
                replies[host] = Reply(why=self.lost[host])
                continue
            line = json.dumps({**request, "id": self._next}).encode() + b"\n"
            sent[host] = time.time()
            try:
                _write(self.channels[host].writes, line)
            except OSError:
                replies[host] = self._lose(host, self.channels[host].reason())
        began = time.monotonic()
        self._collect(replies, sent, began, limit_s, least_s)
        for host in sent.keys() - replies.keys():
            replies[host] = self._lose(host, f"no answer within {time.monotonic() - began:.0f} s")
        return {host: replies[host] for host in requests}

    def try_again(self) -> list[str]:
        """Start the helpers by another way on hosts that ssh reached and that then did not answer; on which."""
        hosts = [h for h in self.again if h in self.lost and not any(word in self.lost[h] for word in _FINAL)]
        for host in hosts:
            self._first[host] = self.lost.pop(host)
            self.channels[host].close()
            self.channels[host] = ProcessChannel.start(self.again[host])
            self._rest.pop(host, None)
        return hosts

    def _collect(
        self, replies: dict[str, Reply], sent: dict[str, float], began: float, limit_s: float, least_s: float | None
    ) -> None:
        with selectors.DefaultSelector() as selector:
            for host in sent.keys() - replies.keys():
                selector.register(self.channels[host].reads, selectors.EVENT_READ, host)
            while selector.get_map() and (left := began + limit_s - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    host = key.data
                    for answer in self._lines(host):
                        if answer is None:
                            replies[host] = self._lose(host, self.channels[host].reason())
                        elif answer.get("id") == self._next:
                            why = str(answer.get("error", ""))
                            replies[host] = Reply(answer.get("result"), why, sent[host], time.time())
                    if host in replies:
                        selector.unregister(key.fd)
                if least_s is not None and 2 * len(replies) >= len(sent):
                    limit_s = min(limit_s, max(least_s, 4 * (time.monotonic() - began)))
                    least_s = None

    def _lines(self, host: str) -> Iterator[dict[str, Any] | None]:
        """Whole lines that came; None at the end of the stream. What a login prints is passed over."""
        try:
            piece = os.read(self.channels[host].reads, 1 << 20)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if not piece:
            yield None
            return
        *lines, self._rest[host] = (self._rest.get(host, b"") + piece).split(b"\n")
        if len(self._rest[host]) > _MOST:
            yield None
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:
                continue
            if isinstance(answer, dict) and "id" in answer:
                yield answer

    def _lose(self, host: str, why: str) -> Reply:
        self.lost[host] = self._first.get(host, why)
        return Reply(why=why)

    def close(self) -> None:
        for host in self.hosts:
            with suppress(OSError):
                _write(self.channels[host].writes, b'{"do": "end"}\n')
        for channel in self.channels.values():
            channel.close()


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


@contextmanager
def host_helpers(engine: Engine, command: Sequence[str]) -> Iterator[HostHelpers]:
    """The command on every host of the engine; ended whatever happens."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    channels: dict[str, Channel] = {}
    lost: dict[str, str] = {}
    again = {host: engine.again(host, command) for host in engine.hosts} if engine.again else {}
    everyone = HostHelpers(channels, lost, again)
    try:
        for host in engine.hosts:
            try:
                channels[host] = ProcessChannel.start(engine.wrap(host, command))
            except OSError as error:
                lost[host] = f"can't be started: {error.strerror}"
        yield everyone
    finally:
        everyone.close()
