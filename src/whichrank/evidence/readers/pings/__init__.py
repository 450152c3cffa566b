"""What `ping` counted: how many packets to a host were sent, and how many answers came; also in rows of checks that
name both hosts (`gx01->gx03 icmp 56B 3/3, 8972B 0/3`), or begin with one (`gx01 ping -c 5 10.0.0.3: 8972 B 0/5`)."""

from __future__ import annotations

import re

from whichrank.evidence.text.host_of_path import host_of_path
from whichrank.evidence.text.plain_lines import plain_lines, reading_of
from whichrank.evidence.text.text_file import is_text
from whichrank.model.contracts import Item, Reading
from whichrank.model.evidence import Ref
from whichrank.records.host import HostName
from whichrank.records.network import Ping

NAME = "pings"
BESIDE = True

_MOST, _MOST_PINGS, _LONGEST = 16 << 20, 4096, 400
_BEGUN = re.compile(
    r"\s{0,8}PING ([\w.:-]{1,253}) ?\(([\d.a-f:]{2,45})\).{0,60}? (\d{1,5})(?:\(\d{1,5}\))? (?:data )?bytes"
)
_NAMED = re.compile(r"\s{0,8}-{2,4} ([\w.:-]{1,253}) ping statistics -{2,4}")
_COUNTED = re.compile(r"\s{0,8}(\d{1,9}) packets transmitted, (\d{1,9}) (?:packets )?received\b")
_PAIR = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{0,80}) ?(?:->|=>|→) ?(?P<target>[A-Za-z][\w.-]{0,80})")
_OF_SIZE = re.compile(
    r"(?<!\w)(?P<size>\d{2,5}) ?(?:B|bytes)\b[^/\n]{0,24}?(?<![\d.])(?P<got>\d{1,6})/(?P<sent>\d{1,6})(?![\d.])"
)
_TO = re.compile(
    r"(?<!\w)(?P<size>\d{2,5}) ?(?:B|bytes)\b(?: DF)? to (?P<target>[A-Za-z][\w.-]{0,80})"
    r" (?P<got>\d{1,6})/(?P<sent>\d{1,6})(?![\d.])"
)
_FROM = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z][\w.-]{0,80}): [^\n]{0,40}\bping\b")
_BY = re.compile(
    r"(?P<host>[A-Za-z][\w.-]{0,62})[ :|][^\n]{0,60}\bping\b[^\n]{0,40} (?P<target>\d{1,3}(?:\.\d{1,3}){3})"
    r"[: ][^\n]{0,8}?(?=\d{2,5} ?(?:B|bytes)\b)"
)
_HAS = re.compile(
    r"(?P<host>[A-Za-z][\w.-]{0,62})[ :|][^\n]{0,200}?[= ](?P<address>\d{1,3}(?:\.\d{1,3}){3})/\d{1,2}(?!\d)"
)
"""`gx03 … eth1=10.0.0.3/24`: its own address."""
_ROW_WITHIN = re.compile(
    rb"(?i)\bping\b[^\n]{0,60} \d{1,3}(?:\.\d{1,3}){3}[: ][^\n]{0,40}\d ?B[^\n]{0,20} \d{1,6}/\d"
    rb"|(?:->|=>|\xe2\x86\x92)[^\n]{0,200}\b(?:icmp|ping)\b[^\n]{0,100}\d/\d|: [^\n]{0,40}\bping \d[^\n]{0,80}\d/\d"
)


def sniff(head: bytes, name: str) -> bool:  # noqa: ARG001
    """Whether the beginning has the last line of a ping, or a row of a check of pairs."""
    return (b" packets transmitted, " in head or _ROW_WITHIN.search(head) is not None) and is_text(head)


def read(item: Item) -> Reading:
    """One `Ping` for each count, and the names of addresses."""
    found: list[Ping | HostName] = []
    host, target, address, size = host_of_path(item.label), "", "", 0
    for number, line in plain_lines(item, _MOST):
        text = line[:_LONGEST]
        if len(found) >= _MOST_PINGS:
            break
        if "/" in text and _ROW_WITHIN.search(text.encode()) and (pair := _PAIR.search(text)):
            ref = Ref(item.label, f"line {number}", text.strip()[:300], None, pair["host"])
            found += [
                Ping(ref, pair["target"], "", int(n["sent"]), int(n["got"]), int(n["size"]), pair["host"])
                for n in _OF_SIZE.finditer(text, pair.end())
            ]
        elif " to " in text and (own := _FROM.search(text)):
            ref = Ref(item.label, f"line {number}", text.strip()[:300], None, own["host"])
            found += [
                Ping(ref, n["target"], "", int(n["sent"]), int(n["got"]), int(n["size"]), own["host"])
                for n in _TO.finditer(text, own.start())
            ]
        elif "ping" in text and (by := _BY.match(text)):
            ref = Ref(item.label, f"line {number}", text.strip()[:300], None, by["host"])
            found += [
                Ping(ref, by["target"], by["target"], int(n["sent"]), int(n["got"]), int(n["size"]), by["host"])
                for n in _OF_SIZE.finditer(text, by.end())
            ]
        elif "/" in text and (has := _HAS.match(text)):
            ref = Ref(item.label, f"line {number}", text.strip()[:300], None, has["host"])
            found.append(HostName(ref, has["address"], (has["host"],)))
        elif begun := _BEGUN.match(text):
            target, address, size = begun[1], begun[2], int(begun[3])
        elif named := _NAMED.match(text):
            if named[1] != target:
                target, address, size = named[1], "", 0
        elif (counted := _COUNTED.match(text)) and target:
            ref = Ref(item.label, f"line {number}", f"ping {target}: {text.strip()}"[:300], None, host)
            found.append(Ping(ref, target, address, int(counted[1]), int(counted[2]), size, host))
            if address and not target[:1].isdigit():
                found.append(HostName(ref, address, (target,)))
            target, address, size = "", "", 0
    return reading_of(item, found, _MOST) if found else Reading([], "ignored", "no count of a ping in it")
