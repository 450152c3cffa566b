"""Where nothing says why: the lines that look most like trouble, and the causes they come closest to."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from whichrank.evidence.readers.reports.symptoms import complains
from whichrank.evidence.text.own_lines import is_own
from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.facts.closest_cause import Closeness, closest
from whichrank.facts.interventions import did_nothing
from whichrank.facts.messages import recognise
from whichrank.facts.taxonomy import causes
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.records.second_looks import STATED, ClosestCause

# In lower case; words are found many times as fast as a pattern that has them all.
_WORDS = (
    "warn", "error", "fail", "disabl", "cannot", "can't", "unable", "mismatch", "refus", "timed", "denied", "lost",
    "stuck", "hang", "hung", "slow", "invalid", "unexpected", "exceed", "killed", "abort", "exception", "differ",
    "missing", "inconsist",
)  # fmt: skip
_SHAPES = re.compile(r"(?<![\w-])time.?out|no(?<!\wno)t?\b")
_FRAME = re.compile(
    r'(?:\[[^\]]{1,40}\]:?)?\s{0,40}(?:File "|(?:frame )?#\d{1,4}:? |[\^~]{3})'
    r"|Process \d{1,10}: |Thread (?:0x)?[\da-f]{1,16} "
    r"|\s{2,8}\S[^()]{0,200} \([^()\s]{1,300}(?::\d{1,7})?\)\s*$"
)
"""A frame of a stack: where, not what."""
_FIELD = re.compile(r"  (?:time|host|rank|exitcode|error_file|traceback)\s{0,8}: ")
"""A field of torchrun's report of a failure."""
_SHOWS_CODE = 'File "'
"""What a frame has whose next line is the code there."""
_INFO = " NCCL INFO "
_PROCESS = re.compile(
    r"\s{0,12}(?:(?:UID|USER|F)\s{1,20}(?:\w\s{1,20}){0,2})?PID\s"
    r"|\s{0,12}(?:[\w.+-]{1,32}\s{1,20})?\d{1,10}\s{1,12}\d[\d.]{0,9}\s.{0,120}\s/\S"
)
"""A row of `ps` or `top`, or its title: the words in it are those of commands."""
_NUMBERS = re.compile(r"\d+")
_LARGEST = 1 << 17
"""Of a longer file the beginning is read."""
_END = 1 << 12
"""Of a file, to find its last line."""
LISTED = 2.0
"""The least that words must tell for a cause to be listed."""
_LONGEST, _MOST = 600, 16_000
"""Characters of a line, and of all lines together."""


def closest_causes(items: Sequence[Item]) -> list[ClosestCause]:
    """The causes whose wording comes closest to a text that speaks of trouble, the closest first."""
    told = (place for place in new_lines(texts_of(items)) if not did_nothing(place[2]))
    places = [place for place in told if not _accounted_for(place[2]) and not _is_routine(place[2])]
    troubles = [at for at, (_, _, text) in enumerate(places) if _is_trouble(text.lower()) or complains(text)]
    ranked = closest([text for _, _, text in places]) if troubles else []
    near = [
        ClosestCause(found.cause, found.score, found.told, Ref(label, f"line {number}", text.strip()[:300]))
        for found in (*_stated(places, troubles, ranked), *ranked)
        for label, number, text in [places[found.line]]
    ]
    return near if any(one.told >= LISTED for one in near) else _last_activity(items)


def _last_activity(items: Iterable[Item]) -> list[ClosestCause]:
    """What an output ends with, where that is something that may take long: listed, and never named."""
    found = []
    for item in items:
        try:
            first, data = tail(item, _END)
        except OSError:
            continue
        lines = [(number, line) for number, line in enumerate(data.split(b"\n"), first) if line.strip()]
        number, line = lines[-1] if lines and is_text(data) else (0, b"")
        text = line.decode("utf-8", "replace")[:_LONGEST]
        known = recognise(text) if text and not is_own(line) else []
        cause = next((s.cause for s, _ in known if s.role == "activity" and s.cause in causes()), None)
        if cause is not None:
            found.append(ClosestCause(cause, 1.0, LISTED, Ref(item.label, f"line {number}", text.strip()[:300])))
    return found


def _stated(places: list[tuple[str, int, str]], troubles: list[int], ranked: list[Closeness]) -> list[Closeness]:
    """The cause of the first known message, which no rule has taken up: it tells more than any words."""
    for at in troubles:
        for signature, _ in recognise(places[at][2]):
            if signature.role == "root" and signature.cause in causes() and signature.affirmed(places[at][2]):
                return [Closeness(signature.cause, 2 * ranked[0].score if ranked else 1.0, STATED, at)]
    return []


def texts_of(items: Iterable[Item]) -> Iterator[tuple[str, bytes]]:
    """Label and beginning of those that somebody wrote."""
    for item in items:
        try:
            data = item.head(_LARGEST)
        except OSError:
            continue
        if is_text(data[:4096]) and data[:2] != b"{\n":  # settings and the like, not what somebody says
            yield item.label, data


def new_lines(texts: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, int, str]]:
    """File, number and text of lines; one that differs from another by numbers alone is left out."""
    seen: set[str] = set()
    size = 0
    for label, data in texts:
        is_code = False
        lines = data[:_LARGEST].decode("utf-8", "replace").split("\n")
        for number, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True), 1):
            text = line[:_LONGEST]
            shape = _NUMBERS.sub("0", text[:200])
            # Of a traceback that was cut, the code of its first frame may be left.
            first_code = number == 1 and text.startswith("    ") and _FRAME.match(following)
            was_code, frame = is_code or first_code, _FRAME.match(text)
            is_code = frame is not None and frame[0].endswith(_SHOWS_CODE)
            if was_code or frame or _FIELD.match(text) or shape in seen or not text.strip() or is_own(text.encode()):
                continue
            seen.add(shape)
            yield label, number, text
            size += len(text)
            if size > _MOST:
                return


def _accounted_for(line: str) -> bool:
    """Whether it is known to tell no cause: healthy jobs print it, or it follows from a failure."""
    known = recognise(line)
    return bool(known) and all(signature.role in ("harmless", "consequence", "activity") for signature, _ in known)


def _is_routine(line: str) -> bool:
    """What NCCL tells where nothing is wrong, in the words of everything that can go wrong, and lists of processes."""
    return _INFO in line or _PROCESS.match(line) is not None


def _is_trouble(line: str) -> bool:
    return any(map(line.__contains__, _WORDS)) or _SHAPES.search(line) is not None
