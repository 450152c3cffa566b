"""Commands that somebody typed, with what they printed: the same program with one more setting, and what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.interventions import interventions
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.trial import Outcome, Trial

NAME = "transcripts"
BESIDE = True

_SEARCHED = 1 << 18
_PROGRAM = rb"torchrun|python3?|mpirun|mpiexec|srun|deepspeed|accelerate|horovodrun|\S{0,80}_perf"
_TYPED = re.compile(
    rb"(?m)^[ \t]{0,8}(?:[\w.-]{1,40}@[^\n$#]{1,60}[$#]|\$) (?=[^\n]{0,400}?\b(?:" + _PROGRAM + rb")\b)"
)
_SETTING = re.compile(r"(?<![\w$])(?:-x |--env |-e )?([A-Z][A-Z0-9]{1,12}_[A-Z0-9_]{2,50})=(\S{1,80})")
_WELL = re.compile(
    r"(?i)\b(?:step|iter\w{0,6}|epoch)\W{0,3}\d+\b.{0,40}\bloss\b|\b(?:done|finished|completed|success\w{0,4})\W{0,3}$"
    r"|Avg bus bandwidth +: [1-9]|Out of bounds values : 0 OK"
)
_BADLY = re.compile(
    r"(?i)\^C|\bTraceback \(|\b\w{2,40}Error\b|\btim(?:ed|ing) out\b|\bhangs?\b|\bstuck\b"
    r"|\bnothing (?:more|for|happens)\b|\b(?:segmentation fault|aborted|killed|core dumped)\b"
)


class _Command(Struct):
    """One command and how it went."""

    program: str
    settings: dict[str, str]
    line: int
    quote: str
    output: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> bool | None:
        """Whether it went well; None where its output does not tell."""
        if any(_BADLY.search(line) for line in self.output):
            return False
        return True if any(_WELL.search(line) for line in self.output) else None


def sniff(head: bytes, _name: str) -> bool:
    """Text with a prompt and a launcher behind it."""
    return is_text(head) and (b"$ " in head or b"# " in head) and _TYPED.search(head) is not None


def read(item: Item) -> Reading:
    """What a setting did, where the same program was started with it and without."""
    first, data = tail(item, _SEARCHED)
    commands = list(_commands(data, first))
    found = list(_trials(commands, item.label))
    return Reading(found, "complete") if found else Reading([], "ignored", "no two commands that differ by a setting")


def _commands(data: bytes, first: int) -> Iterator[_Command]:
    starts = {match.start(): match.end() for match in _TYPED.finditer(data)}
    current: _Command | None = None
    offset = 0
    for number, raw in enumerate(data.split(b"\n"), first):
        at = starts.get(offset)
        text = raw.decode("utf-8", "replace")
        if at is not None:
            if current is not None:
                yield current
            typed = data[at : offset + len(raw)].decode("utf-8", "replace")
            settings = dict(_SETTING.findall(typed))
            program = " ".join(_SETTING.sub("", typed).split("|")[0].split("2>")[0].split())
            current = _Command(program, settings, number, text.strip()[:300])
        elif current is not None:
            current.output.append(text[:2000])
        offset += len(raw) + 1
    if current is not None:
        yield current


def _trials(commands: Sequence[_Command], source: str) -> Iterator[Trial]:
    for before in commands:
        for after in commands:
            added = {n: v for n, v in after.settings.items() if before.settings.get(n) != v and n != "NCCL_DEBUG"}
            kept = before.settings.keys() - {"NCCL_DEBUG"} <= after.settings.keys()
            if before.program != after.program or before.outcome is not False or len(added) != 1 or not kept:
                continue
            if after.outcome is None:
                continue
            outcome: Outcome = "helped" if after.outcome else "did not help"
            ((name, value),) = added.items()
            for change in interventions().values():
                if change.within(f"{name}={value}"):
                    yield Trial(change.change, outcome, Ref(source, f"line {after.line}", after.quote), seen=True)
