"""The last words of a process: what a rank leaves behind whatever becomes of it.

A small file, mapped by the process that writes it: two slots, written in turn, each with its checksum. A process
that is killed in the middle of a write leaves the other slot whole. This module is copied into a job whose Python
may be older and may not have whichrank: the standard library alone, and nothing else of the package.
"""

from __future__ import annotations

import binascii
import struct
from typing import NamedTuple

MAGIC = b"WHRKLW04"
SLOT = 1024
SIZE = 2 * SLOT
SUFFIX = ".words"

STARTED, IMPORTING, IMPORTED, JOINING, JOINED, LEAVING, ENDED, FAILED, LEFT = range(9)
PHASES = ("started", "importing torch", "torch imported", "joining", "joined", "leaving", "ended", "failed", "left")
"""What a process has reached; "joining" is inside the creation of a process group, "leaving" in its destruction, "left"
behind it while the process goes on."""

HELPER = 1
"""Forked from a rank after its group was made: a data loader's worker, no rank."""
IN_COLLECTIVE = 2
"""The main thread is inside a function of torch.distributed."""
BLIND = 4
"""The thread that writes has ended after an error of its own: what is said here is old."""
GUESSED = 8
"""The rank is the number of the scheduler's task, which scripts take for it: nothing else says so yet."""

BELOW = 16
"""Started by a process that was given the same rank: its helper, or what the other is a wrapper of."""

_TEXTS = 6
"""At the end: operation, place in the code, error, long work, activity, busy place."""
_FORM = struct.Struct("<8sIQIIQiiiIIIQQQqqQIiQQQQQI64s320s320s24s24s100s")


class Words(NamedTuple):
    """One slot. Times are nanoseconds since 1970; ranks and sizes are -1 where they are not known."""

    beat: int = 0
    """How often it was written."""
    pid: int = 0
    parent: int = 0
    start_ticks: int = 0
    """Start of the process by /proc/PID/stat: with the pid it names one process forever."""
    rank: int = -1
    local_rank: int = -1
    world: int = -1
    attempt: int = 0
    phase: int = STARTED
    flags: int = 0
    started_ns: int = 0
    beat_ns: int = 0
    changed_ns: int = 0
    """When the counters or the phase last changed."""
    enqueued: int = 0
    """Operations issued, over all groups and recorders."""
    completed: int = 0
    pending: int = 0
    """Groups in which something was issued and is not complete."""
    stack_fd: int = -1
    """The descriptor that faulthandler writes to on `stack_signal`; -1 for none."""
    stack_signal: int = 0
    still_ns: int = 0
    """Since when the main thread has been at the same instruction, in the same calls."""
    fresh_ns: int = 0
    """When the main thread was found, last but once, at a line where it had not been since the last progress."""
    stuck_ns: int = 0
    """Since when the group that has waited longest neither issues nor completes; 0 where nothing is pending."""
    steps: int = 0
    """Of optimizers; 0 also where nobody could count them."""
    looks: int = 0
    """How often the main thread was looked at."""
    waits: int = 0
    """How often it waited for other ranks then."""
    thread: int = 0
    """The thread that writes this, as the kernel numbers it: what it does is not work of the job; 0 for none."""
    operation: str = ""
    place: str = ""
    """The innermost line of the training code, as `file:line function`."""
    error: str = ""
    work: str = ""
    """What takes long by its nature and the main thread is in: "checkpoint", "compile"…; empty for none."""
    activity: str = ""
    """What part of a step the main thread is in: "data loading", "forward", "backward"…; empty where unknown."""
    busy_at: str = ""
    """Where it is found most often while it does not wait, as `file:line function` without folders."""

    @property
    def is_rank(self) -> bool:
        # Any program of a task has its number; only one that uses torch may be a rank.
        guessed = self.flags & GUESSED and self.phase < IMPORTING
        return self.rank >= 0 and not self.flags & HELPER and not guessed

    @property
    def has_joined(self) -> bool:
        """Whether it is or was in a process group."""
        return self.phase in (JOINED, LEAVING, LEFT) or self.enqueued > 0

    @property
    def waiting(self) -> bool:
        """Whether it is inside something that needs the other ranks."""
        return self.pending > 0 or self.phase in (JOINING, LEAVING) or bool(self.flags & IN_COLLECTIVE)


def pack(words: Words) -> bytes:
    """The words as one slot."""
    body = _FORM.pack(
        MAGIC,
        words.pid & 0xFFFFFFFF,
        words.beat,
        words.parent & 0xFFFFFFFF,
        words.attempt & 0xFFFFFFFF,
        words.start_ticks,
        words.rank,
        words.local_rank,
        words.world,
        words.phase,
        words.flags,
        words.pending & 0xFFFFFFFF,
        words.started_ns,
        words.beat_ns,
        words.changed_ns,
        words.enqueued,
        words.completed,
        words.steps,
        words.stack_signal,
        words.stack_fd,
        words.still_ns,
        words.fresh_ns,
        words.stuck_ns,
        words.looks,
        words.waits,
        words.thread & 0xFFFFFFFF,
        *[str(text).encode("utf-8", "replace") for text in words[-_TEXTS:]],
    ).ljust(SLOT - 4, b"\0")
    return body + struct.pack("<I", binascii.crc32(body))


def unpack(slot: bytes) -> Words | None:
    """The words of a slot; None where it is empty, torn or something else."""
    if len(slot) != SLOT or slot[:8] != MAGIC or struct.unpack("<I", slot[-4:])[0] != binascii.crc32(slot[:-4]):
        return None
    n = _FORM.unpack_from(slot)
    texts = [text.rstrip(b"\0").decode("utf-8", "replace") for text in n[-_TEXTS:]]
    phase = n[9] if n[9] < len(PHASES) else STARTED
    return Words(
        n[2], n[1], n[3], n[5], n[6], n[7], n[8], n[4], phase, n[10], n[12], n[13], n[14], n[15], n[16], n[11],
        n[19], n[18], n[20], n[21], n[22], n[17], n[23], n[24], n[25], *texts,
    )  # fmt: skip


def newest(data: bytes) -> Words | None:
    """The newest whole slot of a file. The other one is only looked at where the newest is torn."""
    slots = [data[:SLOT], data[SLOT:SIZE]]
    for slot in sorted(slots, key=_beat, reverse=True):
        words = unpack(slot)
        if words is not None:
            return words
    return None


def _beat(slot: bytes) -> int:
    """What a slot says of its age, whole or not."""
    return int(_FORM.unpack_from(slot)[2]) if len(slot) == SLOT else -1
