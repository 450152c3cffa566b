"""What really happened, and whether an answer agrees with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.model.errors import UsageError

_CATEGORIES = {"silent": "corruption"}
"""What people write for it."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The contents of a truth.yaml, or what a fault says of itself."""

    category: str
    cause: str
    culprit_ranks: tuple[int, ...] | None
    """None where the evidence can't tell, or no rank is to blame."""
    accept: tuple[str, ...] = ()
    root_cause: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "category": self.category,
            "cause": self.cause,
            "culprit_ranks": None if self.culprit_ranks is None else list(self.culprit_ranks),
            "accept": list(self.accept),
            "root_cause": self.root_cause,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool said: ours or a peer's. A cause is None where the tool names ranks alone."""

    cause: str | None
    ranks: tuple[int, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """How good an answer is."""

    right: bool
    exact: bool
    accused: bool
    """Somebody innocent was named."""


def mark(truth: Truth, answer: Answer) -> Mark:
    named = set(answer.ranks)
    guilty = truth.culprit_ranks
    return Mark(
        right=answer.cause in (truth.cause, *truth.accept),
        exact=guilty is None or named == set(guilty),
        accused=bool(named - set(guilty)) if guilty is not None else False,
    )


def of_verdict(verdict: Mapping[str, Any]) -> Answer:
    """The answer in a verdict as `diagnose --format json` has it."""
    return Answer(verdict["cause"], tuple(verdict["culprits"]["ranks"]), verdict["summary"])


def read(path: Path) -> Truth:
    """A truth.yaml."""
    try:
        import yaml
    except ImportError as error:
        hint = "Install it: pip install 'whichrank[lab]'"
        raise UsageError("a truth.yaml needs PyYAML to be read", hint) from error
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        ranks = content.get("culprit_ranks")
        return Truth(
            _CATEGORIES.get(category := str(content.get("category", "unknown")), category),
            str(content["cause"]),
            None if ranks is None else tuple(int(rank) for rank in _sequence(ranks)),
            tuple(str(cause) for cause in _sequence(content.get("accept") or [])),
            str(content.get("root_cause", "")),
        )
    except (OSError, yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError) as error:
        hint = "It needs a cause of the taxonomy, and culprit_ranks as a list."
        raise UsageError(f"{path} is not a valid truth: {error}", hint) from error


def hosts(path: Path) -> tuple[str, ...]:
    """The culprit_hosts of a truth.yaml, where it names any."""
    import yaml

    named = yaml.safe_load(path.read_text(encoding="utf-8")).get("culprit_hosts") or []
    return tuple(str(host) for host in _sequence(named))


def _sequence(value: Any) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise TypeError(f"a list was expected, not {value!r}")
    return value
