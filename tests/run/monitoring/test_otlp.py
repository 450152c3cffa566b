"""Metrics pushed as OTLP: what OpenTelemetry's own definitions make of them."""

from __future__ import annotations

import json

import pytest

from tests.run.hooks import hook
from tests.run.monitoring.test_metrics import START_NS, hung
from tests.run.shown_metrics import ALWAYS
from tests.run.watched import free_port
from whichrank.model.errors import UsageError
from whichrank.run.monitoring.exposition import Family
from whichrank.run.monitoring.metrics import families
from whichrank.run.monitoring.otlp import Pusher, document


def all_families() -> list[Family]:
    return families(hung(), 16.0, START_NS)


def test_the_last_values_are_pushed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=abc, broken,Other = d")
    said: list[str] = []
    with hook() as server:
        pusher = Pusher(f"http://127.0.0.1:{server.port}", "train.py", all_families, said.append)
        pusher.start()
        pusher.close()
    assert server.paths == ["/v1/metrics"]
    assert (server.headers[0]["X-Key"], server.headers[0]["Other"]) == ("abc", "d")
    scope = server.received[0]["resourceMetrics"][0]["scopeMetrics"][0]
    by_name = {metric["name"]: metric for metric in scope["metrics"]}
    assert set(by_name) == ALWAYS
    issued = by_name["whichrank_rank_collectives_issued_total"]["sum"]
    assert (issued["isMonotonic"], issued["aggregationTemporality"]) == (True, 2)
    assert [point["asDouble"] for point in issued["dataPoints"]] == [201.0, 200.0]
    assert by_name["whichrank_alarm_level"]["gauge"]["dataPoints"][0]["asDouble"] == 2
    assert said == []


def test_opentelemetry_can_read_it() -> None:
    service = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    from google.protobuf import json_format

    text = json.dumps(document(all_families(), "train.py", START_NS, START_NS + 1))
    read = json_format.Parse(text, service.ExportMetricsServiceRequest())
    metrics = read.resource_metrics[0].scope_metrics[0].metrics
    assert len(metrics) == len(ALWAYS)
    levels = next(m for m in metrics if m.name == "whichrank_alarms_total").sum
    assert {p.attributes[0].value.string_value: p.as_double for p in levels.data_points}["confirmed"] == 1


def test_a_collector_that_is_away_is_told_once() -> None:
    said: list[str] = []
    pusher = Pusher(f"http://127.0.0.1:{free_port()}/v1/metrics", "train.py", all_families, said.append)
    pusher._push()
    pusher._push()
    assert said == ["can't push metrics to 127.0.0.1: Connection refused"]


@pytest.mark.parametrize("url", ["", "127.0.0.1:4318", "grpc://host:4317"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError):
        Pusher(url, "", all_families, print)
