"""Damaged evidence through every reader, and damaged frames through the leader's protocol: nothing may escape.

    python tools/attack.py [--seconds 3600] [--seed 1] [--executions 0] [READER ...]

Plain random damage in one process, some thousand executions a second; `tools/fuzz.py` looks longer at each. The run
fails if anything but a clean refusal is raised, one input takes more than 60 s of CPU, or memory grows beyond 1 GB.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.fuzz import claimed
from whichrank.evidence.intake import collect, discover_readers
from whichrank.model.contracts import Item, Reader
from whichrank.model.errors import UnreadableError
from whichrank.run.nodes import protocol, wire

MOST_S, MOST_BYTES = 60.0, 1 << 30
LARGEST = 1 << 14
MESSAGES = (
    protocol.Beat, protocol.Answer, protocol.Request, protocol.Opening, protocol.Closing, protocol.Receipt,
    protocol.Listing, wire.Hello, wire.Join, wire.Welcome,
)  # fmt: skip
FRAMES = (
    b'{"sent_ns":1,"snapshot":null,"ahead_s":0.1}', b'{"sent_ns":1,"arrived_ns":2,"answered_ns":3}',
    b'{"what":"capture","token":"a-1","attempt":2}', b'[{"name":"n1","ranks":[0,1]}]', b'{"token":"a","final":true}',
    b'{"size":12,"why":""}', b'{"nonce":"00","version":1}', b'{"name":"n","instance":"i","nonce":"0","proof":"0"}',
)  # fmt: skip
ODD = (
    b"\0",
    b"\xff",
    b"\n" * 50,
    b"{",
    b"[" * 200,
    b'"',
    b"9" * 40,
    b"-1",
    b"\x80\x02",
    b"rank",
    b"nan",
    b"\xe2\x80\xae",
    b"A" * 5000,
)


@dataclass
class Result:
    """What came of it."""

    executions: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    worst_s: float = 0.0
    worst: str = ""

    @property
    def total(self) -> int:
        return sum(self.executions.values())


def damaged(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """A sample with some of it gone, changed, doubled, or of another."""
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(data) + 1)
        end = min(len(data), at + dice.choice((1, 4, 40, 400)))
        kind = dice.randrange(6)
        if kind == 0:
            data = data[:at]
        elif kind == 1:
            data = data[:at] + data[end:]
        elif kind == 2:
            data = data[:at] + dice.randbytes(dice.randrange(9)) + data[end:]
        elif kind == 3:
            data = data[:at] + dice.choice(ODD) + data[at:]
        elif kind == 4:
            data = data[:end] + data[at:]
        else:
            cut = dice.randrange(len(other) + 1)
            data = data[:at] + other[cut : cut + 400] + data[end:]
    return data[: 4 * LARGEST]


def attack(
    seconds: float, seed: int = 1, executions: int = 0, names: tuple[str, ...] = (), *, packed_too: bool = True
) -> Result:
    """Go on for so long, or so often where that is said."""
    dice, result = random.Random(seed), Result()  # noqa: S311 - the same damage for the same seed
    chosen = [reader for reader in discover_readers() if not names or reader.NAME in names]
    samples = {
        reader: [data[:LARGEST] for data in found]
        for reader, found in claimed(chosen, packed_too=packed_too).items()
        if found
    }
    stop = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rank_3.log"
        while time.monotonic() < stop and (not executions or result.total < executions):
            for reader, pile in samples.items():
                data = damaged(dice, dice.choice(pile), dice.choice(pile))
                path.write_bytes(data)
                _timed(result, reader.NAME, lambda reader=reader: _read(reader, path, result))
            for _ in range(len(samples)):
                frame = damaged(dice, dice.choice(FRAMES), dice.choice(FRAMES))
                _timed(result, "protocol", lambda frame=frame: _frames(dice, frame))
            if dice.randrange(20) == 0:
                _timed(result, "intake", lambda: _taken(path))
    return result


def _read(reader: Reader, path: Path, result: Result) -> None:
    try:
        reader.read(Item(path, path.name, path.stat().st_size, result.total))
    except UnreadableError:
        result.refused += 1


def _frames(dice: random.Random, payload: bytes) -> None:
    """What a stranger sends, and what a message says that came through."""
    stream = wire.Stream()
    if dice.randrange(2):
        stream.seal(b"a" * 32, b"b" * 32)
    head = len(payload).to_bytes(4, "big") + bytes((dice.randrange(16),))
    with suppress(wire.WireError):
        for _ in stream.feed(damaged(dice, head + payload, payload) if dice.randrange(2) else head + payload):
            pass
    for kind in MESSAGES:
        protocol.read(kind, payload)  # type: ignore[arg-type]


def _taken(path: Path) -> None:
    with collect([path]) as intake:
        if not intake.items and not intake.refused:
            raise AssertionError("a file was neither taken nor refused")


def _timed(result: Result, name: str, call: Callable[[], None]) -> None:
    began = time.thread_time()
    call()
    took = time.thread_time() - began
    result.executions[name] += 1
    if took > result.worst_s:
        result.worst_s, result.worst = took, name
    if took > MOST_S:
        raise TimeoutError(f"{name}: {took:.0f} s for one input")
    if result.total % 1000 == 0 and resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MOST_BYTES:
        raise MemoryError(f"{name}: more than {MOST_BYTES >> 20} MiB")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executions", type=int, default=0)
    asked = parser.parse_args()
    began = time.monotonic()
    result = attack(asked.seconds, asked.seed, asked.executions, tuple(asked.readers))
    took = time.monotonic() - began
    for name, count in sorted(result.executions.items()):
        print(f"{name:20} {count:>12,}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{result.total:,} executions in {took:.0f} s ({result.total / took:,.0f} a second), {result.refused:,} refused"
    )
    print(
        f"nothing escaped; memory {memory} MiB; the slowest input took {result.worst_s * 1000:.0f} ms ({result.worst})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
