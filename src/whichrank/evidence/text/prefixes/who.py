"""The rank, host or process that a launcher or a script puts before a line."""

from __future__ import annotations

import re

from whichrank.evidence.text.own_prefix import TEE
from whichrank.evidence.text.prefixes.voice import LEVEL, Voice
from whichrank.evidence.text.server_prefix import PLACED, place_in

# torch's `[rank3]:` is global; torchrun's tee prefix `[default3]:` is local, `[default3|11]:` also has the global one.
_RANK = re.compile(r"\[(?:rank|RANK|Rank|global_rank)[ =:]?(\d{1,7})\](:? ?)")
_TAGGED = re.compile(
    rf"(?:(?:rank|RANK)[ _=:-]?(\d{{1,6}})(?:/\d{{1,6}})?(?:[:,]| ?\||(?= {LEVEL}\b)| -(?= ))"
    rf"|[rR](\d{{1,6}})(?:(?= {{1,3}}{LEVEL}\b)| ?\|)) ?"
)
_WITH_PID = re.compile(r"(?:rank|RANK)=(\d{1,6}) pid=(\d{1,10}):? (?=[A-Za-z])")
_IN_BRACKET = re.compile(r"\[[\w. -]{1,60}[ ,:]rank[ _=:]?(\d{1,6})\]:? ?")
_DEEPSPEED = re.compile(rf"\[{LEVEL}\] \[[\w./-]{{1,120}}:\d{{1,6}}:\w{{1,60}}\] rank (\d{{1,6}}): ")
"""What loggers in DeepSpeed's style put before the words of a rank."""
_OTHER_TAG = re.compile(r"\[[\w.:@/-]{1,60}\] (?=\[(?:rank|RANK) ?\d|\[?20\d\d-\d\d-\d\d[T _]\d\d:)")
BEHIND_LOGGER = re.compile(rf"{LEVEL}\b[\w.:<>|/ -]{{0,100}}?\[rank[ _=:]?(\d{{1,6}})\]")
# Behind time, host, logger and level: `gh01 trainer[rank0]: `, `[rank 3/16 @p5-a] `, `- root - INFO - [rank6] `.
_HEAD_RANK = re.compile(
    rf"(?:(?:\||{LEVEL}:?|root|(?=[A-Za-z]{{0,60}}[\d._:@/-])[\w.@:/-]{{1,120}}|\[[\w.@:/-]{{1,80}}\]"
    r"|[A-Za-z]{1,60}(?= {1,3}[-|] )) {1,3}){0,8}"
    r"[A-Za-z_.]{0,30}\[rank[ _=:-]{0,2}(\d{1,6})(?:/\d{1,6})?(?: ?@ ?([\w.-]{1,60}))?\]:? ?"
)
_LOGURU = re.compile(
    r"[A-Z]{4,8}\s{0,8}\| [\w.<>]{1,80}:[\w<>]{1,60}:\d{1,6} - \[?[Rr]ank[ =_]?(\d{1,6})(?:\]:?|:| \|) "
)
"""`INFO     | train:main:17 - rank 3: `."""
_DASHED = re.compile(
    r"(?:- )?(?:[\w.]{1,60} - ){0,3}(?:\[(?:rank|proc) ?(?=\d{1,6}\])|rank ?(?=\d{1,6}(?:: | - )))(\d{1,6})(?:\]|:| -) "
)
"""`- INFO - collate - rank 5: `, as in the examples of transformers, `- rank6 - DEBUG - `, `- [proc 4] `."""
_BARS = re.compile(
    rf"(?:\| {{0,2}})?(?:{LEVEL} {{0,8}}\| {{0,2}})?(?:([A-Za-z][\w.-]{{0,60}}) {{0,4}}\| {{0,2}})?"
    r"rank {0,2}[=:#]? ?(\d{1,6})(?:/\d{1,6})? {0,4}\| ?"
)
"""Columns between bars: `| INFO     | node-c | rank=16 | `."""
_END_OF_BRACKET = re.compile(r"[\w.]{0,60} ?rank ?(\d{1,6})\]:? ?")
"""What is left of `[03/12 06:10:01 trainer rank5]: ` behind its time."""
_SPEAKS_FOR = re.compile(r"([A-Za-z][\w.-]{0,60}) [A-Za-z_.]{1,30}\[rank")
_BRACKETED = re.compile(rf"(?:{LEVEL}:? {{1,3}})?\[((?=[\w.-]{{0,60}}[\d-])[A-Za-z][\w.-]{{1,60}})\] {{1,3}}\[rank")
"""`ERROR [node7] [rank 3] `: the host stands just before the rank."""
_BARE = re.compile(r"\[(\d{1,4})\] (?=[A-Za-z])")
_HOST_TOKEN = re.compile(
    rf"((?![wrpWRP]\d{{1,5}} )[A-Za-z][\w.-]{{0,60}}\d[\w.-]{{0,20}}) "
    rf"(?={LEVEL}\b|\[?rank[ _=]?\d|[rR]\d{{1,6}} {{1,3}}{LEVEL}\b|[a-z][\w./-]{{1,40}}(?:\[\d{{1,10}}\])?: )"
)
_HOST_TIMED = re.compile(
    r"([A-Za-z][\w.-]{0,60}\d[\w.-]{0,20})[ \t]{1,4}"
    r"(?=\d{4}-\d\d-\d\d[T ]\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d )"
)
"""A host before the time, as exports of rsyslog have it."""
_LEVEL_BEFORE_RANK = re.compile(rf"{LEVEL} ?:? {{0,8}}(?:[-|] )?(?=\[?rank[ _=]?\d)")
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
_BUILD = re.compile(r"\s{0,24}\| ")
_INDENTED = re.compile(rf"\s{{1,400}}(?=\[(?:rank|RANK))| {{8,40}}(?={LEVEL}\b {{1,9}}\S)")
"""The code block of a ticket; and rich leaves out a time that is that of the line above."""
_KMSG = re.compile(r"<\d{1,2}>(?=\S)")
"""The level that syslog and the kernel put before a line."""


def peel_who(voice: Voice) -> bool:
    text = voice.text
    first = text[0]
    if first == "<" and (level := _KMSG.match(text)):
        voice.text = text[level.end() :]
        return True
    if first in " \t" and (indented := _INDENTED.match(text)):
        voice.text = text[indented.end() :]
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


def peel_head(voice: Voice) -> bool:
    """A rank in brackets behind what a logger or a collector of logs puts first."""
    if voice.rank is not None or voice.by_torch or "rank" not in voice.text[:160]:
        return False
    match = _HEAD_RANK.match(voice.text) if "[rank" in voice.text else None
    host = (_SPEAKS_FOR.match(voice.text) or _BRACKETED.match(voice.text)) if match else None
    named = (match[2] if match else None) or (host[1] if host else None)
    if match is None and voice.time_ns is not None:
        match = _END_OF_BRACKET.match(voice.text) if "]" in voice.text[:80] else None
        if match is None and " - " in voice.text[:120]:
            match = _LOGURU.match(voice.text) or _DASHED.match(voice.text)
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
    if first in "rR" and (match := _WITH_PID.match(text)):
        voice.rank, voice.pid = int(match[1]), int(match[2])
        return match
    if voice.rank is None and first in "rR" and (match := _TAGGED.match(text)):
        voice.rank = int(match[1] or match[2])
        return match
    if voice.host is None:
        match = _HOST.match(text) if first in _HOST_BEGINS else None
        match = match or (_OBJECT.match(text) if text.startswith(("pod/", "node/")) else None)
        match = match or (_HOST_TIMED.match(text) if "-" in text[:80] or ":" in text[:80] else None)
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
            match = match or _DEEPSPEED.match(text)
            voice.rank = int(match[1]) if match else None
        match = match or _OTHER_TAG.match(text)
    return match


def _is_script_rank(text: str, match: re.Match[str]) -> bool:
    """`[Rank 3] step 5` is a script's own prefix; `[Rank 3] Watchdog …` is torch's."""
    rest = text[match.end() : match.end() + 24].lower()
    return rest.startswith(("step", "epoch", "iter", "loss", "train"))
