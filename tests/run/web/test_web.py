"""The live page: who gets in, browsers that are slow, killed or many, and the page itself in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import cost
from tests.run import small
from whichrank.evidence.collectors import processes
from whichrank.model import last_words as layout
from whichrank.model.last_words import Words
from whichrank.run import small_server
from whichrank.run.watch.job_processes import Member
from whichrank.run.watch.rank_table import Row, doing
from whichrank.run.web import server as module
from whichrank.run.web.live import page
from whichrank.run.web.page_state import LastSamples, State, groups, spans
from whichrank.run.web.server import Server

TOKEN = "correct-horse-battery-staple"


def rows(count: int, late: int = -1) -> list[Row]:
    """Ranks that wait for one."""
    return [
        Row(rank, 1000 + rank, "in fetch_shard()", 40, 90, 2.0, 0.5, 12.5, 12.5, "/srv/data.py:40 fetch_shard")
        if rank == late
        else Row(rank, 1000 + rank, "waiting in all_reduce", 40, 91, 2.0, 0.5, 0.0, 12.5, "/srv/train.py:118 step")
        for rank in range(count)
    ]


@pytest.fixture
def served(tmp_path: Path, monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(module, "EVERY_S", 0.1)
    state = State(tmp_path, "train.py")
    found = Server(("127.0.0.1", 0), page(), lambda: state.document(rows(64, 5)), TOKEN)
    found.start()
    yield found
    found.close()


def get(url: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def listen(served: Server, size: int | None = None) -> socket.socket:
    """A browser that asked for the events."""
    connection = socket.socket()
    if size is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
    connection.settimeout(10)
    connection.connect(("127.0.0.1", served.port))
    connection.sendall(f"GET /events?token={TOKEN} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection


def events(connection: socket.socket, count: int) -> list[dict]:
    heard = b""
    while heard.count(b"\n\ndata: ") + heard.startswith(b"data: ") < count + 1:
        piece = connection.recv(65536)
        assert piece, heard[-300:]
        heard += piece
    return [json.loads(part[6:]) for part in heard.split(b"\n\n")[1:-1] if part.startswith(b"data: ")]


# -- who gets in


def test_the_page_and_its_token(served: Server) -> None:
    status, body, headers = get(served.url)
    assert status == 200
    assert "<title>whichrank</title>" in body
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", body), "nothing is loaded from elsewhere"
    for wrong in ("", "?token=", "?token=wrong", f"?token={TOKEN}x"):
        assert get(f"http://127.0.0.1:{served.port}/{wrong}")[0] == 403
    assert get(f"http://127.0.0.1:{served.port}/etc/passwd?token={TOKEN}")[0] == 404


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1:1", 200), ("[::1]:80", 200), ("evil.example", 421), ("evil.example:80", 421),
     ("localhost.evil.example", 421), ("", 421)],
)  # fmt: skip
def test_the_host_header_must_name_this_server(served: Server, host: str, status: int) -> None:
    assert get(served.url, Host=host)[0] == status


def test_nothing_can_be_changed(served: Server) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        request = urllib.request.Request(served.url, method=method, data=b"x" if method != "OPTIONS" else None)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=60)
        assert caught.value.code == 405
        caught.value.close()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 9000])
def test_nonsense_is_refused(served: Server, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as connection:
        connection.sendall(data)
        assert re.match(rb"HTTP/1.1 4\d\d", connection.recv(65536))


# -- many, slow and dead ones


def test_fifty_browsers_get_every_event(served: Server) -> None:
    clients = [listen(served) for _ in range(50)]
    try:
        for client in clients:
            assert [e["seen"] for e in events(client, 3)][:3] == [64, 64, 64]
    finally:
        for client in clients:
            client.close()


def test_a_slow_and_a_killed_browser_disturb_nobody(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    monkeypatch.setattr(small_server, "STUCK_S", 1.0)
    document = State(tmp_path).document(rows(16_384, 5)) + " " * 200_000
    served = Server(("127.0.0.1", 0), page(), lambda: document, TOKEN)
    served.start()
    try:
        slow = [listen(served, 4096) for _ in range(10)]  # they never read
        for _ in range(10):
            killed = listen(served)
            killed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            killed.close()  # a reset in the middle of an event
        good = listen(served)
        begun = time.monotonic()
        assert len(events(good, 10)) >= 10
        assert time.monotonic() - begun < 100
        deadline = time.monotonic() + 100
        while len(served.clients) > 1 and time.monotonic() < deadline:
            events(good, 1)
        assert len(served.clients) == 1, "those that take nothing are dropped"
        good.close()
        for client in slow:
            client.close()
    finally:
        served.close()


def test_nobody_looks_nothing_is_done(tmp_path: Path) -> None:
    asked = []
    served = Server(("127.0.0.1", 0), "page", lambda: asked.append(1) or "{}", TOKEN)
    served.start()
    time.sleep(0.6)
    served.close()
    assert asked == []


def test_sixty_four_ranks_cost_one_percent(tmp_path: Path) -> None:
    """CPU of one event, and of sending it to 50 browsers, by this thread's own clock."""
    (tmp_path / "run.json").write_text('{"state": "running", "world_size": 64}')
    line = '{"rank": %d, "memory_bytes": 1000000, "gpu": {"utilization_percent": 97, "memory_mib": 70000}}\n'
    (tmp_path / "history.jsonl").write_text("".join(line % rank for rank in range(64)))
    state, ranks = State(tmp_path), rows(64, 3)
    state.document(ranks)
    with cost.at_most(50 * 0.01):  # one event a second is at most 1 % of a core
        for _ in range(50):
            state.document(ranks)


# -- what it says


def test_groups_tell_who_is_late_first() -> None:
    told = groups(rows(1024, 7))
    assert [(g["count"], g["ranks"], g["letter"]) for g in told] == [(1, "7", "l"), (1023, "0-6, 8-1023", "w")]
    assert told[0]["place"] == "data.py:40 fetch_shard"
    assert spans([0, 1, 2, 5]) == "0-2, 5"


def test_of_many_ranks_the_late_ones_are_shown(tmp_path: Path) -> None:
    said = json.loads(State(tmp_path).document(rows(16_384, 9000)))
    assert len(said["rows"]) == 128
    assert 9000 in [row[0] for row in said["rows"]]
    assert len(said["tiles"]) == 16_384
    assert said["tiles"][9000] == "l"


def test_a_process_without_torch_is_not_said_to_hold_the_interpreter() -> None:
    """Only the thread that begins with torch writes regularly."""
    silent = Words(rank=0, phase=layout.STARTED, beat_ns=1)
    assert doing(Member(silent, "0")) == "started"
    assert doing(Member(silent._replace(phase=layout.JOINED), "0")) == "interpreter held"


def test_the_job_has_the_name_of_its_script(tmp_path: Path) -> None:
    assert json.loads(State(tmp_path).document(rows(1)))["job"] == tmp_path.name
    (tmp_path / "conditions.json").write_text('{"command": ["torchrun", "--nproc_per_node=4", "/srv/train.py"]}')
    assert json.loads(State(tmp_path).document(rows(1)))["job"] == "train.py"


def test_a_rank_that_nothing_is_heard_of_keeps_its_tile(tmp_path: Path) -> None:
    said = json.loads(State(tmp_path).document([row for row in rows(8, 5) if row.rank not in (2, 3)]))
    assert (said["seen"], said["tiles"], said["first"]) == (6, "wwuuwlww", 0)


def test_memory_and_gpu_are_those_of_the_last_sample(tmp_path: Path) -> None:
    """The history is read on from where the last look ended, half a line is waited for, and a new file begins anew."""
    file, samples = tmp_path / "history.jsonl", LastSamples(tmp_path / "history.jsonl")
    assert samples.newest() == {}
    file.write_text('{"rank": 0, "memory_bytes": 1, "gpu": {"memory_mib": 5}}\n{"rank": 1, "mem')
    assert {rank: row["memory_bytes"] for rank, row in samples.newest().items()} == {0: 1}
    with file.open("a") as stream:
        stream.write('ory_bytes": 2}\nnonsense\n{"rank": 0, "memory_bytes": 3}\n')
    assert {rank: row["memory_bytes"] for rank, row in samples.newest().items()} == {0: 3, 1: 2}
    assert samples.newest()[0]["gpu"] == {"memory_mib": 5}, "a look without the GPU does not forget it"
    file.write_text('{"rank": 7, "memory_bytes": 9}\n')
    assert list(samples.newest()) == [7]


# -- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("needs chromium and chromedriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    folder = tmp_path_factory.mktemp("chromium")
    for flag in ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    yield found
    found.quit()


HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
VERDICT = {
    "verdict": {
        "category": "hang", "cause": "rank-stuck-in-user-code", "confidence": 0.77, "fix": ["Look at that line."],
        "summary": f"Rank 5 is stuck. {HOSTILE}", "culprits": {"ranks": [5], "code": [{"file": "data.py", "line": 40}]},
    },
    "next": [{"command": "py-spy dump --pid 1005"}],
}  # fmt: skip


def text(browser, selector: str) -> str:
    return str(browser.execute_script(f"return document.querySelector({selector!r}).textContent"))


def until(what: str, there, limit_s: float = 30) -> None:
    deadline = time.monotonic() + limit_s
    while not there():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_page_in_a_browser(browser, served: Server, tmp_path: Path, width: int, height: int) -> None:
    alarm = {"time": "2026-01-02T03:04:05.6Z", "level": "confirmed", "why": f"no progress {HOSTILE}"}
    (tmp_path / "run.json").write_text(json.dumps({"state": "running", "world_size": 64, "alarms": [alarm]}))
    (tmp_path / "verdict.json").write_text(json.dumps(VERDICT))
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("performance")
    browser.get(served.url)
    until("events", lambda: int(browser.execute_script("return document.body.dataset.events || 0")) >= 3)
    assert text(browser, "#c-late-label") == "others wait for rank 5"
    assert text(browser, "#v-summary") == f"Rank 5 is stuck. {HOSTILE}"
    assert browser.title == "running · train.py · whichrank"
    assert browser.execute_script("return document.querySelectorAll('#tiles i.t-w').length") == 63
    assert browser.execute_script("return document.querySelectorAll('#ranks tr.culprit').length") == 1
    bottom = browser.execute_script("return document.querySelector('#v-summary').getBoundingClientRect().bottom")
    assert bottom < height, "the verdict is in view"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    said = [json.loads(line["message"])["message"] for line in browser.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in said if m["method"] == "Network.requestWillBeSent"]
    home = f"http://127.0.0.1:{served.port}/"
    assert [url for url in asked if not url.startswith((home, "data:", "about:", "chrome"))] == []


@pytest.mark.bars
def test_a_real_job_in_a_real_browser(browser, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    job = small.start(tmp_path, "--web", "0")
    try:
        job.until("the page", lambda: "http://" in (tmp_path / "stderr").read_text())
        url = re.search(r"http://\S+", (tmp_path / "stderr").read_text()).group()
        browser.get(url)
        job.until_ready()
        job.until("two ranks run", lambda: text(browser, "#c-ranks") == "2" and text(browser, "#state") == "running")
        job.pause()
        job.until("who is late", lambda: text(browser, "#c-late-label") == "others wait for rank 1")
        job.until("the verdict", lambda: "Rank 1" in text(browser, "#v-summary"), 90)
        assert text(browser, "#state") == "hang"
    finally:
        assert job.end() == 0
    job.until("the end", lambda: text(browser, "#state") == "ended")
    assert "web" in (tmp_path / "out" / "run.json").read_text()
    assert url.partition("token=")[2] not in (tmp_path / "out" / "run.json").read_text(), "the token is not kept"


@pytest.mark.bars
def test_the_page_of_the_leader_has_the_ranks_of_all_nodes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from tests.run.nodes.test_nodes_on_one_host import start, watched

    store, leader = watched.free_port(), watched.free_port()
    jobs = [
        start(tmp_path, name, "long", store, "--leader", f"127.0.0.1:{leader}", "--web", "0") for name in ("n1", "n2")
    ]
    seen: list[tuple[int, set[str]]] = []
    try:
        for job in jobs:
            line = next(line for line in job.stderr if "the job as a page" in line)
            url = re.search(r"http://\S+", line).group().replace("/?", "/events?")
            begun = 0.0
            with urllib.request.urlopen(url, timeout=90) as stream:
                for raw in stream:
                    said = json.loads(raw[6:]) if raw.startswith(b"data: ") else {}
                    begun = begun or (time.monotonic() if said.get("seen") else 0.0)
                    if said.get("seen") == 4 or (begun and time.monotonic() - begun > 15):
                        seen.append((said.get("seen", 0), {row[1] for row in said.get("rows", ())}))
                        break
    finally:
        # The launcher does not end its ranks, and they hold the pipe.
        below = [pid for job in jobs for pid in processes.below(job.pid, processes.everybody())]
        for job in jobs:
            job.terminate()
        for pid in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for job in jobs:
            job.communicate(timeout=60)
    assert max(seen)[0] == 4, seen
    assert len(max(seen)[1]) == 2, seen
