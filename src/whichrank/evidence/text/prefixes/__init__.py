"""What launchers and collectors put before a line: who spoke, where and when."""

from __future__ import annotations

import re

from whichrank.evidence.text.own_prefix import LEVEL_FIRST, TEE
from whichrank.evidence.text.prefixes.ansi import strip_ansi
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.prefixes.when import peel_when, stamped
from whichrank.evidence.text.prefixes.who import BEHIND_LOGGER, peel_head, peel_who
from whichrank.evidence.text.prefixes.wrapped import LOGFMT, unwrap_json, unwrap_logfmt

_FIRST_WORD = re.compile(r"\[?([A-Za-z][\w.-]{0,60})\]?(?:: | ?\| | )")
_RANK_LAST = re.compile(r"\(rank (\d{1,6})\)$")
_HEARD = 64
"""Lines remembered: those of a small file, and those that follow each other in a large one."""


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
        unwrap_json(voice, clock)
    elif voice.text.startswith(LOGFMT):
        unwrap_logfmt(voice, clock)
    elif clock.prefix is not None:
        _peel_own(voice, clock, clock.prefix)
    for _ in range(8):
        text = voice.text
        if not text or not (peel_who(voice) or peel_when(voice, clock) or peel_head(voice)):
            break
    if voice.rank is None and "[rank" in voice.text[:140] and (match := BEHIND_LOGGER.match(voice.text)):
        voice.rank = int(match[1])
    if voice.rank is None and voice.text.endswith(")") and (match := _RANK_LAST.search(voice.text[-16:])):
        voice.rank = int(match[1])
    return voice


def _peel_own(voice: Voice, clock: Clock, prefix: re.Pattern[str]) -> None:
    """The prefix that the file has of its own, behind what launchers, levels and times put before it."""
    if voice.text.startswith("[") and TEE.match(voice.text):
        peel_who(voice)
    if level := LEVEL_FIRST.match(voice.text):
        voice.text = voice.text[level.end() :]
    if stamped(voice.text) and peel_when(voice, clock) and voice.text[:1] in ("|", "-", " "):
        voice.text = voice.text.lstrip(" |-")
    if match := prefix.match(voice.text):
        told = match.groupdict()
        voice.rank, voice.host = int(told["rank"]) if "rank" in told else None, told.get("host")
        if "local" in told and (first := clock.first_ranks.get(told["host"])) is not None:
            voice.local_rank = int(told["local"])
            voice.rank = first + voice.local_rank
        voice.speaker, voice.text = match[0].strip(), voice.text[match.end() :]
    elif clock.hosts and (token := _FIRST_WORD.match(voice.text)) and token[1] in clock.hosts:
        voice.host, voice.text = token[1], voice.text[token.end() :]
