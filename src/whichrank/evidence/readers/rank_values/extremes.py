"""The ranks with the least and the most, as Megatron's detector of stragglers prints them (`--log-straggler`), and the
least and the most of all ranks, as its timers do: whose those are they don't say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from whichrank.records.rank_values import Member, Quantity, RankValue, quantity

_LONGEST = 4000
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_EXTREME = re.compile(rf"\bM[nx](?P<name>Rtt|Etpt)/Rnk: (?P<value>{_NUMBER})(?:ms|TF)?/(?P<rank>\d{{1,7}})\b")
"""`MxRtt/Rnk: 5177.93ms/19`."""
_TIMER = re.compile(rf"\s{{0,8}}(?P<name>[a-z][\w-]{{2,60}}) \.{{3,80}}: ?\({_NUMBER}, (?P<most>{_NUMBER})\)\s{{0,4}}$")
"""`    batch-generator ......: (11.46, 14.70)`."""
_LISTED = re.compile(
    r"\b(?:Bottom|Top) {1,4}\d{1,4} Ranks with (?:low|high)est {1,2}Etpt\(TF\):"
    rf"(?P<row>(?: ?{_NUMBER}/\d{{1,7}},?){{1,256}})"
)
_OF_RANK = re.compile(rf"({_NUMBER})/(\d{{1,7}})")
_NAMES: dict[str, tuple[str, Quantity]] = {"Rtt": ("GPU time of a step", "work"), "Etpt": ("throughput", "rate")}


def extremes(lines: Sequence[tuple[int, str]]) -> Iterator[RankValue]:
    """Times and rates of the ranks that such lines name; times of nobody in particular."""
    for number, line in lines:
        if (timer := _TIMER.match(line)) and (kind := quantity(timer["name"], timed=True)):
            yield RankValue(timer["name"], kind, Member(), -1, number, line.strip(), float(timer["most"]))
            continue
        if ("/Rnk: " not in line and " Ranks with " not in line) or len(line) > _LONGEST:
            continue
        told = [(match["name"], match["value"], match["rank"]) for match in _EXTREME.finditer(line)]
        if listed := _LISTED.search(line):
            told += [("Etpt", value, rank) for value, rank in _OF_RANK.findall(listed["row"])]
        for short, value, rank in told:
            name, kind = _NAMES[short]
            yield RankValue(name, kind, Member((int(rank),)), -1, number, line.strip(), float(value))
