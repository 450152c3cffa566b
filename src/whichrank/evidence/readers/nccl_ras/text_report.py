"""RAS reports and events as text, of 2.24 to 2.32."""

from __future__ import annotations

import re

from msgspec.structs import replace

from whichrank.records.ras import (
    RasEvent,
    RasGroup,
    RasJob,
    RasMismatch,
    RasProblem,
    RasProcess,
    RasRank,
    RasReport,
    RasValue,
    Trouble,
)

_VERSION = re.compile(r"NCCL version \S{1,60} compiled with CUDA")
_NUMBERS = re.compile(r"\s*(\d{1,9})((?:\s{1,40}\d{1,9}){1,4})$")
_GROUP = re.compile(
    r"\s*(\d{1,9})\s{1,20}(\d{1,9})\s{1,20}\d{1,9}\s{1,20}\d{1,9}(?:-\d{1,9})?"
    r"\s{1,20}(\d{1,9})\s{1,20}\d{1,9}\s{1,20}([A-Z]{1,20})\s{1,20}([A-Z,]{1,60})$"
)
_COMM = re.compile(r"#\d{1,9}-\d{1,9} \(([0-9a-f]{1,16})\) (INCOMPLETE|ERROR|MISMATCH)$")
_TOPIC = re.compile(r"Communicator ranks have different (?:(status)|(\w{1,40}) operation counts)$")
_MANY = re.compile(
    r"(\d{1,9}) ranks (?:have status (\w{1,20})|have launched up to operation (\d{1,18})"
    r"|have (not) launched any operations|reported (.{1,80}))$"
)
_RANK = re.compile(
    r"Rank (\d{1,9})(?: has status (\w{1,20})| has launched up to operation (\d{1,18})"
    r"| has (not) launched any operations| reported ([^-]{1,80}))? -- "
    r"(?:GPU (\d{1,4})(?: \(NVML \d{1,4}\))? managed by process (\d{1,10}) on node (\S{1,80})"
    r"|\[process information not found\])"
)
_PROCESS = re.compile(r"Process (\d{1,10}) on node (\S{1,80}) managing GPUs? ([\d, ()NVML]{1,200})")
_MISSING_RANKS = re.compile(r"The missing ranks?(?:\(s\))?: ([\d,]{1,4000})")
_COUNTED = re.compile(
    r"Missing communicator data from (\d{1,9})|(\d{1,9}) job process(?:es)? (?:is|are) considered dead"
    r"|(?:Initialization|Asynchronous) errors? on (\d{1,9})|Encountered (\d{1,9}) communication timeout"
)
_OUTLIER = re.compile(r"Node (\S{1,80}) running process")
_EVENT = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] (PEER_[A-Z_]{1,40}): (.{0,400})")

_KINDS: dict[str, Trouble] = {
    "INCOMPLETE": "INCOMPLETE",
    "DEAD": "DEAD",
    "ERROR": "ERROR",
    "TIMEOUT": "TIMEOUT",
}
_LINES_KEPT = 10_000


def read_text(text: str, source: str) -> list[RasReport]:
    """Every report in this text, and all events together as one more."""
    reports: list[RasReport] = []
    parser: _Parser | None = None
    events: list[RasEvent] = []
    for number, line in enumerate(text.splitlines(), 1):
        if _VERSION.search(line):
            parser = _Parser(RasReport(source, "text", complete=False))
            reports.append(parser.report)
        elif found := _EVENT.search(line):
            events.append(_event(found, number))
        elif parser is not None:
            parser.feed(line.rstrip()[:4096], number)
    for report in reports:
        report.no_data = report.no_data or not report.groups
    if events:
        reports.append(RasReport(source, "events", events=events))
    return reports


class _Parser:
    """One report, line by line."""

    def __init__(self, report: RasReport) -> None:
        self.report = report
        self._section = ""
        self._heading = ""
        self._comm: str | None = None
        self._kind = ""

    def feed(self, line: str, number: int) -> None:
        text = line.strip()
        if text in ("Job summary", "Errors", "Warnings") or text.startswith("Communicators..."):
            self._section = text.split(".")[0]
            # The Warnings section comes last: a report that breaks off before has no such line.
            self.report.complete = self.report.complete or text == "Warnings"
        elif "Diagnostics ===" in text or self._section == "Diagnostics":
            self._section = "Diagnostics"
            if text and len(self.report.diagnostics) < _LINES_KEPT:
                self.report.diagnostics.append(text)
        elif self._section == "Job summary":
            self._job(text)
        elif self._section == "Communicators":
            self._group(text, number)
        elif self._section in ("Errors", "Warnings"):
            self._block(text, number)

    def _job(self, text: str) -> None:
        if found := _NUMBERS.match(text):
            row = [int(found[1]), *(int(word) for word in found[2].split())]
            if len(row) == 5:
                self.report.job = RasJob(row[0], row[3], row[4], uniform=True)
            elif len(row) == 3 and self._heading.startswith("(total)"):
                self.report.job = RasJob(row[0], row[1], row[2], uniform=False)
        elif (outlier := _OUTLIER.search(text)) and self.report.job:
            names = (*self.report.job.outlier_nodes, outlier[1])
            self.report.job = replace(self.report.job, outlier_nodes=names)
        elif text:
            self._heading = text

    def _group(self, text: str, number: int) -> None:
        if found := _GROUP.match(text):
            errors = tuple(word for word in found[5].split(",") if word not in ("OK", ""))
            self.report.groups.append(RasGroup(int(found[1]), int(found[2]), found[4], errors, number, int(found[3])))
        elif text.startswith("No communicator data"):
            self.report.no_data = True

    def _block(self, text: str, number: int) -> None:
        if found := _COMM.match(text):
            self._comm, self._kind = found[1].zfill(16), found[2]
        elif text in _KINDS:
            self._comm, self._kind = None, text
        elif found := _TOPIC.match(text):
            topic = "status" if found[1] else found[2]
            self.report.mismatches.append(RasMismatch(self._comm or "", topic, (), number))
        elif found := _COUNTED.search(text):
            self._problem(text, int(next(group for group in found.groups() if group)), number)
        elif found := _MANY.match(text):
            self._agreeing(_value(found.groups()[1:]), int(found[1]), ())
            self._extend(text=text)
        elif found := _RANK.match(text):
            self._rank(found, text)
        elif found := _PROCESS.search(text):
            self._extend(processes=(RasProcess(found[2], int(found[1]), found[3].strip()),))
        elif found := _MISSING_RANKS.search(text):
            numbers = [word for word in found[1].split(",") if word and len(word) < 10]
            self._extend(ranks=tuple(RasRank(int(word), missing=True) for word in numbers))

    def _problem(self, text: str, count: int, number: int) -> None:
        self.report.problems.append(RasProblem(_KINDS.get(self._kind, "ERROR"), self._comm, text, count, line=number))

    def _rank(self, found: re.Match[str], text: str) -> None:
        rank = RasRank(
            int(found[1]),
            found[8],
            None if found[7] is None else int(found[7]),
            None if found[6] is None else int(found[6]),
            missing=self._kind == "INCOMPLETE",
        )
        value = _value(found.groups()[1:5])
        if self._kind == "MISMATCH" and value is None:
            self._listed(rank)
        else:
            self._agreeing(value, 1, (rank,))
        self._extend(ranks=(rank,), text="" if value is None else text)

    def _agreeing(self, value: str | None, count: int, listed: tuple[RasRank, ...]) -> None:
        if self._kind == "MISMATCH" and value is not None and self.report.mismatches:
            last = self.report.mismatches[-1]
            if len(last.values) >= _LINES_KEPT:
                return
            self.report.mismatches[-1] = replace(last, values=(*last.values, RasValue(value, count, listed)))

    def _listed(self, rank: RasRank) -> None:
        """A rank of the group named in the line before."""
        last = self.report.mismatches[-1] if self.report.mismatches else None
        if last is not None and last.values:
            group = last.values[-1]
            if len(group.listed) >= _LINES_KEPT:
                return
            values = (*last.values[:-1], replace(group, listed=(*group.listed, rank)))
            self.report.mismatches[-1] = replace(last, values=values)

    def _extend(self, ranks: tuple[RasRank, ...] = (), processes: tuple[RasProcess, ...] = (), text: str = "") -> None:
        """More about the problem named before."""
        if self._kind == "MISMATCH" or not self.report.problems:
            return
        last = self.report.problems[-1]
        if len(last.ranks) + len(last.processes) < _LINES_KEPT:
            words = f"{last.text}; {text}" if text and len(last.text) < 1000 else last.text
            self.report.problems[-1] = replace(
                last, ranks=(*last.ranks, *ranks), processes=(*last.processes, *processes), text=words
            )


def _value(groups: tuple[str | None, ...]) -> str | None:
    """Status, count ("0" for none) or error that a line states."""
    status, count, none, error = groups
    return "0" if none else status or count or (error.strip() if error else None)


def _event(found: re.Match[str], number: int) -> RasEvent:
    process = _PROCESS.search(found[3])
    peer = RasProcess(process[2], int(process[1]), process[3].strip()) if process else None
    return RasEvent(found[2], found[1], peer, found[3], number)
