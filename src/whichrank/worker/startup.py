"""What gets into each Python process of a watched job, before its first line: `whichrank run` copies it there.

It may fail, and the job must not notice: everything is guarded, nothing heavy is imported, torch is looked at and
never changed. A process that imports torch gets one quiet thread; others get a file of two kilobytes and no more.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from whichrank.model import last_words as layout
from whichrank.worker.lastwords import Recorder

FOLDER = "WHICHRANK_PRIVATE"
BEAT_S = 0.5
FRAMES = 80
"""Frames of the main thread that are looked at, from the inside."""
KEEP_S = 30.0
"""Between two dumps that are kept in reserve; longer where one takes long (a thousandth of the time at most)."""
_JOINING = frozenset({"init_process_group", "new_group", "_new_process_group_helper", "split_group", "rendezvous"})
_LEAVING = frozenset({"destroy_process_group", "_shutdown_backend"})
_RECORDERS = (("_dump_fr_trace", "fr"), ("_dump_nccl_trace", "nccl"))

_watch: Watch | None = None


class Watch:
    """The thread of one process, and what it knows."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.recorder = Recorder(folder)
        self.name = f"{self.recorder.words.pid}.{self.recorder.words.start_ticks}"
        self.ask = -1
        self.inode = 0
        self.stopped = False
        self.thread: threading.Thread | None = None
        self.aside: threading.Thread | None = None
        self.kept_ns = 0
        self.keep_next = time.monotonic() + KEEP_S
        self.stacks = -1

    def begin(self) -> None:
        """Called when torch is about to be imported."""
        if self.thread is not None:
            return
        self.recorder.note(phase=max(self.recorder.words.phase, layout.IMPORTING))
        path = f"{self.folder}/{self.name}.ask"
        if os.path.lexists(path):  # the process has replaced its program (exec) and starts anew
            os.unlink(path)  # noqa: PTH108
        os.mkfifo(path, 0o600)
        self.ask = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self.inode = os.fstat(self.ask).st_ino
        self.offer_stacks()
        self.thread = threading.Thread(target=self.run, name="whichrank", daemon=True)
        self.thread.start()

    def offer_stacks(self) -> None:
        """With the interpreter's lock held by a stuck thread no Python runs: a signal that nobody uses still does."""
        import faulthandler

        number = signal.SIGRTMAX - 3
        if signal.getsignal(number) is not signal.SIG_DFL:
            return
        path = f"{self.folder}/{self.name}.signalled"
        self.stacks = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        faulthandler.register(number, file=self.stacks, all_threads=True, chain=False)
        self.recorder.note(stack_signal=int(number), stack_fd=self.stacks)

    def run(self) -> None:
        """Beat, and answer when asked; whatever goes wrong ends this thread and nothing else."""
        try:
            while not self.stopped:
                self.look()
                for request in self.wait():
                    self.answer(request)
        except Exception as error:  # noqa: BLE001 - a watcher never disturbs what it watches
            self.complain(error)

    def complain(self, error: BaseException) -> None:
        with suppress(Exception):  # there is nobody left to tell
            self.recorder.note(error=f"whichrank stopped looking: {type(error).__name__}: {error}"[:300])

    def wait(self) -> list[str]:
        """Requests, or nothing after a beat. A descriptor that the job closed may have become another file."""
        if self.ask < 0:
            time.sleep(BEAT_S)
            return []
        try:
            ready, _, _ = select.select([self.ask], [], [], BEAT_S)
            if not ready:
                return []
            if os.fstat(self.ask).st_ino != self.inode:
                raise OSError("not ours any more")
            return os.read(self.ask, 512).decode("ascii", "ignore").split()
        except (OSError, ValueError):
            self.ask = -1
            return []

    def look(self) -> None:
        """Where the main thread is, and how far the collectives are."""
        changes: dict[str, Any] = {}
        c10d = _ready("torch.distributed.distributed_c10d")
        if c10d is None:
            if self.recorder.words.phase < layout.IMPORTED and _ready("torch") is not None:
                changes["phase"] = layout.IMPORTED
        else:
            changes = _standing(c10d)
        changes.update(_main_thread(str(changes.get("operation", ""))))
        if c10d is not None and "phase" not in changes:
            changes["phase"] = layout.JOINED if changes.get("world", -1) != -1 else layout.IMPORTED
        self.recorder.note(**changes)
        if "enqueued" in changes and time.monotonic() > self.keep_next:
            self.keep()

    def keep(self) -> None:
        """A dump in reserve, in case that nobody can be asked later."""
        began = time.monotonic()
        if self.recorder.words.changed_ns > self.kept_ns:
            self.kept_ns = time.time_ns()
            self.dump("kept", frames=False)
        now = time.monotonic()
        self.keep_next = now + max(KEEP_S, 1000 * (now - began))

    def answer(self, request: str) -> None:
        """`quick:ID` for stacks and a dump without frames, `full:ID` for one with frames besides."""
        kind, _, token = request.partition(":")
        if not token.isalnum():
            return
        self.write_stacks(token)
        self.dump(token, frames=False)
        if kind == "full" and (self.aside is None or not self.aside.is_alive()):
            # The first look-up of frames takes seconds, without the interpreter's lock: the beat goes on meanwhile.
            self.aside = threading.Thread(target=self.dump_frames, args=(token,), name="whichrank-frames", daemon=True)
            self.aside.start()

    def dump_frames(self, token: str) -> None:
        try:
            self.dump(f"{token}.frames", frames=True)
        except Exception as error:  # noqa: BLE001 - a watcher never disturbs what it watches
            self.complain(error)

    def write_stacks(self, token: str) -> None:
        import faulthandler

        draft = f"{self.folder}/{self.name}.{token}.part"
        with open(draft, "wb") as stream:  # noqa: PTH123
            faulthandler.dump_traceback(file=stream, all_threads=True)
        os.replace(draft, f"{self.folder}/{self.name}.{token}.stacks")  # noqa: PTH105

    def dump(self, token: str, *, frames: bool) -> None:
        """The flight recorders of this process; nothing where torch has none or no group was made."""
        binding = sys.modules.get("torch._C._distributed_c10d")
        if binding is None or self.recorder.words.phase < layout.JOINING or not self.recorder.words.enqueued:
            return
        for function, kind in _RECORDERS:
            taken = getattr(binding, function, None)
            if taken is None:
                continue
            data = taken(True, frames, False)
            draft = f"{self.folder}/{self.name}.{token}.part"
            with open(draft, "wb") as stream:  # noqa: PTH123
                stream.write(data)
            os.replace(draft, f"{self.folder}/{self.name}.{token}.{kind}")  # noqa: PTH105

    def end(self) -> None:
        """The interpreter is about to end: say how, and leave the evidence of a failure."""
        self.stopped = True
        # Set by the interpreter before any hook for exceptions runs, also one that the script put there.
        error = getattr(sys, "last_value", None)
        if error is None or isinstance(error, KeyboardInterrupt):
            self.recorder.note(phase=layout.ENDED)
        else:
            self.recorder.note(phase=layout.FAILED, error=f"{type(error).__name__}: {error}"[:300])
            import traceback

            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
            with open(f"{self.folder}/{self.name}.error", "w", encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
                stream.write(text[-65536:])
            self.dump("end", frames=False)
        if self.thread is not None and self.thread.is_alive() and self.ask >= 0:
            os.write(self.ask, b"end\n")
            # A thread that is inside torch when the interpreter goes can take the process down with it.
            self.thread.join(2.0)
        if self.aside is not None:
            self.aside.join(5.0)


def _ready(name: str) -> object | None:
    """A module that has been imported whole."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    return None if module is None or getattr(spec, "_initializing", False) else module


def _standing(c10d: object) -> dict[str, Any]:
    """Rank and counters, once there is a group: before, to ask the recorder would fix its settings."""
    group = getattr(getattr(c10d, "_world", None), "default_pg", None)
    if group is None:
        return {}
    found: dict[str, Any] = {"rank": group.rank(), "world": group.size()}
    binding = sys.modules.get("torch._C._distributed_c10d")
    enqueued = completed = pending = 0
    for function, _ in _RECORDERS:
        status = getattr(binding, f"{function}_json", None)
        if status is None:
            continue
        for each in json.loads(status(includeCollectives=False)).get("pg_status", {}).values():
            issued, done = int(each["last_enqueued_collective"]), int(each["last_completed_collective"])
            enqueued, completed = enqueued + max(issued, 0), completed + max(done, 0)
            pending += issued > done
    if not enqueued:  # the recorder is off: the groups still count what they issue
        enqueued = int(group._get_sequence_number_for_group())  # noqa: SLF001
    found.update(enqueued=enqueued, completed=completed, pending=pending)
    return found


def _main_thread(operation: str) -> dict[str, Any]:
    """The innermost line of the training code, and whether the main thread is inside torch.distributed."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    found: dict[str, Any] = {"flags": 0, "operation": operation}
    for _ in range(FRAMES):
        if frame is None:
            break
        code = frame.f_code
        file = code.co_filename
        if file.endswith(("distributed_c10d.py", "distributed/rendezvous.py")):
            found["flags"] = layout.IN_COLLECTIVE
            found["operation"] = code.co_name
            if code.co_name in _JOINING:
                found["phase"] = layout.JOINING
            elif code.co_name in _LEAVING:
                found["phase"] = layout.LEAVING
        elif "site-packages" not in file and not file.startswith(("<frozen", sys.base_prefix, sys.prefix)):
            found["place"] = f"{file}:{frame.f_lineno} {code.co_name}"[-300:]
            break
        elif code.co_name == "_shutdown" and file.endswith("threading.py"):
            found["phase"] = layout.LEAVING
        frame = frame.f_back
    return found


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
        if parent.recorder.words.phase >= layout.JOINED:
            _watch.recorder.note(flags=layout.HELPER)
            return
        _watch.recorder.note(phase=parent.recorder.words.phase)
        if parent.thread is not None:
            _watch.begin()
            for inherited in (parent.ask, parent.stacks):
                if inherited >= 0:
                    os.close(inherited)
    except Exception:  # noqa: BLE001, S110 - a child without words is still a child
        pass


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
    except Exception:  # noqa: BLE001, S110 - a job that can't be watched runs on unwatched
        pass
