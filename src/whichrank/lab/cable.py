"""A cable that can be made longer: two TAP devices with a process between them: python -m whichrank.lab.cable.

The kernels of some machines have no queue that delays packets. This carries each frame from one end to the other after
the time that its input names (`20` for 20 ms each way), and ends when its input does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

from whichrank.lab.workloads.host import join_network

_SET_INTERFACE, _TAP, _BARE = 0x400454CA, 0x0002, 0x1000
_FRAME = 1 << 16
_BATCH = 64
READY = "ready\n"


class End:
    """One end of the cable, and the frames that are on their way to it."""

    def __init__(self, namespace: str, device: str) -> None:
        join_network(namespace)
        self.fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.ioctl(self.fd, _SET_INTERFACE, struct.pack("16sH", device.encode(), _TAP | _BARE))
        self.coming: deque[tuple[float, bytes]] = deque()

    def take(self, other: End, delay_s: float) -> None:
        """Frames that were sent into this end, towards the other."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BATCH):
                other.coming.append((time.monotonic() + delay_s, os.read(self.fd, _FRAME)))

    def give(self, now: float) -> None:
        """Hand over what has been on its way for long enough."""
        while self.coming and self.coming[0][0] <= now:
            # An end that is down takes nothing: what does not get out is lost, as on any cable.
            with contextlib.suppress(OSError):
                os.write(self.fd, self.coming[0][1])
            self.coming.popleft()


def carry(one: End, other: End) -> None:
    """Until the input ends."""
    delay_s = 0.0
    while True:
        due = [end.coming[0][0] for end in (one, other) if end.coming]
        patience = max(0.0, min(due) - time.monotonic()) if due else None
        ready, _, _ = select.select([0, one.fd, other.fd], [], [], patience)
        if 0 in ready:
            words = os.read(0, 64).split()
            if not words:
                return
            delay_s = float(words[-1]) / 1000
        if one.fd in ready:
            one.take(other, delay_s)
        if other.fd in ready:
            other.take(one, delay_s)
        now = time.monotonic()
        one.give(now)
        other.give(now)


def main() -> None:
    first, second = (End(*place.split(",")) for place in sys.argv[1:3])
    sys.stdout.write(READY)
    sys.stdout.flush()
    carry(first, second)


if __name__ == "__main__":
    main()
