"""What launchers and collectors put before a line: who spoke, where and when."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta, timezone
from functools import lru_cache

from msgspec import Struct

from whichrank.evidence.text.own_prefix import LEVEL_FIRST, TEE, hosts_named, learn
from whichrank.evidence.text.rank_key import RANK_KEYS, learn_key
from whichrank.evidence.text.server_prefix import LEVELED, PLACED, place_in
from whichrank.model.contracts import Item

ANSI = r"\x1b(?:\[[0-?]{0,32}[ -/]{0,4}[@-~]|\][^\x07\x1b\n]{0,512}(?:\x07|\x1b\\)|[@-Z\\^_])"
"""Colours and other codes of a terminal."""
_ANSI = re.compile(ANSI)

# torch's `[rank3]:` is global; torchrun's tee prefix `[default3]:` is local, `[default3|11]:` also has the global one.
_RANK = re.compile(r"\[(?:rank|RANK|Rank|global_rank)[ =:]?(\d{1,7})\](:? ?)")
# A script's own tag: `rank 3: `, `rank3 | `, `rank 0/4 | `, `r3 INFO `, `[node0 rank0] `; `[3] ` only behind a time.
# torch's own words have a capital: `Rank 0: Completed store-based barrier`.
_LEVEL = r"(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|CRITICAL|FATAL)"
_TAGGED = re.compile(
    rf"(?:(?:rank|RANK)[ _=:-]?(\d{{1,6}})(?:/\d{{1,6}})?(?:[:,]| ?\||(?= {_LEVEL}\b)| -(?= ))"
    rf"|[rR](\d{{1,6}})(?:(?= {{1,3}}{_LEVEL}\b)| ?\|)) ?"
)
_IN_BRACKET = re.compile(r"\[[\w. -]{1,60}[ ,:]rank[ _=:]?(\d{1,6})\]:? ?")
_OTHER_TAG = re.compile(r"\[[\w.:@/-]{1,60}\] (?=\[(?:rank|RANK) ?\d|\[?20\d\d-\d\d-\d\d[T _]\d\d:)")
_BEHIND_LOGGER = re.compile(rf"{_LEVEL}\b[\w.:<>|/ -]{{0,100}}?\[rank[ _=:]?(\d{{1,6}})\]")
# Behind time, host, logger and level: `gh01 trainer[rank0]: `, `[rank 3/16 @p5-a] `, `- root - INFO - [rank6] `.
_HEAD_RANK = re.compile(
    rf"(?:(?:\||{_LEVEL}:?|root|(?=[A-Za-z]{{0,60}}[\d._:@/-])[\w.@:/-]{{1,120}}|\[[\w.@:/-]{{1,80}}\]"
    r"|[A-Za-z]{1,60}(?= {1,3}[-|] )) {1,3}){0,8}"
    r"[A-Za-z_.]{0,30}\[rank[ _=:-]{0,2}(\d{1,6})(?:/\d{1,6})?(?: ?@ ?([\w.-]{1,60}))?\]:? ?"
)
_LOGURU = re.compile(
    r"[A-Z]{4,8}\s{0,8}\| [\w.<>]{1,80}:[\w<>]{1,60}:\d{1,6} - \[?[Rr]ank[ =_]?(\d{1,6})(?:\]:?|:| \|) "
)
"""`INFO     | train:main:17 - rank 3: `."""
_BARS = re.compile(
    rf"(?:\| {{0,2}})?(?:{_LEVEL} {{0,8}}\| {{0,2}})?(?:([A-Za-z][\w.-]{{0,60}}) {{0,4}}\| {{0,2}})?"
    r"rank {0,2}[=:#]? ?(\d{1,6})(?:/\d{1,6})? {0,4}\| ?"
)
"""Columns between bars: `| INFO     | node-c | rank=16 | `."""
_END_OF_BRACKET = re.compile(r"[\w.]{0,60} ?rank ?(\d{1,6})\]:? ?")
"""What is left of `[03/12 06:10:01 trainer rank5]: ` behind its time."""
_SPEAKS_FOR = re.compile(r"([A-Za-z][\w.-]{0,60}) [A-Za-z_.]{1,30}\[rank")
_BRACKETED = re.compile(rf"(?:{_LEVEL}:? {{1,3}})?\[((?=[\w.-]{{0,60}}[\d-])[A-Za-z][\w.-]{{1,60}})\] {{1,3}}\[rank")
"""`ERROR [node7] [rank 3] `: the host stands just before the rank."""
_BARE = re.compile(r"\[(\d{1,4})\] (?=[A-Za-z])")
_HOST_TOKEN = re.compile(
    rf"((?![wrpWRP]\d{{1,5}} )[A-Za-z][\w.-]{{0,60}}\d[\w.-]{{0,20}}) "
    rf"(?={_LEVEL}\b|\[?rank[ _=]?\d|[rR]\d{{1,6}} {{1,3}}{_LEVEL}\b|[a-z][\w./-]{{1,40}}(?:\[\d{{1,10}}\])?: )"
)
_LEVEL_BEFORE_RANK = re.compile(rf"{_LEVEL} ?:? {{0,8}}(?:[-|] )?(?=\[?rank[ _=]?\d)")
_MPI = re.compile(r"(.{0,40}?)\[(?:[\w.@-]{0,80}@)?\d{1,10},(\d{1,7})\]<std(?:out|err|diag)>:? ?")
_RAY = re.compile(
    r"\((?:[\w.:<>-]{0,60},? ?)(?:rank=(\d{1,6}),? |TP\d{1,5} )?(?:pid=(\d{1,10})(?:, )?|(?=ip=))"
    r"(?:ip=([\w.:-]{1,60}))?(?:(?:, )?rank=(\d{1,6}))?\) ?"
)
_COMPOSER = re.compile(r": rank(\d{1,6})\[(\d{1,10})\]\[[\w-]{1,40}\]: ")
"""What Composer puts behind the time: `: rank11[5811][MainThread]: `."""
_HOST_AND_RANK = re.compile(r"\[([A-Za-z][\w.-]{0,60}\d)\]\[(?:[rR]ank ?)?(\d{1,6})\]:? ")
_POD = re.compile(r"\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] ?")
_OBJECT = re.compile(r"(?:pod|node)/([\w.-]{1,253})(?:/[\w.-]{1,253})?:? ")
"""As kubectl names things: `pod/trainer-2 `, `node/ip-10-1-44-7 kernel: `."""
_CRI = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
_SYSLOG = re.compile(
    rf"([A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) (?!{_LEVEL}\b|[Rr](?:ank)?\d)([\w.-]{{1,253}}) "
    r"[\w./@-]{1,64}(?:\[(\d{1,10})\])?: "
)
_TASK = re.compile(r" {0,6}(\d{1,6}): ")
# Only what is surely a host: `HTTP404Error: ` and `step5: ` have the same form.
_HOST = re.compile(
    r"((?:node|host|worker|compute|gpu|ip|nid|dgx|cn|slave|master)[\w.-]{0,60}\d[\w.-]{0,40}"
    r"|\d{1,3}(?:\.\d{1,3}){3})(?:: | \| )",
    re.IGNORECASE,
)
_TEST_FAILS = re.compile(r"(?: \.\. )?([A-Za-z][\w.-]{0,62})(?: pid \d{1,10})?: (?=Test (?:CUDA |NCCL )?failure )")
"""How NCCL's tests begin what fails: `node7: Test CUDA failure`, ` .. node7 pid 4410: Test failure`."""
_HOST_BEGINS = frozenset("nhwcgidsmNHWCGIDSM0123456789")
_DATED = re.compile(
    r"[\[(]?(\d{4})[-/](\d\d)[-/](\d\d)[T _,](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"(Z|[+-]\d\d:?\d\d)?[\])]?(?=[\s:,|\[-]|$)"
)
# With the year behind the day: `03/06/2025 02:11:37`, and `[03/06/25 02:11:37]` as rich prints it.
_DAY_FIRST = re.compile(
    r"(?:[\[(]?(\d\d)/(\d\d)/(20\d\d)|\[(\d\d)/(\d\d)/(\d\d))[T ,]{1,2}(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r"[\])]?(?=[\s:,|\[-]|$)"
)
# As in much of Europe: `08.03.2024 19:30:15`, `19-11-2026 12:59:11`, the day first.
_DOTTED = re.compile(
    r"[\[(]?(\d\d)[.-](\d\d)[.-](20\d\d)[T ,]{1,2}(\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?[\])]?(?=[\s:,|\[-]|$)"
)
# Without a year: `12-03 12:05:02`, `03/12 12:05:02.5`.
_DAY = re.compile(r"[\[(]?(\d\d)[-/](\d\d)[T _](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?[\])]?(?=[\s:,|\[-]|$)")
_GLOG = re.compile(
    r"\[?([IWEFV])(\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6,9}) (?:(\d{1,10}) )?"
    r"([\w./-]{1,200}\.\w{1,4}):\d{1,9}\] ?"
)
_GLOG_OLD = re.compile(r"\[([IWEF]) [\w./-]{1,100}\.\w{1,4}:\d+\] ?")
_YEAR = re.compile(rb"20(?<!\w20)\d\d(?=-[01]\d-[0-3]\d[ T_]\d\d:)")
_BUILD = re.compile(r"\s{0,24}\| ")
_FIRST_WORD = re.compile(r"\[?([A-Za-z][\w.-]{0,60})\]?(?:: | ?\| | )")
_KMSG = re.compile(r"<\d{1,2}>(?=\S)")
"""The level that syslog and the kernel put before a line."""
_CUT_JSON = re.compile(r'\{"(?:log|message|msg|text)" ?: ?"(.{20,}?)(?:(?<!\\)",|$)')
_WORDS = ("log", "message", "msg", "text", "line", "textPayload", "MESSAGE", "body")
_HOSTS = ("host", "hostname", "node", "pod", "pod_name", "_HOSTNAME")
_TIMES = ("time", "ts", "timestamp", "@timestamp")
_LOGFMT = ("ts=", "t=", "time=", "timestamp=", "level=", "lvl=")
"""How lines of `key=value` loggers begin."""
_PAIR = re.compile(r"([A-Za-z_@][\w.@-]{0,40})=(\"(?:[^\"\\]|\\.){0,4000}\"|[^\s\"]{0,400})(?:\s{1,4}|$)")
_PAIRS_OF_NOBODY = frozenset((*_TIMES, "t", "level", "lvl", "logger", "caller", *_HOSTS, "rank", "global_rank", "pid"))
_SENTENCE, _EDGE = 24, 1 << 16
_LEAST_PAIRS, _DIGITS = 3, 8
_HEARD = 64
"""Lines remembered: those of a small file, and those that follow each other in a large one."""
# Exports of log stores: time, pod, stream, "words"; and the time of day alone.
_FIELDS = re.compile(r"(?:[,;\t][\w.:/@-]{0,80}){1,6}[,;\t]\"?(?=[\w\[/])")
_FIELD_HOST = re.compile(r"[,;\t]((?!std(?:out|err)\b)[A-Za-z][\w.-]{0,80}\d)(?=[,;\t])")
_TIME_OF_DAY = re.compile(
    r"[\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?(?=[\s|\[-]) {0,4}(?:[|-] )?"
)
_MONTHS_OF_A_YEAR = 12
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Voice(Struct):
    """Who spoke a line, as far as its prefixes say, and the words themselves; all readers of a file share it."""

    text: str
    time_ns: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    task: int | None = None
    """Number by `srun --label`: a rank where there is one task per rank, a node where torchrun runs below."""
    pid: int | None = None
    host: str | None = None
    place: str = ""
    """Among the processes of a server, by the groups that they form: `TP9`, `PP0_TP1`."""
    by_torch: bool = False
    """A line of torch's C++ or Python logging (not of an exception, not of the script)."""
    stamped: bool = False
    """Whether a time stood before the words, with or without its date."""
    speaker: str = ""
    """The launcher's prefixes: on every line of a process, also on the second line of a message."""


class Clock:
    """Turns stamps into nanoseconds; stamps without a year get the newest one not after `newest_ns`."""

    def __init__(self, newest_ns: int, year: int | None = None) -> None:
        self._newest = _EPOCH + timedelta(microseconds=newest_ns // 1000) + timedelta(days=1)
        self._year = year
        self._days: dict[tuple[int, int, int], int | None] = {}
        self.heard: dict[bytes, Voice] = {}
        """The lines heard last: several readers listen to the same."""
        self.prefix: re.Pattern[str] | None = None
        """What the file puts before its lines to tell its ranks apart, where that was learned."""
        self.hosts: frozenset[str] = frozenset()
        """The hosts that such prefixes name: others of their lines begin with the host alone."""
        self.rank_key: str | None = None
        """The field that holds the rank in lines of JSON, where it is the program's own word (`worker`)."""

    def at(self, day: tuple[int, int, int], clock: tuple[str, str, str], fraction: str, zone: str) -> int | None:
        """Year 0 means: not stated."""
        midnight = self._days.get(day, -1)
        if midnight == -1:
            midnight = self._midnight(*day)
            if len(self._days) < 4096:
                self._days[day] = midnight
        hour, minute, second = int(clock[0]), int(clock[1]), int(clock[2])
        if midnight is None or hour > 23 or minute > 59 or second > 60:
            return None
        shift = 0
        if zone and zone != "Z":
            sign = -1 if zone[0] == "-" else 1
            shift = sign * (int(zone[1:3]) * 60 + int(zone[-2:]))
        seconds = hour * 3600 + (minute - shift) * 60 + second
        return midnight + seconds * 10**9 + int((fraction or "0").ljust(9, "0"))

    def _midnight(self, year: int, month: int, day: int) -> int | None:
        stated = year or self._year
        for guess in [stated] if stated else [self._newest.year, self._newest.year - 1]:
            try:
                moment = datetime(guess, month, day, tzinfo=timezone.utc)
            except ValueError:
                continue
            if stated or moment <= self._newest:
                return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
        return None


@lru_cache(maxsize=4)
def clock_of(item: Item) -> Clock:
    """The clock of a file, with the year that it states and the prefix that it uses."""
    with item.open() as stream:
        edges = stream.read(_EDGE)
        if item.size > _EDGE:
            stream.seek(max(_EDGE, item.size - _EDGE))
            edges += b"\n" + stream.read(_EDGE)
    return _taught(Clock(item.mtime_ns, stated_year(edges)), edges, item.label.rpartition("/")[2])


def prefix_of(edges: bytes) -> Clock:
    """A clock that knows the prefixes of these lines, and no times."""
    return _taught(Clock(0), edges)


def _taught(clock: Clock, edges: bytes, file: str = "") -> Clock:
    clock.prefix = learn(edges, file)
    clock.hosts = hosts_named(clock.prefix, edges) if clock.prefix is not None else frozenset()
    clock.rank_key = learn_key(edges)
    return clock


def stated_year(edges: bytes) -> int | None:
    """The newest year that dated stamps in these bytes state."""
    years = [int(match) for match in _YEAR.findall(edges)]
    return max(years, default=None)


def strip_ansi(text: str) -> str:
    return _ANSI.sub("", text) if "\x1b" in text else text


def listen(line: bytes, clock: Clock) -> Voice:
    """Who speaks a line, when, and the words."""
    voice = clock.heard.get(line)
    if voice is None:
        if len(clock.heard) >= _HEARD:
            clock.heard.clear()
        voice = clock.heard[line] = _peeled(line, clock)
    return voice


def _peeled(line: bytes, clock: Clock) -> Voice:
    """Peels the prefixes of a line, at most eight deep."""
    voice = Voice(strip_ansi(line.decode("utf-8", "replace").rstrip("\r\n")))
    if voice.text.startswith(" [20"):  # as Megatron writes it
        voice.text = voice.text[1:]
    if voice.text.startswith("{"):
        _unwrap_json(voice, clock)
    elif voice.text.startswith(_LOGFMT):
        _unwrap_logfmt(voice, clock)
    elif clock.prefix is not None:
        _peel_own(voice, clock, clock.prefix)
    for _ in range(8):
        text = voice.text
        if not text or not (_peel_who(voice) or _peel_when(voice, clock) or _peel_head(voice)):
            break
    if voice.rank is None and "[rank" in voice.text[:140] and (match := _BEHIND_LOGGER.match(voice.text)):
        voice.rank = int(match[1])
    return voice


def _peel_own(voice: Voice, clock: Clock, prefix: re.Pattern[str]) -> None:
    """The prefix that the file has of its own, behind what launchers, levels and times put before it."""
    if voice.text.startswith("[") and TEE.match(voice.text):
        _peel_who(voice)
    if level := LEVEL_FIRST.match(voice.text):
        voice.text = voice.text[level.end() :]
    if _stamped(voice.text) and _peel_when(voice, clock) and voice.text[:1] in ("|", "-", " "):
        voice.text = voice.text.lstrip(" |-")
    if match := prefix.match(voice.text):
        told = match.groupdict()
        voice.rank, voice.host = int(told["rank"]) if "rank" in told else None, told.get("host")
        voice.speaker, voice.text = match[0].strip(), voice.text[match.end() :]
    elif clock.hosts and (token := _FIRST_WORD.match(voice.text)) and token[1] in clock.hosts:
        voice.host, voice.text = token[1], voice.text[token.end() :]


def _stamped(text: str) -> bool:
    """Whether the line begins with a time of day, with or without its date."""
    shapes = (_DATED, _DAY_FIRST, _DOTTED, _DAY, _TIME_OF_DAY)
    return text[:1] in tuple("[(0123456789") and any(shape.match(text) for shape in shapes)


def _peel_who(voice: Voice) -> bool:
    text = voice.text
    first = text[0]
    if first == "<" and (level := _KMSG.match(text)):
        voice.text = text[level.end() :]
        return True
    if first in " \t" and (inner := text.lstrip()).startswith(("[rank", "[RANK")):  # as a code block of a ticket
        voice.text = inner
        return True
    if first == "[":
        match = _bracket(voice, text)
    elif first == "(":
        match = _RAY.match(text)
        if match:
            voice.pid, voice.host = int(match[2]) if match[2] else voice.pid, match[3] or voice.host
            voice.place = place_in(match[0])
            named = match[1] or match[4]
            voice.rank = int(named) if named else voice.rank
    elif first == ":" and (match := _COMPOSER.match(text)):
        voice.rank, voice.pid = int(match[1]), int(match[2])
    elif first == "|" or (first == " " and "|" in text[:26]):
        match = _BUILD.match(text)
    elif first in " 0123456789" and (match := _TASK.match(text)):
        voice.task = int(match[1])
    else:
        match = _tag(voice, text)
    if match is None and "]<std" in text[:160] and (match := _MPI.match(text)):
        voice.rank = int(match[2])
    if match is None:
        return False
    if match.re is not _RANK and match.re is not _BUILD and match.re is not PLACED:
        voice.speaker += match[0].strip()[:200]
    voice.text = text[match.end() :]
    return True


def _peel_head(voice: Voice) -> bool:
    """A rank in brackets behind what a logger or a collector of logs puts first."""
    if voice.rank is not None or voice.by_torch or "rank" not in voice.text[:160]:
        return False
    match = _HEAD_RANK.match(voice.text) if "[rank" in voice.text else None
    host = (_SPEAKS_FOR.match(voice.text) or _BRACKETED.match(voice.text)) if match else None
    named = (match[2] if match else None) or (host[1] if host else None)
    if match is None and voice.time_ns is not None:
        match = _END_OF_BRACKET.match(voice.text) if "]" in voice.text[:80] else None
        match = match or (_LOGURU.match(voice.text) if " - " in voice.text[:120] else None)
        if match is None and "|" in voice.text and (bars := _BARS.match(voice.text)):
            voice.rank, voice.host, voice.text = int(bars[2]), voice.host or bars[1], voice.text[bars.end() :]
            return True
    if match is None:
        return False
    voice.rank, voice.host = int(match[1]), voice.host or named
    voice.speaker += match[0].strip()[:200]
    voice.text = voice.text[match.end() :]
    return True


def _tag(voice: Voice, text: str) -> re.Match[str] | None:
    """The rank or the host that a script or its logger puts before the words."""
    first = text[0]
    if voice.time_ns is not None and first in "DPTEC" and (match := PLACED.match(text)):
        voice.place = place_in(match[1])
        return match
    if voice.rank is None and first in "rR" and (match := _TAGGED.match(text)):
        voice.rank = int(match[1] or match[2])
        return match
    if voice.host is None:
        match = _HOST.match(text) if first in _HOST_BEGINS else None
        match = match or (_OBJECT.match(text) if text.startswith(("pod/", "node/")) else None)
        match = match or (_HOST_TOKEN.match(text) if voice.stamped else None)
        match = match or (_TEST_FAILS.match(text) if ": Test " in text[:90] else None)
        if match:
            voice.host = match[1]
            return match
    return _LEVEL_BEFORE_RANK.match(text) if voice.rank is None and first in "DINWECF" else None


def _bracket(voice: Voice, text: str) -> re.Match[str] | None:
    if match := _RANK.match(text):
        # Inside a message of torch `[Rank 1]` is a rank of the group: left to the message.
        known = voice.by_torch or voice.rank is not None
        if text[1] == "R" and (known or not _is_script_rank(text, match)):
            return None
        voice.rank = int(match[1])
    elif match := TEE.match(text):
        voice.local_rank = int(match[1])
        voice.rank = int(match[2]) if match[2] else voice.rank
    elif match := _POD.match(text):
        voice.host = match[1]
    elif match := _HOST_AND_RANK.match(text):
        voice.host, voice.rank = match[1], int(match[2])
    elif not voice.by_torch:
        if voice.rank is None:
            match = _IN_BRACKET.match(text) or (_BARE.match(text) if voice.time_ns is not None else None)
            voice.rank = int(match[1]) if match else None
        match = match or _OTHER_TAG.match(text)
    return match


def _is_script_rank(text: str, match: re.Match[str]) -> bool:
    """`[Rank 3] step 5` is a script's own prefix; `[Rank 3] Watchdog …` is torch's."""
    rest = text[match.end() : match.end() + 24].lower()
    return rest.startswith(("step", "epoch", "iter", "loss", "train"))


def _peel_when(voice: Voice, clock: Clock) -> bool:
    text = voice.text
    if text[0] in ",;\t" and voice.time_ns is not None and (fields := _FIELDS.match(text)):
        host = _FIELD_HOST.search(fields[0])
        voice.host = voice.host or (host[1] if host else None)
        voice.text = text[fields.end() :].removesuffix('"')
        return True
    if text[0] in "[(012" and (match := _TIME_OF_DAY.match(text)):
        voice.text, voice.stamped = text[match.end() :], True
        return True
    dated = text[0] in "[(0123456789" and text[:2] != "[I" and text[:2] != "[E" and text[:2] != "[W"
    if dated and (found := _date(text, clock)) is not None:
        stamp, rest = found
    elif text[0] not in "[IWEFVADJMNOSC":
        return False
    elif match := _GLOG.match(text):
        stamp = clock.at((0, int(match[2]), int(match[3])), (match[4], match[5], match[6]), match[7], "")
        rest, voice.by_torch = text[match.end() :], True
        if match[8]:
            voice.pid = voice.pid or int(match[8])
    elif match := _GLOG_OLD.match(text):
        stamp, rest, voice.by_torch = None, text[match.end() :], True
    elif match := _SYSLOG.match(text):
        month, day_of_month = _MONTHS.find(match[1][:3]) // 3 + 1, int(match[1][4:6])
        hour, minute, second = match[1][7:].split(":")
        stamp = clock.at((0, month, day_of_month), (hour, minute, second), "", "")
        voice.host, rest = match[2], text[match.end() :]
        voice.pid = int(match[3]) if match[3] else voice.pid
    elif text[0] in "DIWEC" and (match := LEVELED.match(text)):
        stamp = clock.at((0, int(match[1]), int(match[2])), (match[3], match[4], match[5]), match[6] or "", "")
        rest = text[match.end() :]
    else:
        return False
    voice.time_ns, voice.stamped = stamp if stamp is not None else voice.time_ns, stamp is not None or voice.stamped
    voice.text = rest.removeprefix(" ")
    return True


def _date(text: str, clock: Clock) -> tuple[int | None, str] | None:
    """The time that stands in numbers at the beginning, and what is behind it."""
    if match := _DATED.match(text):
        day = (int(match[1]), int(match[2]), int(match[3]))
        stamp = clock.at(day, (match[4], match[5], match[6]), match[7] or "", match[8] or "")
        cri = _CRI.match(text) if " std" in text[:48] else None
        return stamp, text[(cri or match).end() :]
    if match := _DAY_FIRST.match(text):
        return _day_first(match, clock), text[match.end() :]
    if match := _DOTTED.match(text):
        month, day_of_month = int(match[2]), int(match[1])
        swapped = month > _MONTHS_OF_A_YEAR
        day = (int(match[3]), *((day_of_month, month) if swapped else (month, day_of_month)))
        return clock.at(day, (match[4], match[5], match[6]), match[7] or "", ""), text[match.end() :]
    if match := _DAY.match(text):
        clocked = (match[3], match[4], match[5])
        return clock.at((0, int(match[1]), int(match[2])), clocked, match[6] or "", ""), text[match.end() :]
    return None


def _day_first(match: re.Match[str], clock: Clock) -> int | None:
    """The month stands first, unless there is no such month."""
    month, day, year = int(match[1] or match[4]), int(match[2] or match[5]), int(match[3] or f"20{match[6]}")
    if month > _MONTHS_OF_A_YEAR:
        month, day = day, month
    return clock.at((year, month, day), (match[7], match[8], match[9]), match[10] or "", "")


def _unwrap_json(voice: Voice, clock: Clock) -> None:
    """A line of a structured logger or collector: its words, and who and when by its other fields."""
    try:
        record = json.loads(voice.text)
    except (ValueError, RecursionError):
        if cut := _CUT_JSON.match(voice.text):  # the end of the line is missing
            voice.text = strip_ansi(cut[1].replace('\\"', '"'))
        return
    words = next((record[key] for key in _WORDS if isinstance(record.get(key), str)), "")
    rank = next((record[key] for key in (*RANK_KEYS, clock.rank_key) if isinstance(record.get(key), int)), None)
    voice.rank = rank if rank is not None and rank >= 0 else None
    voice.host = next((record[key] for key in _HOSTS if isinstance(record.get(key), str)), None)
    # Short words (`step`) go with the values beside them; those stay as they are.
    if len(words) >= _SENTENCE or "stream" in record:
        stamp = next((record[key] for key in _TIMES if isinstance(record.get(key), str)), "")
        voice.text = stamp + " "
        if stamp:
            _peel_when(voice, clock)
        voice.text = strip_ansi(words.rstrip("\r\n").partition("\n")[0])


def _unwrap_logfmt(voice: Voice, clock: Clock) -> None:
    """The same of `ts=… level=info rank=3 msg="…" step=7`: the words, and the pairs that say neither who nor when."""
    pairs: dict[str, str] = {}
    rest, at = [], 0
    while match := _PAIR.match(voice.text, at):
        at = match.end()
        value = match[2][1:-1].replace('\\"', '"') if match[2].startswith('"') else match[2]
        pairs.setdefault(match[1], value)
        if match[1] not in _PAIRS_OF_NOBODY:
            rest.append(value if match[1] in _WORDS else match[0].strip())
    if at < len(voice.text) or len(pairs) < _LEAST_PAIRS:
        return
    rank, pid = pairs.get("rank", pairs.get("global_rank", "")), pairs.get("pid", "")
    voice.rank = int(rank) if rank.isdecimal() and len(rank) < _DIGITS else None
    voice.pid = int(pid) if pid.isdecimal() and len(pid) < _DIGITS else None
    voice.host = next((pairs[key] for key in _HOSTS if pairs.get(key)), None)
    voice.text = next((pairs[key] for key in (*_TIMES, "t") if pairs.get(key)), "") + " "
    if voice.text != " ":
        _peel_when(voice, clock)
    voice.text = " ".join(rest)
