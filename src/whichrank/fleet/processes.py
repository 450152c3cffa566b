"""Worker processes that are given one item at a time, so that a death names its item."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, TypeVar

from msgspec import Struct, field

from whichrank.fleet.local import Failure, attempt

T = TypeVar("T")
R = TypeVar("R")


class _Worker(Struct):
    process: Any
    connection: Connection[Any, Any]
    item: int


class Pool(Struct, Generic[T, R]):
    """The workers, and what they have still to do."""

    function: Callable[[T], R]
    items: Sequence[T]
    progress: Callable[[int, int], None] | None
    workers: list[_Worker] = field(default_factory=list)

    def run(self, count: int) -> list[R | Failure]:
        total = len(self.items)
        waiting = iter(range(total))
        results: dict[int, R | Failure] = {}
        for _ in range(count):
            self._start(next(waiting))
        while len(results) < total:
            ready = set(wait([worker.connection for worker in self.workers]))
            for worker in [w for w in self.workers if w.connection in ready]:
                results[worker.item] = self._result(worker)
                self._next(worker, next(waiting, None))
                if self.progress is not None:
                    self.progress(len(results), total)
        return [results[index] for index in range(total)]

    def end(self) -> None:
        """End the children, whatever they are doing: their results are in or not wanted."""
        for worker in self.workers:
            worker.connection.close()
            worker.process.kill()
        for worker in self.workers:
            worker.process.join()

    def _start(self, item: int) -> None:
        # Forked workers share the items without copying; elsewhere they are sent along.
        forked = sys.platform == "linux"
        context: Any = get_context("fork" if forked else None)
        ours, theirs = context.Pipe()
        # A forked worker inherits our ends of all pipes; it must close them, or it would not notice our end.
        inherited = [ours, *(worker.connection for worker in self.workers)] if forked else []
        arguments = (self.function, self.items, item, theirs, inherited)
        process = context.Process(target=_serve, args=arguments, daemon=True)
        # Ctrl-C between the start and the list would leave a worker that nobody ends.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
            self.workers.append(_Worker(process, ours, item))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def _next(self, worker: _Worker, item: int | None) -> None:
        """Give the worker its next item; a dead one is replaced."""
        if item is None:
            self._dismiss(worker)
            return
        worker.item = item
        try:
            worker.connection.send(item)
        except OSError:
            self._dismiss(worker)
            self._start(item)

    def _dismiss(self, worker: _Worker) -> None:
        worker.connection.close()
        worker.process.join()
        self.workers.remove(worker)

    def _result(self, worker: _Worker) -> R | Failure:
        try:
            result: R | Failure = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            return Failure(_death(worker.process.exitcode), crashed=True)
        return result


def _serve(
    function: Callable[[T], R],
    items: Sequence[T],
    index: int,
    connection: Connection[Any, Any],
    inherited: Sequence[Connection[Any, Any]],
) -> None:
    """The life of a worker: an index in, a result out, until the other side is gone."""
    # Ctrl-C goes to the whole group of processes; the parent alone decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in inherited:
        other.close()

    def packed(item: T) -> Any:
        return ForkingPickler.dumps(function(item))

    try:
        while True:
            result = attempt(packed, items[index])
            connection.send_bytes(ForkingPickler.dumps(result) if isinstance(result, Failure) else result)
            index = connection.recv()
    except (EOFError, OSError):
        return


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        hint = " (out of memory?)" if -code == signal.SIGKILL else ""
        return f"the process reading it was ended by {name}{hint}"
    return f"the process reading it ended with code {code}"
