"""The time that a launcher, a logger or a collector puts before a line."""

from __future__ import annotations

import re

from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import LEVEL, Voice
from whichrank.evidence.text.server_prefix import LEVELED

_CRI = re.compile(r"(\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)) std(?:out|err) [FP] ")
_SYSLOG = re.compile(
    rf"([A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d) (?!{LEVEL}\b|[Rr](?:ank)?\d)([\w.-]{{1,253}}) "
    r"[\w./@-]{1,64}(?:\[(\d{1,10})\])?: "
)
_PROCESS = re.compile(r" ([A-Za-z][\w.-]{0,252}) [\w./@-]{1,64}\[(\d{1,10})\]: ")
"""What `journalctl -o short-iso` has behind the time."""
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
# Exports of log stores: time, pod, stream, "words"; and the time of day alone.
_FIELDS = re.compile(r"(?:[,;\t][\w.:/@-]{0,80}){1,6}[,;\t]\"?(?=[\w\[/])")
_FIELD_HOST = re.compile(r"[,;\t]((?!std(?:out|err)\b)[A-Za-z][\w.-]{0,80}\d)(?=[,;\t])")
_TIME_OF_DAY = re.compile(
    r"[\[(]?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?[\])]?(?=[\s|\[-]) {0,4}(?:[|-] )?"
)
_MONTHS_OF_A_YEAR = 12
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"


def stamped(text: str) -> bool:
    """Whether the line begins with a time of day, with or without its date."""
    shapes = (_DATED, _DAY_FIRST, _DOTTED, _DAY, _TIME_OF_DAY)
    return text[:1] in tuple("[(0123456789") and any(shape.match(text) for shape in shapes)


def peel_when(voice: Voice, clock: Clock) -> bool:
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
        if voice.host is None and "]: " in rest[:200] and (process := _PROCESS.match(rest)):
            voice.host, voice.pid, rest = process[1], voice.pid or int(process[2]), rest[process.end() :]
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
