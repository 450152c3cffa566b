"""A real job that hangs, scraped by a real Prometheus; a second one beside it that hangs at the same line."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.run import watched
from tests.run.hooks import Hook, hook
from tests.run.shown_metrics import ALWAYS
from whichrank.cli.tools.monitoring import files

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.slow,
]
HAS_PROMETHEUS = shutil.which("prometheus") is not None and shutil.which("promtool") is not None
PROMETHEUS = pytest.mark.skipif(not HAS_PROMETHEUS, reason="Prometheus is not installed (Debian: prometheus)")
TOKEN = "correct-horse-battery-staple"
PAIR = Path(__file__).parents[1] / "pair.py"
LIMIT_S = 150.0


def until(found: Callable[[], Any], limit_s: float = LIMIT_S) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if answer := found():
            return answer
        time.sleep(0.25)
    return None


def scrape(url: str, token: str = TOKEN) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def document(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.exists() else {}


@dataclass
class Server:
    """A Prometheus of our own."""

    base: str

    def ask(self, path: str, **query: str) -> Any:
        try:
            address = f"{self.base}/api/v1/{path}?{urllib.parse.urlencode(query)}"
            with urllib.request.urlopen(address, timeout=10) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def firing(self) -> list[dict[str, Any]]:
        alerts = (self.ask("alerts") or {}).get("alerts", [])
        return [alert for alert in alerts if alert["state"] == "firing"]


@contextmanager
def prometheus(folder: Path, url: str) -> Iterator[Server]:
    """With the rules and the scrape that the package ships; only quicker."""
    subprocess.run(watched.whichrank("monitoring", "--write", folder), check=True, env=watched.environment())
    (folder / "token").write_text(TOKEN)
    config = yaml.safe_load((folder / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["scrape_configs"][0] |= {
        "static_configs": [{"targets": [urllib.parse.urlsplit(url).netloc]}],
        "authorization": {"credentials_file": str(folder / "token")},
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = watched.free_port()
    options = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}", *options]
    server = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Server(f"http://127.0.0.1:{port}")
    finally:
        server.terminate()
        server.wait(30)


@dataclass
class Seen:
    """What was seen of the two jobs, gathered while they ran."""

    page: str = ""
    refused: int = 0
    listening: list[str] = field(default_factory=list)
    healthy: list[str] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, Any] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)
    stderr: list[str] = field(default_factory=list)
    hook: Hook = field(default_factory=Hook)
    out: Path = Path()
    history: str = ""


def start(out: Path, *options: str, **environ: str) -> subprocess.Popen[str]:
    command = watched.whichrank("run", "--out", out, *options, "--", sys.executable, PAIR)
    errors = (out.parent / f"{out.name}.stderr").open("w")
    with errors:
        environ = {**environ, "MASTER_PORT": str(watched.free_port())}
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=watched.environment(**environ))


def dashboard_expressions() -> list[str]:
    panels = json.loads(files()["dashboard.json"].read_text())["panels"]
    return [target["expr"].replace("$instance", ".*") for panel in panels for target in panel["targets"]]


def look(seen: Seen, url: str, server: Server | None) -> None:
    """At the first job while it hangs."""
    target = urllib.parse.urlsplit(url).netloc
    errors = seen.out.parent / f"{seen.out.name}.stderr"
    until(lambda: (seen.out / "verdict.json").exists() or "stopped watching" in errors.read_text())
    until(lambda: "whichrank_verdict_info" in scrape(url)[1], 20)
    seen.page, seen.refused = scrape(url)[1], scrape(url, "wrong")[0]
    if shutil.which("ss"):
        rows = subprocess.run(["ss", "-Hltn"], capture_output=True, text=True, check=True).stdout.splitlines()
        seen.listening = [row.split()[3] for row in rows if row.split()[3].endswith(f":{target.rsplit(':', 1)[1]}")]
    if server is not None:
        until(lambda: any("Verdict" in str(alert["annotations"]) for alert in server.firing()), 30)
        seen.alerts = server.firing()
        seen.healthy = [each["health"] for each in (server.ask("targets") or {}).get("activeTargets", [])]
        seen.answers = {text: server.ask("query", query=text) for text in dashboard_expressions()}


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("monitored")
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    history = {"WHICHRANK_HISTORY": str(folder / "history.db")}
    found = Seen(out=folder / "one")
    with hook() as found.hook:
        options = ("--metrics", "0", "--token-file", str(folder / "token"))
        jobs = [
            start(folder / "one", *options, **history, WHICHRANK_WEBHOOK=found.hook.url),
            start(folder / "two", "--policy", "end", **history),
        ]
        try:
            found.state = until(lambda: document(folder / "one" / "run.json")) or {}
            url = found.state["metrics"]
            with prometheus(folder / "prometheus", url) if HAS_PROMETHEUS else nullcontext() as server:
                look(found, url, server)
            until(lambda: jobs[1].poll() is not None)
        finally:
            for job in jobs:
                job.send_signal(signal.SIGTERM)
            for job in jobs:
                job.wait(60)
    found.stderr = [(folder / f"{name}.stderr").read_text() for name in ("one", "two")]
    command = watched.whichrank("history", "--format", "json")
    asked = subprocess.run(command, capture_output=True, text=True, env=watched.environment(**history), check=True)
    found.history = asked.stdout
    yield found
    shutil.rmtree(folder, ignore_errors=True)


def value(page: str, name: str) -> float:
    return next(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(f"{name} "))


def test_the_page_tells_of_the_hang(seen: Seen) -> None:
    assert value(seen.page, "whichrank_up") == 1
    assert value(seen.page, "whichrank_world_size") == 2
    assert value(seen.page, "whichrank_alarm_level") == 2
    assert value(seen.page, 'whichrank_ranks{phase="joined"}') == 2
    assert value(seen.page, 'whichrank_rank_collectives_issued_total{rank="0"}') >= 61
    assert value(seen.page, "whichrank_steps_per_second") >= 0
    waited = [value(seen.page, f'whichrank_rank_waiting_seconds_total{{rank="{rank}"}}') for rank in (0, 1)]
    assert waited[0] > waited[1] + 5, "rank 0 waits for rank 1"
    assert 'category="hang",culprit_rank="1"' in seen.page
    shown = {line.split()[2] for line in seen.page.splitlines() if line.startswith("# TYPE")}
    assert shown == ALWAYS


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_reads_the_page(seen: Seen) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=seen.page, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_strangers_stay_outside(seen: Seen) -> None:
    assert seen.refused == 401
    assert seen.state["metrics"].startswith("http://127.0.0.1:")
    assert f"whichrank: metrics are at {seen.state['metrics']}" in seen.stderr[0]
    assert TOKEN not in seen.stderr[0]
    if shutil.which("ss"):
        assert seen.listening == [urllib.parse.urlsplit(seen.state["metrics"]).netloc]


@PROMETHEUS
def test_prometheus_scrapes_it_and_the_alert_fires(seen: Seen) -> None:
    assert seen.healthy == ["up"]
    hangs = [alert for alert in seen.alerts if alert["labels"]["alertname"] == "WhichrankJobHangs"]
    assert hangs, seen.alerts
    assert "rank 1" in hangs[0]["annotations"]["description"]


@PROMETHEUS
def test_every_panel_of_the_dashboard_can_be_drawn(seen: Seen) -> None:
    assert seen.answers
    assert [text for text, answer in seen.answers.items() if answer is None] == []
    verdict = next(answer for text, answer in seen.answers.items() if "verdict_info" in text)
    assert verdict["result"][0]["metric"]["culprit_rank"] == "1"


def test_the_webhook_is_told_once(seen: Seen) -> None:
    assert len(seen.hook.received) == 1
    news = seen.hook.received[0]
    assert news["text"].startswith("pair.py on ")
    assert news["whichrank"]["culprits"]["ranks"] == [1]
    assert news["whichrank"]["summary"] in news["text"]
    assert "SECRETPATH" not in "".join(seen.stderr)


def test_the_second_job_at_the_same_line_is_told_so(seen: Seen) -> None:
    told = json.loads(seen.history)
    assert [entry["job"] for entry in told["entries"]] == ["pair.py", "pair.py"]
    again = [repeat for repeat in told["repeats"] if repeat["kind"] == "code"]
    assert again, told
    assert again[0]["name"].startswith(f"{PAIR}:")
    assert again[0]["count"] == 2
    assert [repeat for repeat in told["repeats"] if repeat["kind"] == "host"] == [], "the host is not to blame"
    line = f"{Path(again[0]['name']).name} was named 2 times in the last 7 days"
    assert sum(line in text for text in seen.stderr) == 1, "only by the later one"


def test_the_last_values_are_left(seen: Seen) -> None:
    left = (seen.out / "metrics.prom").read_text()
    assert 'whichrank_alarms_total{level="confirmed"} 1\n' in left
    assert (value(left, "whichrank_up"), value(left, "whichrank_alarm_level")) == (0, 0)
    assert not [path for path in seen.out.iterdir() if path.name.startswith(".")]
    assert document(seen.out / "run.json")["state"] == "ended"
