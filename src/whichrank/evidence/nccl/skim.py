"""Messages that hold nothing of use, told by a glance: most of a log with every subsystem on."""

from __future__ import annotations

from whichrank.evidence.nccl.messages import matters

_INFO = b" NCCL INFO "
_HEADS = 8192

Glance = tuple[int, bytes]
"""Index of the process, and the message."""


class Skimmer:
    """Remembers which process prints which prefix."""

    def __init__(self) -> None:
        self._heads: dict[bytes, int] = {}

    def learn(self, line: bytes, process: int) -> None:
        """This line, with one message only, was read: its prefix belongs to this process."""
        end = line.find(_INFO)
        if end > 0 and line[end - 1] == ord("]"):
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            self._heads[_head(line, end)] = process

    def glance(self, line: bytes) -> Glance | None:
        """Process and message of a line that needs no reading; None for one that does."""
        end = line.find(_INFO)
        process = self._heads.get(_head(line, end)) if end > 0 else None
        if process is None:
            return None
        message = line[end + len(_INFO) :]
        return None if matters(message) else (process, message)


def _head(line: bytes, end: int) -> bytes:
    """ "host:pid:tid [device]", with what a launcher put before it without a space."""
    return line[line.rfind(b" ", 0, line.rfind(b" ", 0, end)) + 1 : end]
