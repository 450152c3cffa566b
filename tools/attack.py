"""Damaged evidence through every reader, and damaged frames through the leader's protocol: nothing may escape.

    python tools/attack.py [--seconds 3600] [--seed 1] [--executions 0] [--jobs CORES] [READER ...]

Plain random damage, one process per core; `tools/fuzz.py` looks longer at each. Every reader and the protocol get the
same share of the CPU, so that a reader which is ten times as fast sees ten times as many inputs. The run fails if
anything but a clean refusal is raised, one input takes more than 60 s of CPU, or memory grows beyond 1 GB.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
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
GOAL = 2_000_000
"""Executions in an hour."""
LARGEST = 1 << 14
BATCH = 8
"""Inputs for one target before another is chosen."""
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
    cpu_s: Counter[str] = field(default_factory=Counter)
    total: int = 0
    refused: int = 0
    worst_s: float = 0.0
    worst: str = ""
    peak_bytes: int = 0

    def add(self, other: Result) -> None:
        """What another process did at the same time."""
        self.executions += other.executions
        self.cpu_s += other.cpu_s
        self.total += other.total
        self.refused += other.refused
        self.worst_s, self.worst = max((self.worst_s, self.worst), (other.worst_s, other.worst))
        self.peak_bytes += other.peak_bytes


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


def part_of(dice: random.Random, data: bytes) -> bytes:
    """The beginning of a sample: all of it, or less. Most defects need few bytes, and few bytes are read faster."""
    return data[: 1 << dice.randrange(6, 15)]


def attack(
    seconds: float,
    seed: int = 1,
    executions: int = 0,
    names: tuple[str, ...] = (),
    *,
    packed_too: bool = True,
    most_bytes: int = MOST_BYTES,
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
    memory = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        path = Path(folder) / "rank_3.log"
        targets = {reader.NAME: _at_reader(reader, pile, path, dice, result) for reader, pile in samples.items()}
        targets["protocol"] = lambda: _frames(dice, damaged(dice, dice.choice(FRAMES), dice.choice(FRAMES)))
        targets["intake"] = _at_intake([data for pile in samples.values() for data in pile], path, dice)
        while time.monotonic() < stop and (not executions or result.total < executions):
            # Whoever had the least time so far.
            name = min(targets, key=lambda name: result.cpu_s[name])
            _timed(result, name, targets[name])
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > most_bytes:
                raise MemoryError(f"{name}: more than {most_bytes >> 20} MiB")
    result.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return result


def _at_reader(
    reader: Reader, pile: list[bytes], path: Path, dice: random.Random, result: Result
) -> Callable[[], None]:
    def once() -> None:
        path.write_bytes(damaged(dice, part_of(dice, dice.choice(pile)), dice.choice(pile)))
        _read(reader, path, result)

    return once


def _at_intake(pile: list[bytes], path: Path, dice: random.Random) -> Callable[[], None]:
    def once() -> None:
        path.write_bytes(damaged(dice, part_of(dice, dice.choice(pile)), dice.choice(pile)))
        _taken(path)

    return once


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
    for _ in range(BATCH):
        began = time.thread_time()
        call()
        took = time.thread_time() - began
        result.executions[name] += 1
        result.total += 1
        result.cpu_s[name] += took  # type: ignore[assignment]
        if took > result.worst_s:
            result.worst_s, result.worst = took, name
        if took > MOST_S:
            raise TimeoutError(f"{name}: {took:.0f} s for one input")


def attack_on_all_cores(seconds: float, seed: int, executions: int, names: tuple[str, ...], jobs: int) -> Result:
    """One process per core, each with damage of its own; the bound on memory holds for all of them together."""
    whole = Result()
    with ProcessPoolExecutor(jobs) as pool:
        started = [
            pool.submit(attack, seconds, seed + number, executions // jobs, names, most_bytes=MOST_BYTES // jobs)
            for number in range(jobs)
        ]
        for one in started:
            whole.add(one.result())
    return whole


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER")
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--executions", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    began = time.monotonic()
    result = attack_on_all_cores(asked.seconds, asked.seed, asked.executions, tuple(asked.readers), asked.jobs)
    took, cpu = time.monotonic() - began, sum(result.cpu_s.values())
    for name, count in sorted(result.executions.items()):
        print(f"{name:20} {count:>12,}")
    print(
        f"{result.total:,} executions in {took:.0f} s ({result.total / took:,.0f} a second, {result.total / cpu:,.0f} "
        f"a second of CPU), {result.refused:,} refused"
    )
    hourly = result.total / cpu * 3600 * asked.jobs
    print(f"at this rate {hourly:,.0f} in an hour on {asked.jobs} cores that do nothing else (goal: {GOAL:,})")
    print(
        f"nothing escaped; memory {result.peak_bytes >> 20} MiB; the slowest input took {result.worst_s * 1000:.0f} ms "
        f"({result.worst})"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
