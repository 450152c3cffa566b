"""The same metrics for OpenTelemetry: pushed as OTLP over HTTP, in its JSON form, by the standard library alone."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from whichrank import __version__
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.exposition import Family, label
from whichrank.run.monitoring.post import failure_of

HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
"""OpenTelemetry's own variable for what a collector asks for, as `name=value,name=value`."""
EVERY_S = 15.0
ANSWER_S = 5.0
CUMULATIVE = 2
"""AGGREGATION_TEMPORALITY_CUMULATIVE in opentelemetry/proto/metrics/v1/metrics.proto."""


@dataclass(slots=True)
class Pusher:
    """A thread that sends all values now and then, and once more at the end."""

    url: str
    job: str
    families: Callable[[], Sequence[Family]]
    tell: Callable[[str], None]
    _began_ns: int = field(default_factory=time.time_ns)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _failing: bool = False

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not self.url.isprintable():
            raise UsageError("this is not an OTLP address", "Give --otlp http://HOST:4318/v1/metrics, or the like.")
        if parts.path in ("", "/"):  # the base of a collector, as OTEL_EXPORTER_OTLP_ENDPOINT has it
            self.url = f"{parts.scheme}://{parts.netloc}/v1/metrics"

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(ANSWER_S + 1.0)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            self._push()
        self._push()

    def _push(self) -> None:
        """A failure is told once, not at every push."""
        body = json.dumps(document(self.families(), self.job, self._began_ns, time.time_ns())).encode()
        headers = {"Content-Type": "application/json", **_headers(os.environ.get(HEADERS, ""))}
        failure, _ = failure_of(urllib.request.Request(self.url, body, headers), ANSWER_S)  # noqa: S310 - checked
        if failure and not self._failing:
            self.tell(f"can't push metrics to {urlsplit(self.url).hostname}: {failure}")
        self._failing = bool(failure)


def document(families: Sequence[Family], job: str, began_ns: int, now_ns: int) -> dict[str, Any]:
    """An ExportMetricsServiceRequest as JSON: 64-bit numbers are texts in it."""
    metrics = [_metric(family, str(began_ns), str(now_ns)) for family in families if family.samples]
    about = {"service.name": "whichrank", "host.name": socket.gethostname(), "whichrank.job": job}
    scope = {"scope": {"name": "whichrank", "version": __version__}, "metrics": metrics}
    return {"resourceMetrics": [{"resource": {"attributes": _attributes(about)}, "scopeMetrics": [scope]}]}


def _metric(family: Family, began: str, now: str) -> dict[str, Any]:
    points = [
        {"attributes": _attributes(labels), "startTimeUnixNano": began, "timeUnixNano": now, "asDouble": float(value)}
        for labels, value in family.samples
    ]
    metric = family.metric
    counts = {"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": True}
    form = {"sum": counts} if metric.kind == "counter" else {"gauge": {"dataPoints": points}}
    return {"name": metric.name, "description": metric.help, **form}


def _attributes(labels: dict[str, str]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": label(value)}} for name, value in labels.items()]


def _headers(text: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in text.split(",") if "=" in pair)
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip().isascii()}
