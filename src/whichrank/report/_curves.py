"""Curves over sizes on two logarithmic axes: as SVG for pages, as PNG for chats. No library is needed."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

Points = Sequence[tuple[float, float]]
_COLOURS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#17becf", "#7f7f7f")
_WIDE, _HIGH, _LEFT, _BOTTOM, _TOP, _RIGHT = 820, 420, 70, 50, 15, 230


def series(results: Iterable[Any], earlier: Iterable[Any] = ()) -> dict[str, list[tuple[float, float]]]:
    """Collective and what tells it from others -> (bytes, busbw); what an earlier run measured too stands beside it."""
    now = [r for r in results if r.busbw_gbs and r.bytes]
    keys, counts = {r.key for r in now}, {r.ranks for r in now}
    before = [r for r in earlier if r.busbw_gbs and r.key in keys]
    found: dict[str, list[tuple[float, float]]] = {}
    for r, words in [*((r, "") for r in now), *((r, ", earlier") for r in before)]:
        name = r.collective + (f", {r.ranks} ranks" if len(counts) > 1 else "") + (", in place" if r.in_place else "")
        found.setdefault(name + words, []).append((float(r.bytes), float(r.busbw_gbs)))
    return {name: sorted(points) for name, points in found.items()}


class _Axes:
    """From values to places on the page."""

    def __init__(self, curves: Mapping[str, Points]) -> None:
        xs = [x for points in curves.values() for x, _ in points] or [1.0, 10.0]
        ys = [y for points in curves.values() for _, y in points] or [1.0, 10.0]
        self.x = floor(log10(min(xs))), max(ceil(log10(max(xs))), floor(log10(min(xs))) + 1)
        self.y = floor(log10(min(ys))), max(ceil(log10(max(ys))), floor(log10(min(ys))) + 1)

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (log10(x) - self.x[0]) / (self.x[1] - self.x[0])
        up = (log10(y) - self.y[0]) / (self.y[1] - self.y[0])
        return _LEFT + across * (_WIDE - _LEFT - _RIGHT), _HIGH - _BOTTOM - up * (_HIGH - _BOTTOM - _TOP)

    def ticks(self) -> tuple[list[tuple[float, str]], list[tuple[float, str]]]:
        """Places of the grid with their words, across and up."""
        least = 10.0 ** self.x[0], 10.0 ** self.y[0]
        return (
            [(self.place(value, least[1])[0], _short(value)) for value in _round_values(*self.x)],
            [(self.place(least[0], value)[1], _short(value)) for value in _round_values(*self.y)],
        )


def _round_values(low: int, high: int) -> list[float]:
    """Powers of ten; with 2 and 5 between them where there are few."""
    steps = (1, 2, 5) if high - low <= 2 else (1,)
    return [step * 10.0**power for power in range(low, high) for step in steps] + [10.0**high]


def svg(curves: Mapping[str, Points], across: str, up: str) -> str:
    axes = _Axes(curves)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDE}" height="{_HIGH}" font-family="sans-serif">']
    across_ticks, up_ticks = axes.ticks()
    for x, words in across_ticks:
        parts.append(f'<path d="M{x:.1f} {_TOP}V{_HIGH - _BOTTOM}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.1f}" y="{_HIGH - _BOTTOM + 16}" text-anchor="middle">{words}</text>')
    for y, words in up_ticks:
        parts.append(f'<path d="M{_LEFT} {y:.1f}H{_WIDE - _RIGHT}" stroke="#ddd"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{words}</text>')
    for number, (name, points) in enumerate(curves.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        places = [axes.place(*point) for point in points]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{way}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        parts.append(
            f'<text x="{_WIDE - _RIGHT + 8}" y="{_TOP + 14 + 16 * number}" fill="{colour}">{escape(name)}</text>'
        )
    parts.append(
        f'<text x="{(_WIDE - _RIGHT + _LEFT) / 2}" y="{_HIGH - 10}" text-anchor="middle">{escape(across)}</text>'
    )
    parts.append(
        f'<text transform="translate(14 {_HIGH / 2}) rotate(-90)" text-anchor="middle">{escape(up)}</text></svg>'
    )
    return "".join(parts)


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


# -- PNG


def png(curves: Mapping[str, Points], across: str, up: str) -> bytes:
    """The same picture as pixels."""
    axes, canvas = _Axes(curves), _Canvas(_WIDE, _HIGH)
    grey, black = (221, 221, 221), (0, 0, 0)
    across_ticks, up_ticks = axes.ticks()
    for x, words in across_ticks:
        canvas.line((x, _TOP), (x, _HIGH - _BOTTOM), grey)
        canvas.text(int(x) - 3 * len(words), _HIGH - _BOTTOM + 8, words, black)
    for y, words in up_ticks:
        canvas.line((_LEFT, y), (_WIDE - _RIGHT, y), grey)
        canvas.text(_LEFT - 6 - 6 * len(words), int(y) - 4, words, black)
    for number, (name, points) in enumerate(curves.items()):
        colour = _rgb(_COLOURS[number % len(_COLOURS)])
        places = [axes.place(*point) for point in points]
        for a, b in pairwise(places):
            canvas.line(a, b, colour, 2)
        for x, y in places:
            canvas.line((x - 2, y - 2), (x + 2, y - 2), colour, 5)
        canvas.text(_WIDE - _RIGHT + 8, _TOP + 6 + 14 * number, name, colour)
    canvas.text((_WIDE - _RIGHT) // 2, _HIGH - 18, across, black)
    canvas.text(4, 2, up, black)
    return canvas.encoded()


def _rgb(word: str) -> tuple[int, int, int]:
    return int(word[1:3], 16), int(word[3:5], 16), int(word[5:7], 16)


class _Canvas:
    def __init__(self, wide: int, high: int) -> None:
        self.wide, self.high = wide, high
        self.pixels = bytearray(b"\xff" * (wide * high * 3))

    def dot(self, x: int, y: int, colour: tuple[int, int, int]) -> None:
        if 0 <= x < self.wide and 0 <= y < self.high:
            at = (y * self.wide + x) * 3
            self.pixels[at : at + 3] = bytes(colour)

    def line(
        self, a: tuple[float, float], b: tuple[float, float], colour: tuple[int, int, int], thick: int = 1
    ) -> None:
        steps = int(max(abs(b[0] - a[0]), abs(b[1] - a[1]))) + 1
        for step in range(steps + 1):
            x, y = (round(a[i] + (b[i] - a[i]) * step / steps) for i in (0, 1))
            for extra in range(thick):
                self.dot(x, y + extra, colour)

    def text(self, x: int, y: int, words: str, colour: tuple[int, int, int]) -> None:
        for number, letter in enumerate(words):
            for row, bits in enumerate(_FONT.get(letter) or _FONT.get(letter.lower()) or _FONT["?"]):
                for column in range(5):
                    if bits >> (4 - column) & 1:
                        self.dot(x + number * 6 + column, y + row, colour)

    def encoded(self) -> bytes:
        rows = b"".join(b"\0" + self.pixels[y * self.wide * 3 : (y + 1) * self.wide * 3] for y in range(self.high))
        head = struct.pack(">IIBBBBB", self.wide, self.high, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
            for name, data in chunks
        )


def _glyphs(rows: str) -> dict[str, tuple[int, ...]]:
    """Seven rows of five bits for each letter, in base 32."""
    digits = "0123456789abcdefghijklmnopqrstuv"
    return {word[0]: tuple(digits.index(c) for c in word[1:]) for word in rows.split()}


_FONT = _glyphs(
    "0ehjlphe 14c4444e 2eh1248v 3v2421he 426aiv22 5vgu11he 668guhhe 7v124888 8ehhehhe 9ehhf12c "
    "a00e1fhf bggmphhu c00eghhe d11djhhf e00ehvge f69s8888 g00fhf1e hggmphhh i40c444e j20622ic kgikokih lc44444e "
    "m00qlllh n00mphhh o00ehhhe p00uhugg q00fhf11 r00mpggg s00ege1u t88s8896 u00hhhjd v00hhha4 w00hhlla x00ha4ah "
    "y00hhf1e z00v248v Buhhuhhu Gehgnhhf Mhrllhhh (2488842 )8422248 _000000v -000v000 ,00000c4 .00000cc /122448g "
    ":0cc0cc0 ?eh12404"
)
_FONT[" "] = (0,) * 7
