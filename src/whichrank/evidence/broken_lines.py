"""What belongs on one line and was printed as several, in one piece again.

Who copies a log from a narrow terminal pastes each long line as several. All that were broken have the same length, the
largest of the text, and what comes behind them begins as no other line does. And torch prints a tensor row by row, with
the device behind the last one.
"""

from __future__ import annotations

import re

_LARGEST = 1 << 16
_NARROWEST = 60
_LEAST = 2
"""Fewer lines of one length may be chance."""
_HEAD = 3
_WHOLE = (b".", b":", b";", b")", b">", b"-", b"=", b"*", b"+", b"|", b"\xe2\x94\x82")
"""With these lines end by themselves."""
_OF_ITS_OWN = re.compile(
    rb"\s|[\[(]?\d{2,4}[-/:]\d\d|\[|[|+#*>$=-]{2}|\w{0,60}(?:Error|Exception|Warning)\b|Traceback|File \"|\Z"
)
"""So a line begins that continues no other."""
_TENSOR = re.compile(
    rb"tensor\((?P<rows>\[[-+\d.e,\[\]\s]{20,20000}?)\],\s{1,16}device='cuda:(?P<device>\d{1,3})'[^()]{0,80}\)"
)
_ROW = re.compile(rb"\[\s{0,40}(-?\d[^\[\]]{1,400})\]")
_NOT_ZERO = re.compile(rb"[1-9]")


def joined(text: bytes) -> bytes:
    """The text with each broken line where it began; the lines that held the rest of it are empty."""
    if len(text) > _LARGEST:
        return text
    return _TENSOR.sub(_one_row, _at_full_width(text)) if b"device='cuda" in text else _at_full_width(text)


def _one_row(found: re.Match[bytes]) -> bytes:
    """A printed tensor by its first row with other values than zeros, if it has one."""
    rows = [b" ".join(row.split()) for row in _ROW.findall(found["rows"] + b"]")]
    if b"\n" not in found[0] or not rows:
        return found[0]
    row = next(filter(_NOT_ZERO.search, rows), rows[0]).replace(b" ..., ", b" ")
    return b"tensor([%s], device='cuda:%s')" % (row, found["device"]) + b"\n" * found[0].count(b"\n")


def _at_full_width(text: bytes) -> bytes:
    lines = text.split(b"\n")
    lengths = [len(line.decode("utf-8", "replace")) for line in lines]
    width = max(lengths)
    broken = [at for at, length in enumerate(lengths[:-1]) if length == width]
    if width < _NARROWEST or len(broken) < _LEAST or any(lines[at].endswith(_WHOLE) for at in broken):
        return text
    behind = {at + 1 for at in broken}
    first = [lines[at] for at in broken if at not in behind]
    if len(set(first)) < len(first):
        return text  # the heading of a table that stands there again
    begin = {line[:_HEAD] for at, line in enumerate(lines) if at not in behind}
    if any(lines[at][:_HEAD] in begin or _OF_ITS_OWN.match(lines[at]) for at in behind):
        return text
    for at in reversed(broken):
        lines[at], lines[at + 1] = lines[at] + lines[at + 1], b""
    return b"\n".join(lines)
