"""Waits for the end of the drill that started it, and cleans up after it: python -m whichrank.lab.guardian."""

from __future__ import annotations

import signal
import sys

from whichrank.lab.place import sweep


def main() -> None:
    # A Ctrl-C goes to the whole terminal; the one who cleans up stays.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep()


if __name__ == "__main__":
    main()
