"""`nvidia-smi -q`: the text by its indentation, the XML by its elements; both as paths of words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timezone
from xml.parsers import expat

from whichrank.evidence.readers.nvidia_smi.keys import Draft
from whichrank.model.errors import UnreadableError

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_MOST_GPUS = 4096
_DEEPEST = 40


class Report:
    """What a whole report says: the host's values, and one draft per GPU."""

    def __init__(self) -> None:
        self.driver = self.cuda = ""
        self.taken_ns: int | None = None
        self.gpus: list[Draft] = []
        self.whole = True

    def header(self, name: str, value: str) -> None:
        if name == "driver version":
            self.driver = value[:40]
        elif name == "cuda version":
            self.cuda = value[:40]
        elif name == "timestamp":
            self.taken_ns = moment(value)

    def begin(self, bus_id: str, line: int, quote: str) -> Draft:
        draft = Draft(bus_id=bus_id, line=line, quote=quote)
        if len(self.gpus) < _MOST_GPUS:
            self.gpus.append(draft)
        return draft


def moment(text: str) -> int | None:
    """`Sun Nov 15 00:02:05 2026` or `2026/11/15 00:02:05.123`, taken as UTC."""
    words = " ".join(text.split())
    for form in ("%a %b %d %H:%M:%S %Y", "%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S"):
        try:
            return int(datetime.strptime(words, form).replace(tzinfo=timezone.utc).timestamp()) * 10**9
        except ValueError:
            continue
    return None


def parse_text(lines: Iterable[tuple[int, str]]) -> Report:
    """`nvidia-smi -q`; lines with their numbers, prefixes taken off."""
    report = Report()
    draft: Draft | None = None
    path: list[tuple[int, str]] = []
    for number, line in lines:
        if match := _GPU.match(line.strip()):
            draft, path = report.begin(match[1], number, line.strip()), []
            continue
        name, colon, value = line.partition(" : ")
        if not colon and line.rstrip().endswith(":"):
            name, value = line.rstrip()[:-1], ""
        words = name.strip().lower()
        if not words:
            continue
        indent = len(name) - len(name.lstrip())
        while path and path[-1][0] >= indent:
            path.pop()
        if draft is None:
            report.header(words, value.strip())
            continue
        place = (*(word for _, word in path), words)
        if colon:
            _take(draft, place, value)
        if len(path) < _DEEPEST:
            path.append((indent, words))
    report.whole = not report.gpus or bool(report.gpus[-1].values)
    return report


def _take(draft: Draft, place: tuple[str, ...], value: str) -> None:
    if place[-1] == "process id" and value.strip().isdecimal() and len(draft.pids) < 256:
        draft.pids.append(int(value.strip()[:10]))
    elif place[-1] == "bus id" and draft.bus_id is None:
        draft.bus_id = value.strip()[:24]
    else:
        draft.put_path(place, value)


class _Elements:
    """Handlers of expat; entities are refused, so that nothing grows."""

    def __init__(self, parser: expat.XMLParserType, above: int) -> None:
        self.report = Report()
        self._parser, self._above = parser, above
        self._path: list[str] = []
        self._text: list[str] = []
        self._draft: Draft | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._text = []
        if len(self._path) > _DEEPEST:
            raise UnreadableError("the XML is nested too deeply")
        if name == "gpu" and len(self._path) == 1:
            bus_id = attributes.get("id", "")[:24]
            line = self._parser.CurrentLineNumber + self._above
            self._draft = self.report.begin(bus_id, line, f'<gpu id="{bus_id}">')
            self._path = ["nvidia_smi_log", "gpu"]
            return
        self._path.append(name)

    def data(self, text: str) -> None:
        if len(self._text) < 64:
            self._text.append(text[:400])

    def end(self, name: str) -> None:
        value = "".join(self._text).strip()
        self._text = []
        place = tuple(word.lower().replace("_", " ") for word in self._path[2:])
        if name == "gpu" and len(self._path) == 2:
            self._draft = None
        elif self._draft is not None and place and value:
            if place[-1] == "pid" and value.isdecimal() and len(self._draft.pids) < 256:
                self._draft.pids.append(int(value[:10]))
            else:
                self._draft.put_path(place, value)
        elif self._draft is None and len(self._path) == 2:
            self.report.header(name.lower().replace("_", " "), value)
        if self._path:
            self._path.pop()

    @staticmethod
    def entity(*_: object) -> None:
        raise UnreadableError("the XML declares entities: refused")


def parse_xml(content: bytes, above: int = 0) -> Report:
    """`nvidia-smi -q -x` below so many lines; of a cut file, what stands before the cut."""
    parser = expat.ParserCreate()
    elements = _Elements(parser, above)
    parser.StartElementHandler = elements.start
    parser.EndElementHandler = elements.end
    parser.CharacterDataHandler = elements.data
    parser.EntityDeclHandler = elements.entity
    try:
        parser.Parse(content, True)
    except expat.ExpatError:
        elements.report.whole = False
    return elements.report
