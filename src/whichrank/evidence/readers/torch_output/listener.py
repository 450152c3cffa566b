"""Puts lines together to events: who spoke, what was said, and which lines belong to one message."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from whichrank.evidence.readers.stacks import faulthandler
from whichrank.evidence.readers.torch_output import communication, continued_lines, horovod
from whichrank.evidence.readers.torch_output.bounded_events import BoundedEvents
from whichrank.evidence.readers.torch_output.elastic import Row, Table
from whichrank.evidence.readers.torch_output.found import Matcher
from whichrank.evidence.text import tracebacks
from whichrank.evidence.text.path_hint import hint_of_path
from whichrank.evidence.text.prefixes import listen
from whichrank.evidence.text.prefixes.clock import Clock
from whichrank.evidence.text.prefixes.voice import Voice
from whichrank.model.evidence import Ref
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import CollectiveStack
from whichrank.records.events.communication import PeerClosed
from whichrank.records.events.launchers import ActorDied, ElasticFailure, ElasticSignal, JobEnded, ProcessExit
from whichrank.records.events.processes import Traceback
from whichrank.records.stack import ProcessStack

MARKS = (
    b"most recent call", b'File "', b'File \\"', b"NCCL error", b"failed collective", b" FAILED",
    b"Root Cause", b"Failures:", b"Exception in thread", b"Exception ignored", b"Timeout (",
    b"The above exception", b"During handling of the above", continued_lines.ACTOR.encode(),
    *(words.encode() for words in horovod.WORDS),
)  # fmt: skip
"""Words that begin a message of several lines."""
_PATIENCE = 5000
"""Lines that a message may stay open without going on."""
_MOST_VOICES = 4096
"""Messages open at once: one per rank of a big job; a hostile file could have a million."""
_AGENTS_OWN = (ElasticFailure, ElasticSignal, ProcessExit, JobEnded, ActorDied)
"""Kinds that speak of another process than the one whose file it is."""

_MEANT = re.compile(r"\(RANK (\d{1,7})\)\s*$")

Key = tuple[str, int | None]
"""Whose line it is: the launcher's prefix, and the rank that torch put on each line of an exception."""


def _listening(opened: Collection[Key], key: Key) -> list[Key]:
    """Whose open message this line may go on: its own; without a rank, any under the same prefix."""
    if key[1] is not None:
        return [key] if key in opened else []
    return [other for other in opened if other[0] == key[0]][-8:]


def _of_another(voice: Voice) -> Voice:
    """torch's checkpoints print on every rank what others raised: `Traceback (most recent call last): (RANK 8)`."""
    meant = _MEANT.search(voice.text)
    return replace(voice, rank=int(meant[1])) if meant else voice


class Hearing:
    """Fed with the lines that matter, in order."""

    def __init__(self, source: str, clock: Clock) -> None:
        self._source = source
        self._hint = hint_of_path(source)
        self._clock = clock
        self.keeper = BoundedEvents()
        self.stacks: list[ProcessStack] = []
        self.truncated = 0
        self._traces: dict[Key, tuple[tracebacks.Trace, Voice, int | None]] = {}
        self._errors: dict[Key, tuple[continued_lines.ErrorLines, Voice]] = {}
        self._calls: dict[Key, tuple[continued_lines.StackLines, Voice]] = {}
        self._stalls: dict[Key, tuple[horovod.Stall, Voice]] = {}
        self._actors: dict[Key, tuple[continued_lines.ActorLines, Voice]] = {}
        self._tables: dict[str, Table] = {}
        self._faults: dict[str, faulthandler.Builder] = {}
        self._thread: dict[Key, str] = {}
        self._ended: dict[Key, str] = {}
        self._chained: dict[Key, str] = {}
        self._ignored: set[Key] = set()
        self.newest: int | None = None
        """The newest time heard so far."""
        self.logged = False
        """Whether the next traceback stands below a logger's warning or error."""
        self.logged_rank: int | None = None
        """The rank that this warning or error names as its own."""
        self._watch = False
        self._touched = 0

    @property
    def watching(self) -> bool:
        """True while a message of several lines is open: then every line is wanted."""
        return self._watch

    @property
    def expecting(self) -> bool:
        """True where something was said of a traceback that is to come: of which thread it is, or after what."""
        return bool(self._thread or self._ignored or self._chained)

    def hear(self, number: int, voice: Voice, matchers: tuple[Matcher, ...]) -> None:
        if voice.time_ns is not None:
            self.newest = max(self.newest or 0, voice.time_ns)
        key = (voice.speaker, voice.rank)
        code = self._feed_trace(number, key, voice)
        self._feed_table(number, voice)
        self._feed_faults(number, voice)
        if not code:
            self._feed_followers(number, key, voice)
            for words, match in matchers:
                if words in voice.text and (found := match(voice.text)) is not None:
                    self.emit(number, voice, found)
        self._expire(number)

    # -- tracebacks

    def _feed_trace(self, number: int, key: Key, voice: Voice) -> bool:
        """True where the line is source code quoted by a traceback."""
        text = voice.text
        opened = self._traces.get(key)
        if opened is not None and not voice.by_torch:
            trace = opened[0]
            code = trace.says_code(text)
            if trace.feed(text, prefixed=key[1] is not None):
                self._touched = number
                return code
            if trace.done:
                self._close_trace(key)
        if tracebacks.begins(text) and (tracebacks.HEADER in text or key not in self._traces):
            self._close_trace(key)
            trace = tracebacks.start(number, text)
            trace.thread, trace.ignored = self._thread.pop(key, ""), key in self._ignored
            trace.after, trace.after_ns = self._chained.pop(key, ""), self.newest
            trace.logged, self.logged = self.logged, False
            self._ignored.discard(key)
            table = self._tables.get(voice.speaker)
            logged = self.logged_rank if self._hint.rank is None else None
            rank, self.logged_rank = table.rank if table else logged, None
            self._traces[key] = (trace, _of_another(voice), rank)
            self._touched = number
        elif name := tracebacks.thread_named(text):
            self._thread[key] = name
        elif text.startswith("Exception ignored"):
            self._ignored.add(key)
        elif text.startswith(("During handling of the above", "The above exception was")):
            self._chained[key] = self._ended.get(key, "")
        return False

    def _close_trace(self, key: Key) -> None:
        opened = self._traces.pop(key, None)
        if opened is None:
            return
        trace, voice, rank = opened
        if trace.truncated and not trace.frames:
            return
        self.truncated += int(trace.truncated)
        event = Traceback(
            type=trace.type,
            message="\n".join(trace.message).strip(),
            thread=trace.thread,
            ignored=trace.ignored,
            logged=trace.logged,
            truncated=trace.truncated,
            headless=trace.headless,
            chained_from=trace.after,
            of_another=_MEANT.search(trace.quote) is not None,
            rank=rank,
            frames=tuple(trace.frames),
            after_ns=trace.after_ns,
        )
        self._ended[key] = trace.type
        quote = f"{trace.type}: {trace.message[0]}" if trace.type else trace.quote
        self.emit(trace.line, replace(voice, text=quote.strip(": ")), event)

    # -- messages of several lines

    def _feed_followers(self, number: int, key: Key, voice: Voice) -> None:
        if self._errors and not voice.by_torch:
            for open_key in _listening(self._errors, key):
                if not self._errors[open_key][0].feed(voice.text):
                    self._close_error(open_key)
        if self._calls:
            for open_key in _listening(self._calls, key):
                if not self._calls[open_key][0].feed(voice.text):
                    self._close_call(open_key)
        self._feed_actors(number, key, voice)
        self._feed_stalls(key, voice)
        if (stall := horovod.begins(number, voice.text, opened=key in self._stalls)) is not None:
            self._close_stall(key)
            self._stalls[key] = (stall, voice)
            self._touched = number
        if "NCCL error" in voice.text and (error := continued_lines.nccl_error_begins(number, voice.text)):
            self._close_error(key)
            self._errors[key] = (error, voice)
            self._touched = number
        stack = continued_lines.collective_stack_begins(number, voice.text)
        if isinstance(stack, CollectiveStack):
            self.emit(number, voice, stack)
        elif stack is not None:
            self._close_call(key)
            self._calls[key] = (stack, voice)
            self._touched = number

    def _close_error(self, key: Key) -> None:
        opened = self._errors.pop(key, None)
        if opened is None:
            return
        error, voice = opened
        event = error.end()
        self.emit(error.line, voice, event)
        peer = communication.remote_peer(event.last_error)
        if peer or event.error == "ncclRemoteError":
            self.emit(error.line, voice, PeerClosed(via="nccl", peer=peer, group_rank=event.group_rank))

    def _close_call(self, key: Key) -> None:
        opened = self._calls.pop(key, None)
        if opened is not None and opened[0].frames:
            self.emit(opened[0].line, opened[1], CollectiveStack(frames=tuple(opened[0].frames)))

    def _feed_actors(self, number: int, key: Key, voice: Voice) -> None:
        opened = self._actors.get(key)
        if opened is not None and not opened[0].feed(voice.text):
            self._close_actor(key)
        elif opened is None and voice.text.strip().startswith(continued_lines.ACTOR):
            self._actors[key] = (continued_lines.ActorLines(number), voice)
            self._touched = number

    def _close_actor(self, key: Key) -> None:
        actor, voice = self._actors.pop(key)
        if (event := actor.event()) is not None:
            self.emit(actor.line, replace(voice, rank=None), event)

    def _feed_stalls(self, key: Key, voice: Voice) -> None:
        if not self._stalls:
            return
        text = voice.text
        # `1: [tensor, …]` of the report looks like a line that `srun --label` took from task 1.
        label = f"{voice.task}:"
        if text.startswith("[") and (outer := (key[0].removesuffix(label), key[1])) in self._stalls:
            key, text = outer, f"{label} {text}"
        for open_key in _listening(self._stalls, key):
            if not self._stalls[open_key][0].feed(text):
                self._close_stall(open_key)

    def _close_stall(self, key: Key) -> None:
        opened = self._stalls.pop(key, None)
        if opened is not None:
            self.emit(opened[0].line, opened[1], opened[0].event())

    # -- the agent's table, faulthandler

    def _feed_table(self, number: int, voice: Voice) -> None:
        if voice.by_torch or voice.rank is not None:
            return
        table = self._tables.get(voice.speaker)
        if table is None:
            if not Table.opens(voice.text):
                return
            table = self._tables[voice.speaker] = Table()
        row = table.feed(number, voice.text)
        self._touched = number
        if row is not None:
            self._emit_row(voice, row)
        if not table.open:
            del self._tables[voice.speaker]

    def _emit_row(self, voice: Voice, row: Row) -> None:
        stamp = listen(f"{row.time} ".encode(), self._clock).time_ns if row.time else None
        said = replace(voice, text=", ".join(row.words), time_ns=stamp, rank=None, local_rank=None)
        self.emit(row.line, said, row.event)

    def _feed_faults(self, number: int, voice: Voice) -> None:
        builder = self._faults.get(voice.speaker)
        if builder is None:
            reasons = ("Fatal Python error", "Timeout (")
            if not faulthandler.begins(voice.text) and not voice.text.startswith(reasons):
                return
            builder = self._faults[voice.speaker] = faulthandler.Builder(self._source)
        self._keep_stack(voice, builder.feed(number, voice.text))
        if builder.open or builder.waiting:
            self._touched = number
        else:
            del self._faults[voice.speaker]

    def _keep_stack(self, voice: Voice | None, stack: ProcessStack | None) -> None:
        if stack is not None and len(self.stacks) < 4096:
            rank = voice.rank if voice else None
            local = voice.local_rank if voice else None
            self.stacks.append(
                replace(
                    stack,
                    rank=self._hint.rank if rank is None else rank,
                    local_rank=self._hint.local_rank if local is None else local,
                    pid=voice.pid if voice else None,
                    host=voice.host if voice else None,
                )
            )

    # -- events

    def emit(self, number: int, voice: Voice, event: Event) -> None:
        """Keep an event, with what is known of the line and its speaker."""
        rank = voice.rank if voice.rank is not None else event.rank
        if rank is None and not isinstance(event, _AGENTS_OWN):
            rank = self._hint.rank
        local = event.local_rank if event.local_rank is not None else voice.local_rank
        event.rank, event.host = rank, event.host or voice.host
        event.local_rank = self._hint.local_rank if local is None else local
        if event.pid is None:
            event.pid, event.place = voice.pid, voice.place
        event.ref = Ref(self._source, f"line {number}", voice.text.strip()[:400], rank, event.host)
        event.line, event.time_ns, event.task = number, voice.time_ns, voice.task
        if voice.time_ns is not None:
            event.after_ns = None
        elif event.after_ns is None:
            event.after_ns = self.newest
        self.keeper.add(event)

    # -- what stays open

    def _expire(self, number: int) -> None:
        opened = (self._traces, self._errors, self._calls, self._stalls, self._actors, self._tables, self._faults)
        crowd = sum(len(messages) for messages in opened)
        if number - self._touched > _PATIENCE or crowd > _MOST_VOICES:
            self.close()
        if len(self._ended) + len(self._thread) + len(self._chained) + len(self._ignored) > 1 << 16:
            for memory in (self._ended, self._thread, self._chained, self._ignored):
                memory.clear()
        self._watch = any(opened)

    def close(self) -> None:
        for key in list(self._traces):
            self._close_trace(key)
        for key in list(self._errors):
            self._close_error(key)
        for key in list(self._calls):
            self._close_call(key)
        for key in list(self._stalls):
            self._close_stall(key)
        for key in list(self._actors):
            self._close_actor(key)
        for speaker, table in self._tables.items():
            if (row := table.end()) is not None:
                self._emit_row(Voice("", speaker=speaker), row)
        for builder in self._faults.values():
            self._keep_stack(None, builder.end())
        self._tables.clear()
        self._faults.clear()
