"""Lines at the end of a file that say that the run ended well: the words of scripts, trainers and launchers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from whichrank.evidence.text.newest_lines import decoded
from whichrank.evidence.text.prefixes import Clock, Voice, listen
from whichrank.model.contracts import Item

TAIL = 1 << 16
"""A run says that it is done at its end: in the last 64 KiB, or not at all."""
_LONGEST = 1024

How = Literal["words", "exit"]

_RUN = r"(?:training|train|fine-?tuning|finetune|pre-?training|run|job|experiment|trainer|fit|main|script|epochs?|steps?|worker|all ranks|everything|program)"
_DONE = r"(?:finished|complete|completed|done|succeeded|successful(?:ly)?|ended|ended normally|over)"
# In lower case.
_WORDS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b{_RUN}\b[^.;]{{0,40}}\b{_DONE}\b",
        rf"\b(?:finished|completed|done)\b(?: with)?[^.;]{{0,30}}\b{_RUN}\b",
        r"^\W*(?:all )?(?:done|finished|completed?|success|bye|exiting normally)\b[\s.!]*(?:in [\d.:hms ]{1,20}|\([^)]{0,60}\))?\W*$",
        r"\bmax_(?:epochs|steps|iters)\W{1,3}\d+\W{0,3} reached",
        r"['\"]train_runtime['\"]\s*:",
        r"\breached (?:max|the last|the final|target) ?(?:steps|epochs?|step|iterations?)",
        r"\bstate\W{1,4}completed\b|\bcompleted\b.{0,12}\b0:0\b",
        r"\bjob\b.{0,60}\bsucceeded\b|\bsuccessfully completed\b|\bcompleted successfully\b|\bfinished successfully\b",
        r"\btotal (?:training )?(?:wall|run)?-?\s?time\b.{0,10}\d",
    )
)
_EXIT = re.compile(
    r"\b(?:exit(?:ed|s)?|exit(?:ing)?|return(?:ed)?|finished|ended|rc|status)\b(?:[ _-]?(?:code|status|with|value)){0,3}\W{0,4}0(?::0)?(?![\w.:%/]|\s*/)"
)
# What makes the same words a wish, a part, or their opposite.
_NOT = re.compile(
    r"\b(?:not|never|un\w+|incomplete|cannot|can't|couldn't|didn't|hasn't|isn't|won't|wasn't|before|until|unless|waiting"
    r"|wait|should|would|will|when|if|once|failed|failure|fail|error|errors|exception|abort\w*|killed|crash\w*|warmup"
    r"|warm-up|phase|epoch \d+ (?:done|finished|complete\w*)|eval\w*|validat\w*|init\w*|setup|loading|download\w*|compil\w*"
    r"|tokeniz\w*|preprocess\w*|check)\b"
)


def read(item: Item, breaks: int, clock: Clock) -> Iterator[tuple[int, Voice, How]]:
    """Number, words and kind of the lines at the end that say so, in order."""
    with item.path.open("rb") as stream:
        text = decoded(stream)
        if text is None:
            stream.seek(max(0, item.size - TAIL))
            text = stream.read(TAIL)
        tail = text[-TAIL:]
    lines = tail.split(b"\n")
    first = breaks + 2 - len(lines)
    for number, line in enumerate(lines, first):
        if number > 0 and line.strip() and (how := _how(line[-_LONGEST:])):
            yield number, listen(line[:_LONGEST], clock), how


def _how(line: bytes) -> How | None:
    """Whether this line says that the run ended well."""
    text = line.decode("utf-8", "replace").lower()
    said = text.rpartition(" - ")[2] if " - " in text else text.rpartition("| ")[2] if "| " in text else text
    said = re.sub(
        r"^\s*(?:\[[^\]]{0,80}\]\s*:?\s*|\S{0,40}\d\d:\d\d:\d\d\S{0,20}\s+|(?:info|notice)\b:?\s*){0,5}", "", said
    )
    if _NOT.search(said):
        return None
    if _EXIT.search(said):
        return "exit"
    return "words" if any(pattern.search(said) for pattern in _WORDS) else None
