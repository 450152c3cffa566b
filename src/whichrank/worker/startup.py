"""What gets into each Python process of a watched job, before its first line: `whichrank run` copies it there.

It may fail, and the job must not notice: everything is guarded, nothing heavy is imported, torch is looked at and
never changed (its public hook that counts steps aside). A process that imports torch gets one quiet thread; others get
a file of two kilobytes and no more.
"""

from __future__ import annotations

import atexit
import os
import select
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from whichrank.model import last_words as layout
from whichrank.worker.lastwords import Recorder
from whichrank.worker.written import has_group, last_counts, offer_stacks, ready, write_dumps, write_stacks

if TYPE_CHECKING:
    from whichrank.worker.main_thread import MainThread
    from whichrank.worker.standing import Standing
    from whichrank.worker.waiting import Waiting

FOLDER = "WHICHRANK_PRIVATE"
GUARD = "WHICHRANK_GUARD"
LAUNCHER = "torch.distributed.launcher.api"
"""What torchrun and those that build on it have imported."""
BEAT_S = 0.5
KEEP_S = 30.0
KEEP_SHARE = 1e-4
"""Between two dumps that are kept in reserve at least, and of the time since the last one at most."""
KEEP_FIRST_S = 1.0
"""At the beginning less, since a job that hangs early has none yet."""
ENTRY_S, ENTRIES = 15e-6, 2000
"""What an entry of a dump takes before that was measured, and how many a recorder holds as a rule."""
LAST_BEAT_S, LAST_FRAMES_S = 10.0, 60.0
"""How long the end of a process waits for its beat, and for frames that are being looked up for somebody who asked."""

_watch: Watch | None = None


class Watch:
    """The thread of one process, and what it knows."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.recorder = Recorder(folder)
        self.name = f"{self.recorder.words.pid}.{self.recorder.words.start_ticks}"
        self.place = f"{folder}/{self.name}"
        self.ask = -1
        self.asked = select.poll()
        self.inode = 0
        self.stopped = False
        self.thread: threading.Thread | None = None
        self.aside: threading.Thread | None = None
        self.kept_ns = 0
        self.keep_s, self.keep_since, self.entry_s = KEEP_FIRST_S, 0.0, ENTRY_S
        self.stacks = -1
        self.hears_end = False
        self.moves = False
        self.waiting: Waiting | None = None

    def begin(self) -> None:
        """Called when torch is about to be imported."""
        if self.thread is not None:
            return
        _import_all()
        self.recorder.note(phase=max(self.recorder.words.phase, layout.IMPORTING))
        path = f"{self.place}.ask"
        if os.path.lexists(path):  # the process has replaced its program (exec) and starts anew
            os.unlink(path)  # noqa: PTH108
        os.mkfifo(path, 0o600)
        self.ask = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.inode = os.fstat(self.ask).st_ino
        self.asked.register(self.ask, select.POLLIN)
        self.stacks = offer_stacks(self.place, self.recorder)
        self.thread = threading.Thread(target=self.run, name="whichrank", daemon=True)
        self.thread.start()

    def run(self) -> None:
        """Beat, and answer when asked; whatever goes wrong ends this thread and nothing else."""
        try:
            from whichrank.worker import surroundings
            from whichrank.worker.exits import hear_the_end
            from whichrank.worker.main_thread import MainThread
            from whichrank.worker.standing import Standing

            self.recorder.note(thread=threading.get_native_id())
            surroundings.settle(self.folder, self.name)
            main, standing = MainThread(), Standing()
            while not self.stopped:
                self.hears_end = self.hears_end or hear_the_end(self.failed)
                self.look(main, standing)
                for request in self.glance(main, standing):
                    try:
                        self.answer(request)
                    except OSError as error:  # no room for the answer: the beat goes on
                        self.complain(error)
        except Exception as error:  # noqa: BLE001 - a watcher never disturbs what it watches
            self.complain(error)
            with suppress(Exception):
                self.recorder.note(flags=self.recorder.words.flags | layout.BLIND)

    def complain(self, error: BaseException) -> None:
        with suppress(Exception):  # there is nobody left to tell
            self.recorder.note(error=f"whichrank: {type(error).__name__}: {error}"[:300])

    def glance(self, main: MainThread, standing: Standing) -> list[str]:
        """Until the next beat: requests, and glances at whether the main thread waits once there is a group."""
        if self.recorder.words.phase != layout.JOINED or not self.recorder.words.enqueued:
            return self.wait(BEAT_S)
        from whichrank.worker.waiting import Waiting, spread_s

        self.waiting = self.waiting or Waiting()
        # Earlier now and then, never later: whoever looks at the words twice a second is to see all progress.
        until = time.monotonic() + BEAT_S - spread_s() / 4
        while not self.stopped:
            pause, left = self.waiting.pause_s(), until - time.monotonic()
            if pause is None or pause > left or standing.dear:
                return self.wait(max(0.0, left))
            if asked := self.wait(pause):
                return asked
            self.waiting.glance(main, standing.pending)
        return []

    def wait(self, limit_s: float) -> list[str]:
        """Requests, or nothing after a while. A descriptor that the job closed may have become another file."""
        if self.ask < 0:
            time.sleep(limit_s)
            return []
        try:
            if not self.asked.poll(limit_s * 1000):
                return []
            if os.fstat(self.ask).st_ino != self.inode:
                raise OSError("not ours any more")
            return os.read(self.ask, 512).decode("ascii", "ignore").split()
        except (OSError, ValueError):
            self.ask = -1
            return []

    def look(self, main: MainThread, standing: Standing) -> None:
        """Where the main thread is, and how far the collectives are."""
        now, before = time.time_ns(), self.recorder.words
        if self.moves and self.moves_on(main, standing, now):
            return
        changes = main.look(now)
        changes["flags"] |= before.flags & layout.BELOW
        if before.flags & layout.GUESSED:
            changes.update(_guess(changes["flags"]))
        c10d = ready("torch.distributed.distributed_c10d")
        if c10d is None:
            if before.phase < layout.IMPORTED and ready("torch") is not None:
                changes.setdefault("phase", layout.IMPORTED)
        else:
            inside = bool(changes["flags"] & layout.IN_COLLECTIVE)
            changes.update(standing.look(c10d, now, in_collective=inside))
            if "enqueued" in changes:  # the group says who it is
                changes["flags"] &= ~layout.GUESSED
            alone = layout.LEFT if before.has_joined else layout.IMPORTED
            changes.setdefault("phase", layout.JOINED if changes.get("world", -1) != -1 else alone)
            changes["steps"] = self.steps()
            if self.waiting is not None:
                if not main.follows:
                    place = changes.get("place", "").rpartition("/")[2][:100]
                    self.waiting.count(place, inside=inside, pending=changes.get("pending", 0) > 0)
                changes.update(self.waiting.told())
        if self.recorder.words.phase in (layout.FAILED, layout.ENDED):
            return  # the main thread has said its last meanwhile
        self.recorder.note(**changes)
        self.moves = before.phase == layout.JOINED and self.recorder.words.changed_ns != before.changed_ns
        if self.recorder.words.changed_ns != before.changed_ns:
            main.forget(now)
        if entries := min(changes.get("enqueued", 0), ENTRIES):
            self.keep(entries)

    def moves_on(self, main: MainThread, standing: Standing, now: int) -> bool:
        """Every second beat of a job that makes progress: its counters and a glance alone, unless they stand."""
        self.moves = False
        counts = standing.look(ready("torch.distributed.distributed_c10d"), now, in_collective=True)
        words = self.recorder.words
        if not counts or (counts["enqueued"], counts["completed"]) == (words.enqueued, words.completed):
            return False
        if self.waiting is not None:
            self.waiting.glance(main, standing.pending)
            counts.update(self.waiting.told())
        if words.phase == layout.JOINED:  # the main thread may have said its last meanwhile
            self.recorder.note(**counts)
        return True

    def steps(self) -> int:
        """How often the optimizers have stepped, or what a trainer has marked; 0 with a torch that can't tell."""
        from whichrank.worker.marks import MARKS

        optimizer, compiler = ready("torch.optim.optimizer"), ready("torch.compiler")
        if optimizer is None or compiler is None:
            return MARKS.steps
        from whichrank.worker import steps

        return max(steps.look(optimizer, compiler), MARKS.steps)

    def keep(self, entries: int) -> None:
        """A dump in reserve, in case that nobody can be asked later; only once the time for it has been earned."""
        now = time.monotonic()
        if self.keep_since and now - self.keep_since < max(self.keep_s, entries * self.entry_s / KEEP_SHARE):
            return
        if self.recorder.words.changed_ns > self.kept_ns:
            self.kept_ns, began = time.time_ns(), time.thread_time()
            self.dump("kept", frames=False)
            self.entry_s = (time.thread_time() - began) / entries
        self.keep_since, self.keep_s = now, min(2 * self.keep_s, KEEP_S)

    def answer(self, request: str) -> None:
        """`quick:ID:PID` for stacks and a dump without frames, `full:ID:PID` for one with frames besides."""
        kind, token, asker = (*request.split(":"), "", "")[:3]
        if not token.isalnum():
            return
        from whichrank.worker import surroundings

        surroundings.answer(self.folder, self.name, token, asker)
        write_stacks(self.place, token)
        self.dump(token, frames=False)
        if kind == "full" and (self.aside is None or not self.aside.is_alive()):
            # A look-up of many frames takes a while, without the interpreter's lock: the beat goes on meanwhile.
            self.aside = threading.Thread(target=self.dump_frames, args=(token,), name="whichrank-frames", daemon=True)
            self.aside.start()

    def dump_frames(self, token: str) -> None:
        try:
            self.dump(f"{token}.frames", frames=True)
        except Exception as error:  # noqa: BLE001 - a watcher never disturbs what it watches
            self.complain(error)

    def dump(self, token: str, *, frames: bool) -> None:
        """The flight recorders of this process; nothing where torch has none or no group was made."""
        if self.recorder.words.enqueued or has_group():
            write_dumps(self.place, token, frames=frames)

    def note_counts(self) -> None:
        """A job may fail between two beats, the first ones included: who it was, and how far it came."""
        if counts := last_counts():
            self.recorder.note(**counts, flags=self.recorder.words.flags & ~layout.GUESSED)

    def failed(self, error: BaseException) -> None:
        """An exception ends this process; never raises."""
        if isinstance(error, KeyboardInterrupt):
            return
        try:
            self.recorder.note(phase=layout.FAILED, error=f"{type(error).__name__}: {error}"[:300])
            import traceback

            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            with open(f"{self.place}.error", "w", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
                stream.write(text[-65536:])
            self.note_counts()
            self.dump("end", frames=False)
            from whichrank.worker import surroundings

            surroundings.write_groups(self.folder, self.name)
            surroundings.write_variables_of(self.folder, self.name, self.recorder.words.rank, error)
        except Exception as defect:  # noqa: BLE001 - a watcher never disturbs what it watches
            self.complain(defect)

    def end(self) -> None:
        """The interpreter is about to end: say how, and leave the evidence of a failure."""
        self.stopped = True
        # Set by the interpreter before any hook for exceptions runs, also one that the script put there.
        error = getattr(sys, "last_value", None)
        if error is not None:
            self.failed(error)
        if self.recorder.words.phase != layout.FAILED:
            self.recorder.note(phase=layout.ENDED)
        if self.thread is not None and self.thread.is_alive() and self.ask >= 0:
            os.write(self.ask, b"end\n")
            # A thread that is inside torch when the interpreter goes can take the process down with it.
            self.thread.join(LAST_BEAT_S)
        if self.aside is not None:
            self.aside.join(LAST_FRAMES_S)


def _import_all() -> None:
    """What the thread uses, imported before it runs: a fork in the midst of an import would leave the child half a
    module for good. A process without torch does not pay for it."""
    from whichrank.worker import exits, main_thread, marks, standing, steps, surroundings, waiting  # noqa: F401


def _guess(flags: int) -> dict[str, int]:
    """A launcher is not a rank, though it runs in a task; and whoever says its rank need not be guessed at."""
    if LAUNCHER in sys.modules:
        return {"rank": -1, "local_rank": -1, "flags": flags}
    told = os.environ.get("RANK", "")
    if told.isdigit() and len(told) < 8:
        return {"rank": int(told), "flags": flags}
    return {"flags": flags | layout.GUESSED}


class _Doorbell:
    """First among the finders of imports: notices torch, finds nothing, and takes itself away."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:  # noqa: ARG002
        if name == "torch":
            try:
                sys.meta_path.remove(self)
                if _watch is not None:
                    _watch.begin()
            except Exception as error:  # noqa: BLE001 - never the job's problem
                if _watch is not None:
                    _watch.complain(error)


def _forked() -> None:
    """In the child of a fork: a process of its own, with words of its own."""
    global _watch  # noqa: PLW0603
    parent, _watch = _watch, None
    if parent is None:
        return
    try:
        _watch = Watch(parent.folder)
        if parent.recorder.words.phase >= layout.JOINED or has_group():
            _watch.recorder.note(flags=_watch.recorder.words.flags | layout.HELPER)
            return
        _watch.recorder.note(phase=parent.recorder.words.phase)
        if parent.thread is not None:
            _watch.begin()
            for inherited in (parent.ask, parent.stacks):
                if inherited >= 0:
                    os.close(inherited)
    except Exception:  # noqa: BLE001, S110 - a child without words is still a child
        pass


def _told_of_end(error: BaseException) -> None:
    """Somebody ends this process without an exception; the first word about a failure counts."""
    if _watch is not None and _watch.recorder.words.phase != layout.FAILED:
        _watch.failed(error)


def _told_of_counts(error: BaseException) -> None:  # noqa: ARG001 - what ends it is for attempts with more evidence
    """Somebody ends this process without an exception: the last beat may be some steps old."""
    if _watch is not None:
        _watch.note_counts()


def _ended() -> None:
    try:
        if _watch is not None:
            _watch.end()
    except Exception:  # noqa: BLE001, S110 - the job has ended; that is all that counts
        pass


def begin() -> None:
    """Start, if `whichrank run` asked for it; never raises."""
    global _watch  # noqa: PLW0603
    try:
        folder = os.environ.get(FOLDER)
        if not folder or _watch is not None:
            return
        _watch = Watch(folder)
        _watch.recorder.note()
        sys.meta_path.insert(0, _Doorbell())
        os.register_at_fork(after_in_child=_forked)
        atexit.register(_ended)
        if os.environ.get(GUARD):
            from whichrank.worker.guard.arrival import await_torch

            await_torch(folder, _watch.name)
        if how := os.environ.get("WHICHRANK_EXITS"):
            from whichrank.worker.exits import COUNTS, trace

            trace(_told_of_counts if how == COUNTS else _told_of_end, has_group)
        if os.path.exists(f"{folder}/resume"):  # noqa: PTH110
            from whichrank.worker.resume import take_up

            take_up(folder)
    except Exception:  # noqa: BLE001, S110 - a job that can't be watched runs on unwatched
        pass
