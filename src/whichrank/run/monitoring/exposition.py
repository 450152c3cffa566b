"""Metrics in Prometheus's text format (version 0.0.4); a small writer of our own, and the types that it writes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["counter", "gauge"]
Sample = tuple[dict[str, str], float]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LONGEST = 80
"""Characters of a label's value: they come from host names and commands, and each new value is a new series."""


@dataclass(frozen=True, slots=True)
class Metric:
    """What there is to know of a metric before it has a value."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its values."""

    metric: Metric
    samples: list[Sample] = field(default_factory=list)


def render(families: Iterable[Family]) -> str:
    """The text of a scrape; a family without a sample is left out."""
    return "".join(line for family in families if family.samples for line in _lines(family))


def label(value: str) -> str:
    """A label's value on one line, of bounded length."""
    printable = "".join(c if c.isprintable() and not "\ud800" <= c <= "\udfff" else "?" for c in value[: LONGEST + 1])
    return printable if len(printable) <= LONGEST else printable[: LONGEST - 1] + "…"


def _lines(family: Family) -> Iterator[str]:
    metric = family.metric
    help_text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
    yield f"# HELP {metric.name} {help_text}\n# TYPE {metric.name} {metric.kind}\n"
    for labels, value in family.samples:
        inside = ",".join(f'{name}="{_escaped(labels[name])}"' for name in metric.labels)
        yield f"{metric.name}{{{inside}}} {_number(value)}\n" if inside else f"{metric.name} {_number(value)}\n"


def _escaped(value: str) -> str:
    return label(value).replace("\\", "\\\\").replace('"', '\\"')


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
