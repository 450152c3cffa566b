"""Lines whose words a structured logger or a collector wrapped into fields."""

from __future__ import annotations

import json
import re

from whichrank.evidence.text.prefixes.ansi import strip_ansi
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.evidence.text.prefixes.when import peel_when
from whichrank.evidence.text.rank_key import RANK_KEYS

_CUT_JSON = re.compile(r'\{"(?:log|message|msg|text)" ?: ?"(.{20,}?)(?:(?<!\\)",|$)')
_WORDS = ("log", "message", "msg", "text", "line", "textPayload", "MESSAGE", "body")
_HOSTS = ("host", "hostname", "node", "pod", "pod_name", "_HOSTNAME")
_TIMES = ("time", "ts", "timestamp", "@timestamp", "asctime", "datetime", "t")
LOGFMT = ("ts=", "t=", "time=", "timestamp=", "level=", "lvl=")
"""How lines of `key=value` loggers begin."""
_PAIR = re.compile(r"([A-Za-z_@][\w.@-]{0,40})=(\"(?:[^\"\\]|\\.){0,4000}\"|[^\s\"]{0,400})(?:\s{1,4}|$)")
_PAIRS_OF_NOBODY = frozenset((*_TIMES, "level", "lvl", "logger", "caller", *_HOSTS, "rank", "global_rank", "pid"))
_SENTENCE = 24
_LEAST_PAIRS, _DIGITS = 3, 8


def unwrap_json(voice: Voice, clock: Clock) -> None:
    """A line of a structured logger or collector: its words, and who and when by its other fields."""
    try:
        record = json.loads(voice.text)
    except (ValueError, RecursionError):
        if cut := _CUT_JSON.match(voice.text):  # the end of the line is missing
            voice.text = strip_ansi(cut[1].replace('\\"', '"'))
        return
    words = next((record[key] for key in _WORDS if isinstance(record.get(key), str)), "")
    rank = next((record[key] for key in (*RANK_KEYS, clock.rank_key) if isinstance(record.get(key), int)), None)
    voice.rank = rank if rank is not None and 0 <= rank < 10 ** (_DIGITS - 1) else None
    voice.host = next((record[key] for key in _HOSTS if isinstance(record.get(key), str)), None)
    whole, voice.text = voice.text, next((record[key] for key in _TIMES if isinstance(record.get(key), str)), "") + " "
    if voice.text != " ":
        peel_when(voice, clock)
    # Short words (`step`) go with the values beside them; those stay as they are.
    is_sentence = len(words) >= _SENTENCE or "stream" in record
    voice.text = strip_ansi(words.rstrip("\r\n").partition("\n")[0]) if is_sentence else whole


def plain(text: str) -> str:
    """The fields of a record without a sentence that say neither who nor when: `step=86 phase=backward`."""
    if not text.startswith("{"):
        return text
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return text
    told = (f"{key}={value}" for key, value in record.items() if key not in _PAIRS_OF_NOBODY)
    return " ".join(told) or text


def unwrap_logfmt(voice: Voice, clock: Clock) -> None:
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
    voice.text = next((pairs[key] for key in _TIMES if pairs.get(key)), "") + " "
    if voice.text != " ":
        peel_when(voice, clock)
    voice.text = " ".join(rest)
