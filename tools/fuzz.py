"""Damage recorded evidence at random and read it: nothing but a clean refusal may happen.

    python tools/fuzz.py [--seconds 600] [READER ...]

Samples are those of the tests, the packed ones too. Every reader gets the samples it claims, damaged by hypothesis:
cut, spliced with others, bytes changed, pieces doubled or made very long. An exception other than UnreadableError, or
a reading that takes more than ten seconds, ends the run with the damaged file kept.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from whichrank.evidence.intake import discover_readers
from whichrank.model.contracts import Item, Reader
from whichrank.model.errors import UnreadableError

SAMPLES = Path(__file__).resolve().parent.parent / "tests" / "samples"
TOO_LONG = 10.0
BATCH = 500
LARGEST = 1 << 20
MOST = 200


def edits() -> st.SearchStrategy[list[tuple[str, float, float, bytes]]]:
    kinds = st.sampled_from(["cut", "delete", "change", "insert", "double", "splice", "repeat"])
    return st.lists(
        st.tuples(kinds, st.floats(0, 1), st.floats(0, 0.2), st.binary(max_size=24)), min_size=1, max_size=6
    )


def damaged(data: bytes, other: bytes, steps: list[tuple[str, float, float, bytes]]) -> bytes:
    for kind, where, length, piece in steps:
        start = int(where * len(data))
        end = start + int(length * len(data))
        if kind == "cut":
            data = data[:start]
        elif kind == "delete":
            data = data[:start] + data[end:]
        elif kind == "change":
            data = data[:start] + piece + data[start + len(piece) :]
        elif kind == "insert":
            data = data[:start] + piece + data[start:]
        elif kind == "double":
            data = data[:end] + data[start:]
        elif kind == "splice":
            data = data[:start] + other[int(where * len(other)) :] + data[end:]
        else:
            data = data[:start] + data[start : start + 40] * 400 + data[start:]
    return data[: 4 << 20]


def fuzz(reader: Reader, samples: list[bytes], seconds: float, folder: Path) -> tuple[int, float]:
    target = folder / "rank_3.txt"
    count, worst = 0, 0.0
    stop = time.monotonic() + seconds

    @settings(
        max_examples=BATCH,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.sampled_from(samples), st.sampled_from(samples), edits())
    def attempt(data: bytes, other: bytes, steps: list[tuple[str, float, float, bytes]]) -> None:
        nonlocal count, worst
        if time.monotonic() > stop:
            return
        target.write_bytes(damaged(data, other, steps))
        began = time.process_time()
        with suppress(UnreadableError):
            reader.read(Item(target, "rank_3.txt", target.stat().st_size, 1_790_000_000_000_000_000))
        took = time.process_time() - began
        count, worst = count + 1, max(worst, took)
        if took >= TOO_LONG:
            raise TimeoutError(f"{took:.1f} s")

    number = 0
    while time.monotonic() < stop:
        number += 1
        seed(number)(attempt)()
    return count, worst


def claimed(readers: list[Reader], *, packed_too: bool = True) -> dict[Reader, list[bytes]]:
    """What every reader says that it can read, of a handy size."""
    found: dict[Reader, list[bytes]] = {reader: [] for reader in readers}
    with tempfile.TemporaryDirectory() as unpacked:
        for archive in sorted(SAMPLES.rglob("*.tar.*")) if packed_too else ():
            with tarfile.open(archive) as packed:
                packed.extractall(Path(unpacked, archive.name), filter="data")
        files = [path for top in (SAMPLES, Path(unpacked)) for path in sorted(top.rglob("*")) if path.is_file()]
        for path in files:
            if "ORIGIN" in path.name or path.stat().st_size > LARGEST:
                continue
            data = path.read_bytes()
            for reader in readers:
                if reader.sniff(data[:4096], path.name):
                    found[reader].append(data)
    return {reader: all_[:: -(-len(all_) // MOST) or 1] for reader, all_ in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", metavar="READER")
    parser.add_argument("--seconds", type=float, default=600)
    asked = parser.parse_args()
    chosen = [reader for reader in discover_readers() if not asked.readers or reader.NAME in asked.readers]
    for reader, samples in claimed(chosen).items():
        if not samples:
            print(f"{reader.NAME}: no samples")
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                count, worst = fuzz(reader, samples, asked.seconds, Path(folder))
            except Exception:
                kept = Path(tempfile.mkdtemp(prefix="fuzz-")) / "rank_3.txt"
                kept.write_bytes((Path(folder) / "rank_3.txt").read_bytes())
                print(f"{reader.NAME}: failed on {kept}")
                raise
        print(
            f"{reader.NAME}: {count:,} damaged files in {asked.seconds:.0f} s, the slowest took {worst * 1000:.0f} ms",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
