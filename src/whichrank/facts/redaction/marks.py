"""What was replaced is put aside while the rest is looked at: no pattern sees its own or another's replacement."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

FIRST, LAST = 0xF0000, 0x10FFFF
"""Planes 15 and 16, for private use: no text has them, and no pattern matches them."""
MARK = re.compile(f"[{chr(FIRST)}-{chr(LAST)}]")


class Marks:
    """Replacements in one text: each distinct one is a single private character until `restored`."""

    def __init__(self, text: str, counts: Counter[str]) -> None:
        self.text = _spaced(MARK.sub("?", text))
        self.counts = counts
        self._absent: set[str] = set()
        """Words that are not in the text: replacing adds none."""
        self._shown: list[str] = []
        self._places: dict[str, str] = {}

    def put(self, kind: str, replacement: str) -> str:
        """Count one replacement; returns what stands for it until the end."""
        self.counts[kind] += 1
        mark = self._places.get(replacement)
        if mark is None:
            if len(self._shown) > LAST - FIRST:
                return replacement
            mark = self._places[replacement] = chr(FIRST + len(self._shown))
            self._shown.append(replacement)
        return mark

    def sub(
        self,
        pattern: re.Pattern[str],
        change: Callable[[re.Match[str]], str | None],
        words: Iterable[str] = (),
        *,
        hint: re.Pattern[str] | None = None,
        within_word: bool = False,
    ) -> None:
        """Replace matches; None leaves one as it is. With `words`, only near one of them (in lower case).

        With a `hint`, only within the words of the text where that is found; `within_word`: so for `words` too."""
        if hint is not None:
            self.replace(found_around(pattern, self.text, hint), change)
        elif not words:
            self.replace(pattern.finditer(self.text), change)
        elif there := self.there(words):
            self.replace(found(pattern, self.text, there, within_word=within_word), change)

    def there(self, words: Iterable[str]) -> list[str]:
        """Those of the words that are in the text."""
        some = [word for word in words if word not in self._absent]
        lines = _lines_of(self.text)
        there = [word for word in some if lines.has(word)]
        self._absent.update(some if not there else {*some} - {*there})
        return there

    def replace(self, matches: Iterable[re.Match[str]], change: Callable[[re.Match[str]], str | None]) -> None:
        """Replace these matches, which stand in the order of the text."""
        text, pieces, end = self.text, [], 0
        for match in matches:
            new = change(match)
            if new is not None:
                pieces += [text[end : match.start()], new]
                end = match.end()
        if pieces:
            self.text = "".join([*pieces, text[end:]])

    def restored(self) -> str:
        return MARK.sub(lambda match: self._shown[ord(match.group()) - FIRST], self.text).replace(_TAB, "\\t")


_TAB = "\x1f"
"""A space to every pattern, and in no text."""
_ESCAPED_TABS = re.compile(r"(?:(?<=[=>\s])|(?<=\w\w:)|(?<=\\t))\\t")


def _spaced(text: str) -> str:
    """With the tabs between names and values as spaces, where a text in JSON spells them; a path keeps its own."""
    return _ESCAPED_TABS.sub(_TAB, text.replace(_TAB, " ")) if "\\t" in text else text.replace(_TAB, " ")


Span = tuple[int, int]


class _Lines:
    """The lines with a word: many patterns look for the same words in the same text."""

    def __init__(self, text: str) -> None:
        self.text, low = text, text.lower()
        # There is one letter whose lower case is two.
        self.low = low if len(low) == len(text) else text.replace("\u0130", "I").lower()
        self.having = cache(self._having)
        self.has = cache(self._has)
        self._threes: set[tuple[str, str, str]] | None = None
        self.places = cache(self._places)

    def _has(self, word: str) -> bool:
        """By three letters of it first: looking through a long text for each of hundreds of words takes longer."""
        if len(self.low) > _LONG and len(word) > 2:
            if self._threes is None:
                self._threes = set(zip(self.low, self.low[1:], self.low[2:], strict=False))
            if (word[0], word[1], word[2]) not in self._threes or tuple(word[-3:]) not in self._threes:
                return False
        return word in self.low

    def _having(self, word: str) -> list[Span]:
        text, low = self.text, self.low
        spans, place = [], low.find(word)
        while place >= 0:
            # With the line before, where a list names what this line gives the value of.
            start = max(text.rfind("\n", 0, max(text.rfind("\n", 0, place), 0)) + 1, place - BEFORE)
            end = line_end(text, place)
            spans.append((start, end))
            place = low.find(word, max(end - BEFORE, place + 1) if end - place >= BEHIND else end)
        return spans

    def _places(self, word: str) -> list[int]:
        found, place = [], self.low.find(word)
        while place >= 0:
            found.append(place)
            place = self.low.find(word, place + 1)
        return found


@lru_cache(maxsize=2)
def _lines_of(text: str) -> _Lines:
    return _Lines(text)


def line_end(text: str, place: int) -> int:
    """Where the line ends, or so far as a match may reach."""
    end = text.find("\n", place)
    return min(len(text) if end < 0 else end + 1, place + BEHIND)


BEFORE, BEHIND = 200, 16_384
"""How far a match may reach from a word that must be in it: within its line, or so many characters."""
_LEFT, _RIGHT = 64, 400
"""How far it may reach from there where it has no spaces."""
_LONG = 1 << 13
_SPACE = re.compile(r"\s")


def found(
    pattern: re.Pattern[str], text: str, words: Iterable[str] = (), *, within_word: bool = False
) -> Iterator[re.Match[str]]:
    """Matches, looked for only near the words: a search for words costs a hundredth of that for a pattern."""
    words = tuple(words)
    if not words:
        yield from pattern.finditer(text)
        return
    if within_word:
        spans = joined(sorted(_word_around(text, place, place + 1) for place in places_of(text, words)))
    else:
        spans = windows(text, words)
    for start, end in spans:
        yield from pattern.finditer(text, start, end)


def found_around(pattern: re.Pattern[str], text: str, hint: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Matches without spaces in them, of which every one has a hint in it that is found quickly."""
    for start, end in joined(sorted(_word_around(text, *match.span()) for match in hint.finditer(text))):
        yield from pattern.finditer(text, start, end)


def found_at(pattern: re.Pattern[str], text: str, starts: Iterable[int], *, lines: int = 1) -> Iterator[re.Match[str]]:
    """Matches that begin at one of these places, ascending, and end in the same line or so many."""
    behind = 0
    for start in starts:
        end = start
        for _ in range(lines):
            end = line_end(text, end)
        if start >= behind and (match := pattern.match(text, start, end)):
            yield match
            behind = match.end()


def places_of(text: str, words: Iterable[str]) -> list[int]:
    """Where one of the words (in lower case) begins, ascending."""
    lines = _lines_of(text)
    return sorted({place for word in words for place in lines.places(word)})


def _word_around(text: str, start: int, end: int) -> Span:
    """From the space before it to the space behind it; of a monstrous word only a part."""
    left = max(0, start - _LEFT)
    begin = max(text.rfind(" ", left, start), text.rfind("\n", left, start), left - 1) + 1
    space = _SPACE.search(text, end, end + _RIGHT)
    return begin, space.start() if space else min(len(text), end + _RIGHT)


def windows(text: str, words: Iterable[str]) -> list[Span]:
    """The lines with one of these words in them, joined where they touch; of a monstrous line only a part."""
    lines = _lines_of(text)
    return joined(sorted(span for word in words for span in lines.having(word)))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that touch as one."""
    whole: list[Span] = []
    for start, end in spans:
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(end, whole[-1][1]))
        else:
            whole.append((start, end))
    return whole
