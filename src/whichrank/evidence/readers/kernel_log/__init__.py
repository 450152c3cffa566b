"""The kernel log: dmesg, journalctl -k, kern.log, syslog, /dev/kmsg."""

from __future__ import annotations

import re

from whichrank.evidence.text.text_file import at_line_start, begins_line, is_text
from whichrank.model.contracts import Item, Reading

NAME = "kernel_log"

_NAMES = ("dmesg", "kern.log", "kernlog", "kernel.log", "kernel_log", "journal", "syslog", "messages", "kmsg")
_LINES = at_line_start(
    rb"(?:<\d{1,3}>)?\[ {0,8}\d{1,8}\.\d{6}\] \S",
    rb"\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\] \S",
    # Collected from many hosts, dmesg --time-format iso, /dev/kmsg, and a log without any time.
    rb"[\w.-]{1,253}: (?:<\d{1,3}>)?\[ {0,8}\d{1,8}\.\d{6}\] \S",
    rb"\d{4}-\d\d-\d\dT[\d:]{8},\d{6}[+-]\d\d:?\d\d \S",
    rb"\d{1,5},\d{1,12},\d{1,18},[^;\n]{1,40};",
    rb"(?:<\d{1,3}>)?Linux version \d",
)
_SHORTENED = at_line_start(rb"\[ {0,8}\d{1,8}\.\d{1,6}\] \S")
"""The time since boot with fewer digits than the kernel prints."""
_KERN_LINES = at_line_start(
    rb"(?:[\w./-]{1,200}: ?| {0,6}\d{1,6}: )?\w{3} {1,2}\d{1,2} [\d:]{8} [\w.-]{1,253} kernel: ",
    rb"(?: {0,6}\d{1,6}: )?(?:\S{19,35}|\d{4}-\d\d-\d\d \d\d:\d\d:\S{2,16}) [\w.-]{1,253} kernel: ",
    rb"kern {0,6}:\w{1,7} {0,6}: \[",
    rb'\{.{0,3000}"_TRANSPORT" ?: ?"kernel"',
)
_ANYWHERE = (
    (b"NVRM: Xid (", None),
    (b"NVRM: fallen off the bus", None),
    (b": SXid", re.compile(rb"nvidia-nvswitch\d{1,4}: SXid")),
    (b'"SYSLOG_IDENTIFIER"', re.compile(rb'"SYSLOG_IDENTIFIER" ?: ?"kernel"')),
    (
        b"VM_L2_PROTECTION_FAULT_STATUS:0x",
        re.compile(rb"amdgpu [\da-fA-F:.]{7,16}: (?:amdgpu: )?\w{0,4}VM_L2_PROTECTION_FAULT_STATUS:0x"),
    ),
)
_SYSLOG = re.compile(rb"^\w{3} {1,2}\d{1,2} [\d:]{8} [\w.-]{1,253} [\w./@-]{1,64}(?:\[\d{1,10}\])?: ", re.MULTILINE)
_FORBIDDEN = (b"Operation not permitted", b"dmesg: read kernel buffer failed")


def sniff(head: bytes, name: str) -> bool:
    """True for text that begins like a kernel log, or is called like one."""
    if not is_text(head):
        return False
    if _has_lines(head):
        return True
    if not name.lower().startswith(_NAMES):
        return False
    if begins_line(_SHORTENED, head) or any(words in head for words in _FORBIDDEN):
        return True
    return b"kernel" in head or _SYSLOG.search(head) is not None


def _has_lines(head: bytes) -> bool:
    """Whether the text has lines as the kernel or its driver prints them."""
    if any(word in head and (shape is None or shape.search(head)) for word, shape in _ANYWHERE):
        return True
    return begins_line(_LINES, head) or (b"kern" in head and begins_line(_KERN_LINES, head))


def telling() -> frozenset[bytes]:
    """Words in lines that are read in detail."""
    from whichrank.evidence.readers.kernel_log.log import WORDS

    return frozenset(WORDS)


def read(item: Item) -> Reading:
    """`KernelEvent`s in the order of the file."""
    head = item.head()
    if any(words in head for words in _FORBIDDEN) and item.size < 4096 and not _has_lines(head):
        return Reading([], "unusable", "the kernel log could not be read on that host: this is no clean log")
    from whichrank.evidence.readers.kernel_log.log import Log  # many patterns, and most evidence has no such log

    return Log(item).read()
