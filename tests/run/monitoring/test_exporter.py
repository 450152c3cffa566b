"""The metrics server: who gets in, and what becomes of those who are slow, loud or many."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichrank.model.errors import UsageError
from whichrank.run import small_server
from whichrank.run.monitoring.exporter import MOST_CLIENTS, Exporter, address
from whichrank.run.token import load_token

TOKEN = "correct-horse-battery-staple"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporter]:
    monkeypatch.setattr(small_server, "REQUEST_S", 1.0)
    served = Exporter(address("0"), lambda: "whichrank_up 1\n")
    served.start()
    yield served
    served.close()


def get(url: str, token: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def raw(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        heard = b""
        while piece := connection.recv(65536):
            heard += piece
    return heard


def test_a_scrape(exporter: Exporter) -> None:
    assert get(exporter.url) == (200, "whichrank_up 1\n")
    assert get(exporter.url.replace("/metrics", "/"))[0] == 404
    head = raw(exporter.port, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"x" * 9000, b"431"),
        (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
    ],
)
def test_other_requests(exporter: Exporter, request_: bytes, status: bytes) -> None:
    assert raw(exporter.port, request_).split()[1] == status
    assert get(exporter.url)[0] == 200, "it goes on"


def test_only_with_the_token() -> None:
    served = Exporter(address("127.0.0.1:0"), lambda: "whichrank_up 1\n", TOKEN)
    served.start()
    try:
        assert get(served.url)[0] == 401
        assert get(served.url, TOKEN[:-1])[0] == 401
        assert get(served.url, TOKEN + "x")[0] == 401
        assert get(served.url.replace("/metrics", "/elsewhere"))[0] == 401, "nothing is told to strangers"
        assert (
            raw(served.port, f"GET /metrics HTTP/1.1\r\nAuthorization: Basic {TOKEN}\r\n\r\n".encode())[9:12] == b"401"
        )
        assert get(served.url, TOKEN) == (200, "whichrank_up 1\n")
    finally:
        served.close()


def test_slow_clients_are_dropped_and_hold_up_nobody(exporter: Exporter) -> None:
    crowd = [socket.create_connection(("127.0.0.1", exporter.port), timeout=60) for _ in range(MOST_CLIENTS + 8)]
    try:
        for connection in crowd:
            connection.send(b"GET /metr")
        began = time.monotonic()
        assert get(exporter.url)[0] == 200
        assert time.monotonic() - began < 40  # one after the other they would take minutes
        for connection in crowd:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100) == b""
        assert time.monotonic() - began < 80
    finally:
        for connection in crowd:
            connection.close()


def test_a_client_that_never_reads(exporter: Exporter) -> None:
    exporter.page = lambda: "x" * (64 << 20)
    with socket.create_connection(("127.0.0.1", exporter.port), timeout=60) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        time.sleep(0.3)
        exporter.page = lambda: "whichrank_up 1\n"
        assert get(exporter.url)[0] == 200
        time.sleep(1.5)
        assert not exporter.clients


def test_a_page_that_fails(exporter: Exporter) -> None:
    def broken() -> str:
        raise ZeroDivisionError

    exporter.page = broken
    assert get(exporter.url) == (500, "ZeroDivisionError\n")


@pytest.mark.skipif(shutil.which("ss") is None, reason="ss is not installed (Debian: iproute2)")
def test_it_listens_on_this_host_alone(exporter: Exporter) -> None:
    listening = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout.splitlines()
    mine = [line.split()[3] for line in listening if line.split()[3].endswith(f":{exporter.port}")]
    assert mine == [f"127.0.0.1:{exporter.port}"]
    assert not exporter.public


def test_all_addresses_only_when_written_out() -> None:
    served = Exporter(address("0.0.0.0:0"), lambda: "")
    try:
        assert served.public
    finally:
        served.close()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("9876", ("127.0.0.1", 9876)),
        ("10.0.0.7:0", ("10.0.0.7", 0)),
        ("[::1]:9", ("::1", 9)),
        ("node7:80", ("node7", 80)),
    ],
)
def test_addresses(text: str, place: tuple[str, int]) -> None:
    assert address(text) == place


@pytest.mark.parametrize("text", ["", "x", ":9876", "1:", "127.0.0.1:99999", "127.0.0.1:-1", "²"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        address(text)


def test_a_port_in_use_is_told_before_the_job_starts(exporter: Exporter) -> None:
    with pytest.raises(UsageError, match=f"can't listen on 127.0.0.1:{exporter.port}"):
        Exporter(address(str(exporter.port)), lambda: "")


def test_tokens(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="other users can read") as refused:
        load_token(file, {})
    assert TOKEN not in str(refused.value) + refused.value.hint
    file.chmod(0o600)
    assert load_token(file, {"WHICHRANK_TOKEN": "other"}) == TOKEN
    assert load_token(None, {"WHICHRANK_TOKEN": "other"}) == "other"
    assert load_token(None, {}) is None
    for content in ("", "two words", "a" * 5000, "\x00"):
        file.write_text(content)
        with pytest.raises(UsageError, match="holds no token"):
            load_token(file, {})
    with pytest.raises(UsageError, match="can't read"):
        load_token(tmp_path / "none", dict(os.environ))
