"""The messages of failure that are known: their shapes by version, what they mean, and what to do.

The data stands in `signatures/*.ini`, one stanza per signature; a stanza with the most particular shape stands
first. Every shape has a literal `anchor`, which a scan of bytes finds, and a pattern that is searched around it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Literal, NamedTuple, cast, get_args

from whichrank.facts import fixes, site
from whichrank.facts.required_words import may_match
from whichrank.model.errors import FactsError
from whichrank.model.grades import Grade

Role = Literal["root", "hint", "consequence", "activity", "harmless"]
Who = Literal["printer", "host", "peer", "nobody"]

FOLDER = Path(__file__).parent / "signatures"
REPORT = "report"
"""The library of what people write beside the output."""
# Words of one sense, as people write them: they stand in the patterns of what is reported.
_SENSES = {
    "@helps@": r"\b(?:work(?:s|ed)|fix(?:es|ed)?|solve[sd]|help(?:s|ed)|resolve[sd]|runs? fine|succeeds?|pass(?:es|ed)"
    r"|it (?:runs|starts|passes)"
    r"|no (?:more |longer )?(?:hang|issue|problem|error|stall)s?|goes away|went away|disappear(?:s|ed)|is gone"
    r"|does the trick)\b",
    "@off@": r"\b(?:disabl(?:e|ed|es|ing)|(?:turn|switch)(?:ed|ing)? off|stopp(?:ed|ing)|off)\b",
    "@fails@": r"\b(?:hangs?|hung|hanging|stuck|stalls?|stalled|freezes|dead-?locks?|blocks (?:for ?ever|indefinitely)"
    r"|never (?:returns?|ends?|exits?|finish(?:es)?)|does not (?:return|exit|end|finish|terminate))\b",
    "@rank@": r"\b(?:(?:one|some|another|only one|a single|the (?:first|last|other)) (?:rank|GPU|process|worker|node)"
    r"|rank ?\d{1,5}|GPU ?\d{1,4}|node ?\d{1,4}|the (?:main|master) process)\b",
}
_DENIES = re.compile(
    r"(?i:\b(?:no|not|without|never|zero|neither|nor|any)\b|n['’]t\b)[\w ,]{0,8}$|(?<![\d.,])0(?:\.0{1,6})? ?%? {0,2}$"
)
_DENIED = re.compile(
    r"(?i:\b(?:not|never|cannot|neither|nor)\b|n['’]t\b|\bno (?:effect|difference|luck|help|change)\b)"
)
_GRAM = 3
"""Letters by which anchors are looked up."""
BEFORE, BEHIND = 256, 1024
"""The pattern may reach this far before and behind its anchor."""
_SHORTEST = 6
"""Characters of an anchor of a plug-in."""


WINDOWS = 8
"""Of a line that holds the anchor again and again, so many places are looked at."""


class Signature(NamedTuple):
    """One failure, as it is printed."""

    id: str
    library: str
    versions: str
    """In which versions the shape was seen: "2.16..2.23", "2.27+", "all"."""
    role: Role
    """root: it tells the cause. hint: it makes the cause likelier. consequence: it follows from another failure.
    activity: what the job was doing. harmless: it is printed by healthy jobs too."""
    cause: str
    grade: Grade
    """What the message alone does for the cause."""
    who: Who
    """Who is meant: the rank that prints it, its host, the other side that it names, or nobody."""
    also: tuple[str, ...]
    """Other causes that the same message fits, the likeliest first."""
    anchors: tuple[str, ...]
    """Literals; a line without any of them does not hold the message. Without a pattern they are what is printed."""
    pattern: str
    title: str
    meaning: str
    fix: str
    source: str
    examples: tuple[str, ...]
    ahead: int = 0
    """How many minutes later what it announces may come: until then the job goes on."""
    asked_for: bool = False
    """Harmless by itself, and looked for all the same: a rule compares what several ranks or hosts say."""

    @property
    def shape(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    def affirmed(self, line: str) -> bool:
        """Whether a line says this, and does not deny it: "no packet loss", "another version did not help"."""
        found = self.search(line)
        if found is None:
            return False
        before = line[max(0, line.find(found[0]) - 24) : line.find(found[0])]
        return not _DENIES.search(before) and not _DENIED.search(found.groupdict().get("said") or "")

    def search(self, line: str) -> re.Match[str] | None:
        """The message in this line, if it is there."""
        if not may_match(self.pattern, line):
            return None
        for anchor in self.anchors:
            at, left = line.find(anchor), WINDOWS
            while at >= 0 and left:
                left -= 1
                begin = max(0, at - BEFORE)
                if found := self.shape.search(line[begin : at + BEHIND]):
                    return found
                at = line.find(anchor, at + BEHIND)
        return None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@cache
def signatures() -> dict[str, Signature]:
    """All signatures by their id, in the order in which they are tried."""
    known, of_people = built_in(), [s for s in built_in().values() if s.library == REPORT]
    printed = {name: s for name, s in known.items() if s.library != REPORT}
    return printed | added() | {s.id: s for s in of_people} if added() else known


@cache
def built_in() -> dict[str, Signature]:
    """Those that come with whichrank."""
    found: dict[str, Signature] = {}
    for path in sorted(FOLDER.glob("*.ini")):
        for name, fields, line in _stanzas(path):
            if name in found:
                raise FactsError(f"{path.name}:{line}: the signature {name} is there twice")
            found[name] = _signature(name, fields, f"{path.name}:{line}")
    return found


@cache
def listed() -> frozenset[str]:
    """The ids of those that list what vendors print, many shapes of one kind in each: `tables_*.ini`."""
    return frozenset(name for path in FOLDER.glob("tables_*.ini") for name, _, _ in _stanzas(path))


@cache
def added() -> dict[str, Signature]:
    """Those of plug-ins, after the built-in ones, which keep their words; a file that can't be used is left out."""
    known, found = built_in(), dict[str, Signature]()
    for plugin in site.plugins():
        for path in plugin.signatures():
            try:
                own = {signature.id: signature for signature in read_signatures(path)}
            except FactsError:
                continue  # told by `flows.plugins.left_out`
            found |= {name: signature for name, signature in own.items() if name not in known and name not in found}
    return found


def read_signatures(path: Path) -> list[Signature]:
    """The signatures in a file of a plug-in; `FactsError` where one of them can't be used."""
    from whichrank.facts.safe_patterns import complaint
    from whichrank.facts.taxonomy import causes

    try:
        stanzas = list(_stanzas(site.bounded(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise FactsError(f"{path.name}: {error}") from error
    found = []
    for name, fields, line in stanzas:
        signature = _signature(name, fields, f"{path.name}:{line}")
        wrong = complaint(signature.pattern)
        unknown = [c for c in (signature.cause, *signature.also) if c and c not in causes()]
        if unknown and not wrong:
            wrong = f"the cause {unknown[0]} is neither in the taxonomy nor in causes.csv"
        if min(map(len, signature.anchors)) < _SHORTEST and not wrong:
            wrong = f"an anchor needs at least {_SHORTEST} characters: it is searched for in every line"
        if wrong:
            raise FactsError(f"{path.name}:{line}: the signature {name}: {wrong}")
        found.append(signature)
    return found


def forget() -> None:
    """Read the tables again: other plug-ins are in use."""
    for function in (signatures, added, by_anchor, ids_of, order, _by_gram, names_a_cause):
        function.cache_clear()
    for name in ("anchors", "harmless", "words"):
        KNOWN.__dict__.pop(name, None)
    KNOWN.edition += 1


@cache
def ids_of(cause: str, roles: tuple[Role, ...]) -> tuple[str, ...]:
    """The signatures that speak for a cause in one of these roles."""
    return tuple(s.id for s in signatures().values() if s.cause == cause and s.role in roles)


@cache
def by_anchor() -> dict[str, tuple[Signature, ...]]:
    """The signatures that each literal may stand for."""
    found: dict[str, list[Signature]] = {}
    for signature in signatures().values():
        for anchor in signature.anchors:
            found.setdefault(anchor, []).append(signature)
    return {anchor: tuple(items) for anchor, items in found.items()}


def recognise(line: str) -> list[tuple[Signature, re.Match[str]]]:
    """Every message that stands in a line; where two claim the same words the first of the table has them."""
    taken: list[tuple[int, int]] = []
    found = []
    for signature in _fitting(line):
        if (match := signature.search(line)) is None:
            continue
        start = line.find(match[0])
        span = (start, start + len(match[0]))
        if all(span[1] <= begin or end <= span[0] for begin, end in taken):
            taken.append(span)
            found.append((signature, match))
    return found


def is_printed(line: str) -> bool:
    """Whether a message of a program stands in the line, not only words of people."""
    maybe = any(signature.library != REPORT and signature.search(line) for signature in _fitting(line))
    return maybe and any(signature.library != REPORT for signature, _ in recognise(line))


@lru_cache(maxsize=8192)
def names_a_cause(text: str) -> bool:
    """Whether a message (of an exception, say) is the root of a cause, and likelier of this one than of all others."""
    return any(_tells(s) for line in text[:4096].split("\n") if _may_tell(line) for s, _ in recognise(line))


def _stands_aside(signature: Signature) -> bool:
    return signature.role == "harmless" and not signature.asked_for


def _tells(signature: Signature) -> bool:
    return signature.role == "root" and signature.grade >= Grade.SUPPORTS


def _may_tell(line: str) -> bool:
    """Whether it is worth looking who has which words of the line: most lines have none that tell."""
    return any(_tells(signature) and signature.search(line) for signature in _fitting(line))


def _fitting(line: str) -> list[Signature]:
    """The signatures with an anchor in the line, in the order of the table."""
    grams = _by_gram()
    near = grams.keys() & {"", *_grams(line)}
    found = {s.id: s for gram in near for anchor in grams[gram] if anchor in line for s in by_anchor()[anchor]}
    return sorted(found.values(), key=lambda signature: order()[signature.id])


@cache
def order() -> dict[str, int]:
    """The place of each signature in the table, by its id."""
    return {name: number for number, name in enumerate(signatures())}


@cache
def _by_gram() -> dict[str, list[str]]:
    """The anchors by three letters that each of them has, those that the fewest others have; short ones by nothing."""
    uses = Counter(gram for anchor in by_anchor() for gram in _grams(anchor))
    found: dict[str, list[str]] = {}
    for anchor in by_anchor():
        found.setdefault(min(_grams(anchor), key=lambda gram: uses[gram], default=""), []).append(anchor)
    return found


def _grams(text: str) -> list[str]:
    return [text[at : at + _GRAM] for at in range(len(text) - _GRAM + 1)]


_NEEDED = ("library", "title", "anchor", "meaning", "source")


def _signature(name: str, fields: dict[str, str], place: str) -> Signature:
    known = dict(fields)
    try:
        anchors = tuple(known.pop("anchor").split("\n"))
        signature = Signature(
            id=name,
            library=known.pop("library"),
            versions=known.pop("versions", "all"),
            role=cast(Role, known.pop("role", "root")),
            cause=known.pop("cause", ""),
            grade=Grade[known.pop("grade", "supports").upper()],
            who=cast(Who, known.pop("who", "printer")),
            also=tuple(cause.strip() for cause in known.pop("also", "").split(",") if cause.strip()),
            anchors=anchors,
            examples=tuple(known.pop("example").split("\n") if "pattern" in known else _own_words(known, anchors)),
            pattern=_spelt(known.pop("pattern", "|".join(map(re.escape, anchors)))),
            title=known.pop("title"),
            meaning=known.pop("meaning"),
            fix=known.pop("fix", "") or " ".join(fixes.fix(fields.get("cause", ""))),
            source=known.pop("source"),
            ahead=int(known.pop("ahead", "0")),
            asked_for=known.pop("asked_for", "no") == "yes",
        )
    except KeyError as error:
        needed = (*_NEEDED, "example") if "pattern" in fields else _NEEDED
        lacks = ", ".join(field for field in needed if field not in fields)
        raise FactsError(f"{place}: the signature {name} lacks {lacks}") from error
    except ValueError as error:
        raise FactsError(f"{place}: the signature {name} has a value that can't be read: {error}") from error
    if known or signature.role not in get_args(Role) or signature.who not in get_args(Who):
        raise FactsError(f"{place}: the signature {name} has fields or values that nobody reads: {sorted(known)}")
    return signature


def _own_words(fields: dict[str, str], anchors: tuple[str, ...]) -> Sequence[str]:
    """The examples; of a message that is told by its literals alone the literals, where none are given."""
    return fields.pop("example").split("\n") if "example" in fields else anchors


def _spelt(pattern: str) -> str:
    """The pattern with its words of a sense written out."""
    for name, words in _SENSES.items():
        pattern = pattern.replace(name, words)
    return pattern


def _stanzas(path: Path) -> Iterator[tuple[str, dict[str, str], int]]:
    """`[id]`, then `key = value`; lines that begin with a blank continue the value."""
    name, fields, begun, key = "", dict[str, str](), 0, ""
    for number, raw in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        line = raw.rstrip()
        if not line or line.startswith("#"):
            continue
        if line[0] == " " and key:
            fields[key] = f"{fields[key]}\n{line.strip()}" if fields[key] else line.strip()
        elif line[0] == "[" and line[-1] == "]":
            if name:
                yield name, fields, begun
            name, fields, begun, key = line[1:-1], {}, number, ""
        elif name and " =" in line:
            key, _, value = line.partition(" =")
            if key in fields:
                raise FactsError(f"{path.name}:{number}: {key} is there twice")
            fields[key] = value.strip()
        else:
            raise FactsError(f"{path.name}:{number}: neither a stanza nor a field: {line[:60]}")
    if name:
        yield name, fields, begun


class Known:
    """The table as a scan of bytes needs it."""

    edition: int = 0
    """Another number after other plug-ins came into use: what is made of the table is made anew."""

    @cached_property
    def anchors(self) -> dict[bytes, tuple[Signature, ...]]:
        """Literals of output."""
        return _literals(by_people=False)

    @cached_property
    def harmless(self) -> frozenset[bytes]:
        """Those that stand in harmless lines alone: nobody needs to look for them, but they may stand beside others."""
        return frozenset(a for a, items in self.anchors.items() if all(map(_stands_aside, items)))

    @cached_property
    def words(self) -> dict[bytes, tuple[Signature, ...]]:
        """Literals of what people write: short, and looked for in short texts only."""
        return _literals(by_people=True)


def _literals(*, by_people: bool) -> dict[bytes, tuple[Signature, ...]]:
    found = {
        anchor.encode(): tuple(s for s in items if (s.library == REPORT) == by_people)
        for anchor, items in by_anchor().items()
    }
    return {anchor: items for anchor, items in found.items() if items}


KNOWN = Known()
