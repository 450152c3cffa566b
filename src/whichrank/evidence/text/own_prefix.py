"""The prefix by which a log tells its ranks apart, learned from the log itself.

Collectors and scripts put all kinds of things before a line: `[9] `, `[c8:11] `, `5|train|`, `(3) `. Such a number is
the rank if lines with it say so themselves (`[9] rank 9 ready`, `[c8:11] [rank11]: …`): at least two ranks agree, and
nobody disagrees. A number behind an `r` or `rank` is the rank by itself, if no rank is on two hosts. Where no number is
the rank, a name that begins nearly every line and differs in its number or last letter only is the host; half of
the lines are enough where it stands in brackets and other lines speak of every such name.

Where no line says `rank`, numbers from 0 without a gap that begin most lines, each about as often, are the ranks too;
so are those that all lines with a time have behind a word such as `worker`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby

HOST = r"(?P<host>(?!(?:rank|Rank|RANK)[ :/|,])[A-Za-z][\w.-]{0,60})"
_RANK = r"(?P<rank>\d{1,5})"
_OWN_WORD = "w|p|r|rk|rnk|proc|process|worker|trainer|replica|member|peer|dev|device"
"""What programs call their ranks."""
_TOLD = re.compile(rf"[\[(<]?(?:{_OWN_WORD})[ _#-]?{_RANK}(?:[\])>]:?|:| ?\||>|(?= )) ?")
_SHAPES = tuple(
    re.compile(shape)
    for shape in (
        rf"\[{_RANK}\]:? ?",
        rf"\[{HOST}[:/| ]{_RANK}\]:? ?",
        rf"\({_RANK}\):? ?",
        rf"<{_RANK}>:? ?",
        rf"{_RANK}(?:\||: |> )",
        rf"{HOST}[:/]{_RANK}(?:\||: |> )",
        rf"{HOST}\[{_RANK}\]:? ",
        rf"[\[(<]?{_RANK}[@:/]{HOST}(?:[\])>]:?|:| ?\||>) ?",
        rf"[\[(<]?{HOST}@{_RANK}(?:[\])>]:?|:| ?\||>) ?",
        _TOLD.pattern,
    )
)
_SPEAKERS = tuple(
    re.compile(shape)
    for shape in (
        rf"\[{_RANK}\]:? ?",
        rf"\({_RANK}\):? ?",
        rf"<{_RANK}>:? ?",
        rf"{_RANK} ?\| ?",
        rf"[\[(<]?(?:{_OWN_WORD})[ _#-]?{_RANK}(?:[\])>]:?|:| ?\||>) ?",
    )
)
_IN_BLOCKS = re.compile(rf"{HOST}(?:[ :/@.]{{1,3}}|\[){_RANK}(?:\]|[:|>]{{1,2}})?:? (?=\S)")
_IN_BLOCKS_LEAST = 4
_FEWEST_STAMPED = 4
_SPEAK_ALIKE, _LEAST_LINES = 2.0, 3
"""How many times as often as another rank one may speak, and how often each does at least."""
_NUMBERED = re.compile(
    r"[\[(<]?(?:[A-Za-z][\w.-]{0,60}[:/| \[@])?\d{1,5}(?:[\])>|@/:]| \||> )|[\[(<]?[a-z]{1,8}[ _#-]?\d{1,5}\b"
)
"""Every one of those begins like this: a quick look for all of them."""
_NAMED_RANK = rf"(?:r|R|rank[ _=:]{{0,3}}|RANK[ _=:]{{0,3}}){_RANK}"
_HEAD = r"(?:(?:[A-Za-z][\w./-]{0,40}:?|[-|]|\[[A-Za-z][\w.:-]{0,40}\]) {1,3}){0,4}"
"""What loggers put before a tag: a level, a module."""
_TELLING = tuple(
    re.compile(shape)
    for shape in (
        rf"\[{HOST}[:/| ,]{{1,2}}{_NAMED_RANK}\]:? ?",
        rf"\(?{HOST}[:/ ]{_NAMED_RANK}\)?(?:: | ?\| |> |\) )",
        rf"\({HOST}[:/| ,]{{1,2}}{_NAMED_RANK}\):? ?",
        rf"{HOST} \[{_NAMED_RANK}\]:? ?",
        rf"{_HEAD}[\[(<][rR]{_RANK}(?:[ ,|/]{{1,2}}[\w=:.-]{{1,20}}){{0,6}}[\])>]:? ?",
        rf"\[{_NAMED_RANK}(?:[ ,|]{{1,2}}[a-z]{{1,8}}[=:]?\d{{1,5}}){{1,6}}\]:? ?",
        rf"[\[(<]{_NAMED_RANK}[ ,:/|@-]{{1,2}}{HOST}[\])>]:? ?",
        rf"{_NAMED_RANK}[@/]{HOST}(?:: | ?\| |> )",
        rf"{_HEAD}[rR]{_RANK}(?:: | ?\| )",
        rf"(?:[A-Z]{{4,8}}|[DIWEC])[:|]? {{1,8}}[rR]{_RANK} (?=\S)",
        rf"{_HEAD}[rR]{_RANK} (?=[A-Za-z][\w.-]{{0,30}}: )",
    )
)
"""Prefixes that call the rank by its name."""
_SPREAD = tuple(
    re.compile(shape)
    for shape in (
        rf"{HOST}: \[{_NAMED_RANK}\]:? ?",
        rf"{HOST}[:/ ]{_NAMED_RANK} (?=[\[(]?\d\d?[:/-]|\d{{4}}-|\[?[A-Z]{{4,8}}\b)",
    )
)
"""The same, where only several hosts show that a name is a host's: a level or a module looks alike."""
_LEVEL = re.compile(r"(?i:debug|info|notice|warn(?:ing)?|err(?:or)?|critical|fatal|trace|std(?:out|err))$")
_NAMES_RANK = re.compile(r"[\[(<]?[\w.:/| ,-]{0,66}\[?(?:r|R|rank[ _=:]{0,3}|RANK[ _=:]{0,3})\d")
"""Every one of those begins like this: a quick look for all of them."""
_NAMED_SOON = re.compile(r"[rR](?:ank[ _=:]{0,3}|ANK[ _=:]{0,3})?\d")
_SOON = 80
"""What stands in every such beginning, and within how many letters: a quicker look."""
_HOSTS = tuple(
    re.compile(shape)
    for shape in (
        r" ?\[(?P<host>[A-Za-z][A-Za-z_.-]{0,40}\d[\w.-]{0,40})\]:? ",
        r"(?P<host>[A-Za-z][A-Za-z_.-]{0,40}\d[\w.-]{0,40})(?:: | ?\| )",
        r"(?P<host>[A-Za-z][\w.]{0,40}-[\w.-]{0,40}[A-Za-z\d])(?: {1,4}|: | ?\| )",
        r"[\w.-]{1,80}@(?P<host>[A-Za-z][\w.-]{0,60})\s{1,40}\| ",
    )
)
_STEM = re.compile(r"\d+|(?<=[-_.])[a-z](?![a-z])")
NO_HOST = re.compile(
    r"(?:(?:local|global)_?)?(?:rank|gpu|cuda|step|epoch|iter\w{0,8}|default|trainer|task|proc\w{0,4}|[wr])[_:-]?\d+$",
    re.IGNORECASE,
)
"""What looks like the name of a host and is that of a rank, a device or a step."""
TEE = re.compile(r"\[(?!node|host|nid)[A-Za-z_]{1,40}(\d{1,4})(?:\|(\d{1,7}))?\]:")
"""What torchrun puts before the lines that it passes on: the local rank, and the rank where it is told to."""
_STAMP = re.compile(
    r"[\[(]?(?:(?:\d{4}[-/.])?\d\d[-/.]\d\d(?:[-/.]\d{2,4})?(?:[T _]|,\s?))?"
    r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?"
    r"(?:[\s,|-]{1,3}|$)"
)
LEVEL_FIRST = re.compile(
    r"(?:[A-Za-z]|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|CRIT(?:ICAL)?|FATAL)\b:? {1,3}"
    r"(?=[\[(]?(?:\d{4}[-/])?\d\d[-/:]\d\d)"
)
"""A level that stands before the time."""
_STAMPED = frozenset("[(0123456789")
"""A time of day, with or without its date, may stand before the prefix."""
_PARTS = re.compile(r"[^\w-]+|_+")
_MOSTLY, _HALF, _PARTLY = 0.9, 0.5, 0.1
_SAYS = re.compile(r"\[rank(\d{1,5})\]|\brank[ :=](\d{1,5})(?=:|/\d| of | on | ready| up\b| init)", re.IGNORECASE)
_MENTIONS = re.compile(r"\brank[ :=]?(\d{1,5})()\b", re.IGNORECASE)
"""Any rank that a line speaks of: the speaker itself where many do so and none of another."""
_ANY_RANK = re.compile(rb"rank[ :=]?(\d{1,5})")
"""In lower case: every rank that a line may say, and some numbers besides."""
_AGREED, _AGREED_OFTEN, _FEW = 2, 4, 64
_LINES = 4000
_LONGEST = 600


def unstamped(edges: bytes) -> list[str]:
    """The first lines without the times that begin them, as far as they say anything."""
    return [line for line in map(_unstamped, _lines(edges)) if line.strip()]


def _lines(edges: bytes) -> list[str]:
    return [line[:_LONGEST] for line in edges.decode("utf-8", "replace").split("\n")[:_LINES]]


@lru_cache(maxsize=8)
def learn(edges: bytes, file: str = "") -> re.Pattern[str] | None:
    """The shape of the prefix, with groups `rank` or `host` or both, by the first and last lines of a file; a file that
    is called after a host needs no other host to show what that is."""
    whole = _lines(edges)
    lines = list(map(_unstamped, whole))
    said = [line for line in lines if line.strip()]
    several = len(set(_ANY_RANK.findall(edges.lower()))) >= _AGREED
    speaking = [line for line in said if "rank" in line.lower()] if several else []
    speaking = [line for line in speaking if _NUMBERED.match(line)]
    ways = ((_SAYS, _AGREED), (_MENTIONS, _AGREED_OFTEN)) if speaking else ()
    fitting = (shape for says, least in ways for shape in _SHAPES if _fits(shape, speaking, says, least))
    by_rank = next(fitting, None)
    if by_rank is None:
        naming = [line for line in said if _NAMED_SOON.search(line, 0, _SOON) and _NAMES_RANK.match(line)]
        begun = _PARTLY * len(said)
        parts = frozenset(_PARTS.split(file.lower()))
        often = {shape: _of_one_host_each(shape, naming, begun, parts) for shape in (*_TELLING, *_SPREAD)}
        by_rank = max((shape for shape in often if often[shape]), key=often.__getitem__, default=None)
    if by_rank is None and not _ANY_RANK.search(edges.lower()):
        by_rank = next((shape for shape in _SPEAKERS if _all_speak_alike(shape, said)), None)
        stamped = [line for line, raw in zip(lines, whole, strict=True) if len(line) < len(raw)]
        by_rank = by_rank or (_TOLD if _all_are_told(_TOLD, stamped) else None)
    by_rank = by_rank or (_IN_BLOCKS if _are_in_blocks(said) else None)
    return by_rank or next((shape for shape in _HOSTS if _names_hosts(shape, said)), None)


def hosts_named(prefix: re.Pattern[str], edges: bytes) -> frozenset[str]:
    """The hosts in the prefixes of these lines."""
    found = (match.groupdict().get("host") for line in map(_unstamped, _lines(edges)) if (match := prefix.match(line)))
    return frozenset(host for host in found if host)


def _unstamped(line: str) -> str:
    tee = TEE.match(line) if line[:1] == "[" else None
    line = line[tee.end() :] if tee else line
    level = LEVEL_FIRST.match(line)
    line = line[level.end() :] if level else line
    stamp = _STAMP.match(line) if line[:1] in _STAMPED else None
    return line[stamp.end() :] if stamp else line


def _names_hosts(shape: re.Pattern[str], said: Sequence[str]) -> bool:
    """Whether nearly every line begins with one of several names that differ in their numbers only."""
    names: set[str] = set()
    others: list[str] = []
    least = _HALF if shape is _HOSTS[0] else _MOSTLY
    most = (1 - least) * len(said) + 1
    for line in said:
        if match := shape.match(line):
            names.add(match["host"])
        else:
            others.append(line)
            if len(others) > most:
                return False
    stems = {_STEM.sub("", name) for name in names}
    if len(names) < _AGREED or len(stems) != 1 or any(NO_HOST.match(name) for name in names):
        return False
    nearly = len(others) <= (1 - _MOSTLY) * len(said)
    return nearly or (len(names) <= _FEW and all(any(_within(name, line) for line in others) for name in names))


def _within(name: str, line: str) -> bool:
    at = line.find(name)
    return at >= 0 and not (line[at - 1 : at].isalnum() or line[at + len(name) : at + len(name) + 1].isalnum())


def _of_one_host_each(shape: re.Pattern[str], lines: Sequence[str], least: float, parts: Collection[str]) -> int:
    """How many lines begin so; 0 where too few do, or not several ranks, each on one host, or ranks of the one host
    after which the file is called."""
    if len(lines) < max(_AGREED, least):
        return 0
    hosts: dict[int, set[str]] = {}
    begun = 0
    for line in lines:
        if match := shape.match(line):
            begun += 1
            hosts.setdefault(int(match["rank"]), set()).add(match.groupdict().get("host") or "")
    named = set().union(*hosts.values())
    alone = len(named) == 1 and next(iter(named)).lower() in parts
    if shape in _SPREAD and not alone and (len(named) < _AGREED or any(map(_LEVEL.match, named))):
        return 0
    fits = (alone or len(hosts) >= _AGREED) and begun >= least and all(len(names) == 1 for names in hosts.values())
    return begun if fits else 0


def _are_in_blocks(said: Sequence[str]) -> bool:
    """Whether most lines begin with a host and a number, the numbers are 0, 1, 2 … and each host has as many of them,
    one after the other: those are the ranks, whatever else the lines say of ranks."""
    hosts: dict[int, set[str]] = {}
    begun = 0
    for line in said:
        if match := _IN_BLOCKS.match(line):
            hosts.setdefault(int(match["rank"]), set()).add(match["host"])
            begun += 1
    if begun < _HALF * len(said) or len(hosts) < _IN_BLOCKS_LEAST or hosts.keys() != set(range(len(hosts))):
        return False
    order = [next(iter(hosts[rank])) for rank in sorted(hosts)]
    blocks = [len(list(same)) for _, same in groupby(order)]
    return all(len(names) == 1 for names in hosts.values()) and len(blocks) == len(set(order)) > 1 == len(set(blocks))


def _all_speak_alike(shape: re.Pattern[str], said: Sequence[str]) -> bool:
    """Whether the numbers that most lines begin with are 0, 1, 2 … and each of them begins about as many; the first
    rank often speaks for all."""
    spoken = Counter(int(match["rank"]) for line in said if (match := shape.match(line)))
    dense = len(spoken) >= _AGREED and spoken.keys() == set(range(len(spoken)))
    if not dense or spoken.total() < _HALF * len(said):
        return False
    least, others = min(spoken.values()), [count for number, count in spoken.items() if number]
    return least >= _LEAST_LINES and max(others) <= _SPEAK_ALIKE * min(others)


def _all_are_told(shape: re.Pattern[str], stamped: Sequence[str]) -> bool:
    """Whether every line with a time says next which of 0, 1, 2 … it is of, by a word that programs have for ranks."""
    told = [match for line in stamped if (match := shape.match(line))]
    numbers = {int(match["rank"]) for match in told}
    return len(told) == len(stamped) >= _FEWEST_STAMPED and numbers == set(range(len(numbers))) and len(numbers) > 1


def _fits(shape: re.Pattern[str], lines: Iterable[str], says: re.Pattern[str], least: int) -> bool:
    agreed: set[int] = set()
    for line in lines:
        match = shape.match(line)
        if match is None:
            continue
        said = says.search(line, match.end())
        if said is None:
            continue
        number = int(said[1] or said[2])
        if number != int(match["rank"]) or _LEVEL.match(match.groupdict().get("host") or ""):
            return False
        agreed.add(number)
    return len(agreed) >= least
