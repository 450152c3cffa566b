"""Stacks by py-spy, as text and as JSON."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from msgspec import Struct, field

from whichrank.evidence.readers.stacks.variables import KEPT, Values, call_of, is_shown, rank_of, variable
from whichrank.evidence.text.own_prefix import NO_HOST
from whichrank.records.dump import Frame
from whichrank.records.stack import ProcessStack, ThreadStack, ThreadState

_PROCESS = re.compile(r"^Process (\d{1,10})(?::\s?(.*)| (\([^()]{1,60}\)):?)$")
_ADDED = re.compile(r"[(\[]([^()\[\]]{1,60})[)\]]$")
"""What people add to the heading of a process: `(rank 3)`, `(node n7, rank 3)`."""
_NAMES = re.compile(r"\b(local[ _]?rank|rank|pid)(?: is)?[ _#:=]{0,3}(\d{1,10})\b", re.IGNORECASE)
_HOST = r"(?=\S{0,40}[\d-])([A-Za-z][\w.-]{1,62})"
_ON = re.compile(
    rf"(?:\bon|\bnode|\bhost|\bhostname|@)[ :=]{{0,2}}{_HOST}"
    rf"|(?<![^\s(\[=#*-]){_HOST}[ ,:/]{{1,3}}(?:local[ _]?)?rank[ _#:=]{{0,3}}\d",
    re.IGNORECASE,
)
"""`rank 3 on node7`, `rank 3 @ node7`, `node7 rank 3`."""
_A_TITLE = 60
"""A line above a stack that says whose it is, is not longer."""
_PYTHON = re.compile(r"^Python v(\S{1,40})(?: \((.{1,1000})\))?$")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]{1,16}|\d{1,20}) \(([a-z]{1,12}(?:\+gil)?)\)(?:: "(.{0,200})")?$')
_ERROR = re.compile(r"^Error: (.{1,500})|^(.{0,200}(?:[Pp]ermission denied|No such process|not permitted).{0,200})$")
_HEADERS = ("Process ", "Python v", "Thread ")
_TROUBLES = ("Error: ", "ermission denied", "No such process", "not permitted")
"""One of these stands in every error."""
_MAIN = "MainThread"
_MOST_PROCESSES, _MOST_THREADS, _MOST_FRAMES = 4096, 4096, 1024


class Title(Struct, frozen=True):
    """Whose stack it is, by a line that somebody wrote above it: `rank 3:`, `RANK=3`, `== pid 2041 (LOCAL_RANK=3)`."""

    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    host: str | None = None


def title_of(line: str) -> Title | None:
    """What a line above a stack says, unless it names several."""
    if len(line) > _A_TITLE or not (found := _NAMES.findall(line)):
        return None
    values: dict[str, set[int]] = {}
    for word, number in found:
        key = word.lower()
        values.setdefault("local_rank" if key.startswith("local") else key, set()).add(int(number))
    if any(len(numbers) > 1 for numbers in values.values()):
        return None
    hosts = {name.rstrip(".-") for pair in _ON.findall(line) for name in pair if name and not NO_HOST.match(name)}
    host = hosts.pop() if len(hosts) == 1 else None
    return Title(**{key: numbers.pop() for key, numbers in values.items()}, host=host)


class Process(Struct):
    """One process in the making."""

    pid: int | None
    command: str
    line: int
    python: str = ""
    threads: list[ThreadStack] = field(default_factory=list)
    title: Title = Title()
    values: dict[int, dict[int, dict[str, str]]] = field(default_factory=dict)
    """By thread and frame, the variables that tell something."""

    def built(self, source: str) -> ProcessStack:
        added = _ADDED.search(self.command)
        title = (title_of(added[1]) if added else None) or self.title
        pid = title.pid if self.pid is None else self.pid
        threads = with_main(self.threads, pid)
        shown = self._shown_in(next((at for at, thread in enumerate(threads) if thread.main), -1))
        return ProcessStack(
            source, "py-spy", threads, pid, title.host, rank=rank_of(shown) if title.rank is None else title.rank,
            local_rank=title.local_rank, command=self.command, python=self.python, line=self.line, call=call_of(shown),
        )  # fmt: skip

    def _shown_in(self, at: int) -> list[tuple[Frame, Values]]:
        """The frames of a thread with their variables; nothing where none were shown."""
        values = self.values.get(at)
        return [(f, values.get(n, {})) for n, f in enumerate(self.threads[at].frames)] if values else []


def with_main(threads: list[ThreadStack], pid: int | None) -> tuple[ThreadStack, ...]:
    """Marks the main thread: by its name, else by the process's own number."""
    named = next((i for i, thread in enumerate(threads) if thread.name == _MAIN), None)
    own = next((i for i, thread in enumerate(threads) if pid and thread.tid == pid), None)
    chosen = own if named is None else named
    return tuple(ThreadStack(t.name, t.tid, t.state, t.frames, i == chosen, t.line) for i, t in enumerate(threads))


def state_of(words: str) -> ThreadState:
    if "gil" in words:
        return "gil"
    return "active" if words.startswith("active") else "idle" if words.startswith("idle") else "unknown"


@lru_cache(1 << 12)
def _frame(text: str) -> Frame | None:
    """`all_reduce (torch/distributed/distributed_c10d.py:3068)`, `futex_wait (libc.so.6)` with --native."""
    if not text.startswith("    ") or text[4:5].isspace() or not text.endswith(")"):
        return None
    name, bracket, place = text[4:-1].rpartition(" (")
    if not bracket or not name:
        return None
    file, _, line = place.rpartition(":")
    if file and line.isdecimal() and len(line) < 10:
        return Frame(name[:1000], file[:1000], int(line))
    return Frame(name[:1000], place[:1000], 0)


class TextParser:
    """Lines in, processes out; remembers the words of py-spy's own errors."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._process: Process | None = None
        self._thread: tuple[str, int | None, ThreadState, int, list[Frame]] | None = None
        self._title: Title | None = None
        """Of the stack that comes next."""
        self.stacks: list[ProcessStack] = []
        self.errors: list[str] = []

    def feed(self, line: int, text: str) -> bool:
        """True where the line is py-spy's."""
        if self._title is not None and self._process is None and (frame := _frame(text)) is not None and frame.line:
            self._begin_process(None, "", line)  # all headings were left out but the one somebody wrote
        if text.startswith(" ") and (self._thread is not None or self._is_heading_alone()):
            frame = _frame(text)
            if self._shows_variable(text):
                return True
            if frame is not None:
                if self._thread is None:
                    self._thread = (_MAIN, None, "unknown", line, [])  # the headings of threads were left out
                if len(self._thread[4]) < _MOST_FRAMES:
                    self._thread[4].append(frame)
                return True
        if not text.startswith(_HEADERS):
            found = _ERROR.match(text) if any(map(text.__contains__, _TROUBLES)) else None
            self.errors += [(found[1] or found[2])[:300]] if found else []
            return found is not None
        if match := _PROCESS.match(text):
            self._end_process()
            self._begin_process(int(match[1]), (match[2] or match[3] or "").strip()[:4000], line)
        elif (match := _PYTHON.match(text)) and self._process is not None:
            self._process.python = match[1]
        elif match := _THREAD.match(text):
            self._begin_thread(line, match)
        elif match := _ERROR.match(text):
            self.errors.append((match[1] or match[2])[:300])
        else:
            return False
        return True

    def _shows_variable(self, text: str) -> bool:
        """Whether the line belongs to the frame above; keeps what tells something."""
        if self._thread is None or self._process is None or not self._thread[4] or not is_shown(text):
            return False
        if told := variable(text):
            of_thread = self._process.values.setdefault(len(self._process.threads), {})
            of_thread.setdefault(len(self._thread[4]) - 1, {}).setdefault(*told)
        return True

    def _begin_thread(self, line: int, match: re.Match[str]) -> None:
        self._end_thread()
        if match[3] == _MAIN and self._process is not None and self._process.pid is None and self._has_main():
            self._end_process()  # another process, of which the headers were not kept
        tid = int(match[1], 16 if match[1].startswith("0x") else 10)
        self._thread = (match[3] or "", tid, state_of(match[2]), line, [])
        if self._process is None:
            self._begin_process(None, "", line)

    def entitle(self, text: str) -> None:
        """A line that is not py-spy's may say whose stack follows, or whose this is where no thread has come yet."""
        if (title := title_of(text)) is None:
            if text.strip(" `~"):  # a fence may stand between a title and its stack
                self._title = None
            return
        if self._is_heading_alone() and self._process is not None:
            self._process.title = title
            return
        self._end_process()
        self._title = title

    def _begin_process(self, pid: int | None, command: str, line: int) -> None:
        self._process = Process(pid, command, line, title=self._title or Title())
        self._title = None

    def end(self) -> None:
        self._end_process()

    @property
    def full(self) -> bool:
        """Whether no more processes are kept."""
        return len(self.stacks) >= _MOST_PROCESSES

    def _is_heading_alone(self) -> bool:
        return self._thread is None and self._process is not None and not self._process.threads

    def _has_main(self) -> bool:
        return self._process is not None and any(thread.name == _MAIN for thread in self._process.threads)

    def _end_thread(self) -> None:
        if self._thread is not None and self._process is not None and len(self._process.threads) < _MOST_THREADS:
            name, tid, state, line, frames = self._thread
            self._process.threads.append(ThreadStack(name, tid, state, tuple(frames), line=line))
        self._thread = None

    def _end_process(self) -> None:
        self._end_thread()
        if self._process is not None and self._process.threads and not self.full:
            self.stacks.append(self._process.built(self._source))
        self._process = None


def parse_json(text: str, source: str) -> tuple[list[ProcessStack], bool]:
    """Stacks of `py-spy dump --json`, one array or several, and whether all of it could be read."""
    decoder = json.JSONDecoder()
    processes: dict[int | None, Process] = {}
    at, whole = 0, True
    while (at := _next_array(text, at)) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            whole = False
            break
        for trace in value if isinstance(value, list) else []:
            if isinstance(trace, dict) and isinstance(trace.get("frames"), list):
                _add_trace(processes, trace)
    return [process.built(source) for process in processes.values()], whole


def _next_array(text: str, at: int) -> int:
    found = text.find("[", at)
    return len(text) if found < 0 else found


def _add_trace(processes: dict[int | None, Process], trace: dict[str, Any]) -> None:
    pid = _whole(trace.get("pid"))
    if pid not in processes and len(processes) >= _MOST_PROCESSES:
        return
    info = trace.get("process_info")
    command = info.get("command_line") if isinstance(info, dict) else ""
    process = processes.setdefault(pid, Process(pid, command[:4000] if isinstance(command, str) else "", 1))
    if len(process.threads) >= _MOST_THREADS:
        return
    state: ThreadState = "active" if trace.get("active") is True else "idle"
    if trace.get("owns_gil") is True:
        state = "gil"
    for at, frame in enumerate(trace["frames"][:_MOST_FRAMES]):
        if isinstance(frame, dict) and (shown := _json_values(frame)):
            process.values.setdefault(len(process.threads), {})[at] = shown
    name = trace.get("thread_name")
    tid = _whole(trace.get("os_thread_id")) or _whole(trace.get("thread_id"))
    frames = tuple(_json_frame(frame) for frame in trace["frames"][:_MOST_FRAMES] if isinstance(frame, dict))
    process.threads.append(ThreadStack(name if isinstance(name, str) else "", tid, state, frames, line=1))


def _json_frame(frame: dict[str, Any]) -> Frame:
    name, line = frame.get("name"), _whole(frame.get("line"))
    file = frame.get("short_filename") or frame.get("filename") or frame.get("module")
    return Frame(str(name)[:1000], str(file)[:1000], line or 0)


def _json_values(frame: dict[str, Any]) -> dict[str, str]:
    told = frame.get("locals")
    rows = [row for row in told[:_MOST_FRAMES] if isinstance(row, dict)] if isinstance(told, list) else []
    named = ((row.get("name"), row.get("repr")) for row in rows)
    return {n: r[:300] for n, r in named if isinstance(n, str) and isinstance(r, str) and n in KEPT}


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63 else None
