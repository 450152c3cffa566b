"""The lines of files, and whose they are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from whichrank.evidence.text.tail import tail
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item
from whichrank.model.evidence import Ref
from whichrank.timeline.identity.who import People, by_short_name, host_in_name

_LARGEST, _END = 1 << 19, 1 << 17
"""Of a longer file its beginning and its end are read."""
_LINES, _LONGEST = 2_000, 400
HOSTS = 3
MOST_HOSTS = 512
OF_RANKS = re.compile(r"(?i)rank|gpu|cuda|attempt|step|epoch|std(?:out|err)")
"""What has a number and is no host."""
STAMP = re.compile(
    r"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d\S*\]?\s*|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?\s+|\[ {0,8}\d{1,9}\.\d{6}\] "
)
_PROCESS = re.compile(
    r"(?<![\w.-])[\w.-]{1,64}:\d{1,10}:\d{1,10} (?:\[-?\d{1,4}\] )?(?:[\w/]{1,40}\.cc:\d{1,6} )?"
    r"(?:NCCL (?:INFO|WARN) )?"
)
_OF_TORCH = re.compile(rb"\[[IWEF]\d{3,4} \d\d:\d\d:\d\d\.\d|ProcessGroup(?:NCCL|Gloo)\.cpp:\d|\bframe #\d")
"""What torch prints when something failed: it is no host's own."""
_VERSION = re.compile(r"\((\d{1,3}), (\d{1,3}), (\d{1,3})\)")
COUNTED = re.compile(r"\d+")


class Text(NamedTuple):
    """A file: the lines at its beginning with their numbers, and those at its end."""

    label: str
    lines: list[tuple[int, str]]
    last: list[str]


class Said(NamedTuple):
    source: str
    number: int
    name: str
    words: tuple[str, ...]
    """What stands behind the name."""
    text: str


def text_of(item: Item) -> Text | None:
    try:
        data, (_, end) = item.head(_LARGEST), tail(item, _END)
    except OSError:
        return None
    if not is_text(data[:4096]):
        return None
    all_lines = enumerate(data.split(b"\n")[:_LINES], 1)
    lines = [(number, _text(line)) for number, line in all_lines if not _OF_TORCH.search(line)]
    return Text(item.label, lines, [_text(line) for line in end[-_END:].split(b"\n")])


def _text(line: bytes) -> str:
    return line[:_LONGEST].decode("utf-8", "replace")


def words_of(line: str) -> tuple[str, ...]:
    """The words without the time and the process; `(2, 21, 5)` is a version like `2.21.5`."""
    return tuple(_VERSION.sub(r"\1.\2.\3", _PROCESS.sub("", STAMP.sub("", line))).split())


def kind_of(name: str) -> str:
    """What names have in common that differ in a number or a letter: `node7` and `node8`, `pod-a` and `pod-b`."""
    return COUNTED.sub("", name)[:-1]


def host_of_file(label: str, texts: Sequence[Text], people: People) -> str | None:
    """The host whose file it is: by its name, or as one of several files whose names differ in a number alone."""
    if (host := host_in_name(label, by_short_name(people.hosts()))) is not None:
        return host
    stem = stem_of(label)
    fellows = sum(stem is not None and kind_of(stem) == kind_of(stem_of(text.label) or "") for text in texts)
    return stem if fellows >= HOSTS else None


def stem_of(label: str) -> str | None:
    """The name of a file where it ends as names of hosts do."""
    stem = PurePosixPath(label).name.partition(".")[0]
    return stem if stem[-1:].isdigit() and not OF_RANKS.search(stem) else None


def quoted(said: Said) -> Ref:
    return Ref(said.source, f"line {said.number}", said.text[:300], None, said.name)
