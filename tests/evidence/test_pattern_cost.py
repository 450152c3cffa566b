"""No regular expression takes more than linear time, whatever it is given: repeated fragments of itself and of logs."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.pattern_attacks import COMMON, patterns, slow, texts, way
from whichrank.facts.messages import Signature, signatures

# Programs and launch files are read by people's own command; what is evidence comes from anywhere.
PACKAGES = tuple(
    f"whichrank.{name}"
    for name in ("evidence", "facts", "flows", "records", "report", "rules", "run", "source", "timeline", "verdict")
)
# What takes too long on a text of one size is tried on the next. A quadratic search takes nine times as long there, a
# linear one three times: the limits leave room for machines that are slower than others, except the first.
FIRST_SIZE, FIRST_LIMIT_S = 2000, 0.002
SIZE, LIMIT_S = 6000, 0.15
LAST_SIZE, LAST_LIMIT_S = 18_000, 1.5
FULL_SIZE, FULL_LIMIT_S = 1 << 15, 1.0  # lines are cut at 32 KiB
BREAKS = ("\n", "\n ")
"""Where a search begins at every line, what runs over line breaks begins at each of them."""
SAMPLES = Path(__file__).parents[1] / "samples"


@cache
def searches() -> dict[str, tuple[Any, Any]]:
    """Every way in which a pattern is used, by where it stands."""
    checked = {where: (way(where, pattern), pattern) for where, pattern in patterns(*PACKAGES).items()}
    checked |= {f"signature {s.id}": (s.search, s.shape) for s in signatures().values()}
    assert len(checked) > 1000
    return checked


def found_slow(
    checked: dict[str, tuple[Any, Any]], size: int, limit_s: float, fragments: tuple[str, ...] = ()
) -> dict[str, str]:
    tried = {
        where: slow(search, texts(pattern, size, fragments), limit_s) for where, (search, pattern) in checked.items()
    }
    return {where: text for where, text in tried.items() if text is not None}


def test_every_pattern_is_linear_on_fragments_of_itself() -> None:
    suspects = searches()
    for size, limit_s in ((FIRST_SIZE, FIRST_LIMIT_S), (SIZE, LIMIT_S), (LAST_SIZE, LAST_LIMIT_S)):
        slow_ones = found_slow(suspects, size, limit_s, BREAKS)
        suspects = {where: suspects[where] for where in slow_ones}
    assert slow_ones == {}


@pytest.mark.bars
def test_every_pattern_is_linear_on_fragments_of_itself_and_of_the_samples() -> None:
    logs = [path for path in sorted(SAMPLES.rglob("*.log")) if path.stat().st_size < 1 << 20][:40]
    lines = {
        line[:80]
        for path in logs
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[::50]
        if line.strip()
    }
    assert found_slow(searches(), FULL_SIZE, FULL_LIMIT_S, (*COMMON, *sorted(lines)[:60])) == {}


@pytest.mark.parametrize(
    "pattern", [r"(?:a+)+$", r"\s+x$", r"[\w.]*=\w", rb"\}\s*,?\s*\]", r"(?:x|\w)*;", r"(a{1,40}b?){1,40}c"]
)
def test_the_attacks_find_what_is_slow(pattern: str | bytes) -> None:
    compiled = re.compile(pattern)
    # The mildest of them takes 14 ms on texts of the first size, and the kernel's clock ticks every 4 to 10 ms.
    assert slow(compiled.search, texts(compiled, 2 * FIRST_SIZE), FIRST_LIMIT_S)
    assert slow(compiled.search, texts(compiled, FULL_SIZE), LIMIT_S)


@pytest.mark.parametrize("pattern", [r"rank (\d{1,7}): \w{1,40}", rb"File \"[^\"\n]{1,400}\", line \d{1,9}"])
def test_the_attacks_leave_linear_ones_alone(pattern: str | bytes) -> None:
    compiled = re.compile(pattern)
    assert slow(compiled.search, texts(compiled, 1 << 15), LIMIT_S) is None


def test_a_file_has_a_budget_whatever_its_patterns_cost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from whichrank.evidence.readers import known_messages
    from whichrank.model.contracts import Item

    monkeypatch.setattr(known_messages, "_BUDGET_S", 0.2)
    monkeypatch.setattr(Signature, "search", lambda *_: sum(range(200_000)) and None)
    path = tmp_path / "a.log"
    path.write_text("".join(f"{'x' * (n % 997)} CUDA error: out of memory {chr(97 + n % 26)}\n" for n in range(9000)))
    reading = known_messages.read(Item(path, "a.log", path.stat().st_size, 1))
    assert reading.quality in ("partial", "ignored")


def test_no_pattern_is_slow_on_words_of_marks() -> None:
    """A prefix is several words of digits and marks: a pattern that can split each in many ways tries them all."""
    words = ("1.", "a", "a.", "-", "a1", "1:", "/", "_", "rank ", "INFO ")
    lines = [((word * 12)[:13] + gap) * 6 + "rank x" for word in words for gap in (" ", ", ", ": ", " | ")]
    given = {where: pair for where, pair in searches().items() if where.startswith("whichrank.evidence")}
    found = {
        where: why
        for where, (search, pattern) in given.items()
        if (why := slow(search, [t.encode() if isinstance(pattern.pattern, bytes) else t for t in lines], LIMIT_S))
    }
    assert found == {}
