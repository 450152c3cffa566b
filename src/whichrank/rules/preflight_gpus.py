"""What rules of preflight about GPUs share: the GPUs of a host, and one answer that names all that show the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from msgspec import Struct

from whichrank.model.findings import Severity
from whichrank.model.preflight import Check, unhealthy
from whichrank.records.inspection import items


class Sign(Struct, frozen=True):
    """What is wrong with one GPU."""

    gpu: Any
    words: str
    severity: Severity = "error"
    fix: tuple[str, ...] = ()


def states(values: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Index and values of every GPU."""
    for gpu in items(values, "gpus"):
        own = gpu.get("values")
        yield gpu.get("index"), own if isinstance(own, Mapping) else {}


def number(state: Mapping[str, Any], key: str) -> float | None:
    """A value that is a number, whatever the driver or another host wrote."""
    try:
        value = float(str(state[key]))
    except (KeyError, ValueError):
        return None
    return value if isfinite(value) else None


def worst(signs: Sequence[Sign]) -> Check | None:
    """The gravest sign with all GPUs that show it; others are told behind it. None where there is none."""
    if not signs:
        return None
    by_words: dict[str, list[Sign]] = {}
    for sign in sorted(signs, key=lambda sign: sign.severity != "error"):
        by_words.setdefault(sign.words, []).append(sign)
    (words, first), *rest = by_words.items()
    why = "; ".join(f"{_names(own)}: {said}" for said, own in [(words, first), *rest[:3]])
    gpus = tuple(sign.gpu for own in by_words.values() for sign in own if isinstance(sign.gpu, int))
    return unhealthy(words, why, severity=first[0].severity, fix=first[0].fix, gpus=gpus, quote=why)


def _names(signs: Sequence[Sign]) -> str:
    numbers = [str(sign.gpu) for sign in signs]
    return f"GPU {numbers[0]}" if len(numbers) == 1 else f"GPUs {', '.join(numbers)}"
