"""Files that want to run code or exhaust the machine. As a program: reads them under limits."""

from __future__ import annotations

import json
import os
import pickle
import resource
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.evidence.readers.torchlike import dump, torch_pickle

SENTINEL = "sentinel-of-executed-code"
MEMORY = 512 << 20
P2 = b"\x80\x02"
ENTRY_KEYS = ("frames", "input_sizes", "output_dtypes", "process_group", "profiling_name", "time_created_ns")
TOP_KEYS = ("entries", "pg_config", "pg_status", "version")


class Call:
    """Pickles as a call of a function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def executing() -> dict[str, bytes]:
    touch = Call(os.system, f"touch {SENTINEL}")
    code = Call(eval, f"open('{SENTINEL}', 'w')")
    command = text(f"touch {SENTINEL}")
    top, _ = dump(5)
    found = {f"system-{protocol}": pickle.dumps(touch, protocol) for protocol in range(2, 6)}
    found |= {f"eval-{protocol}": pickle.dumps(code, protocol) for protocol in range(2, 6)}
    found["nested"] = pickle.dumps({**top, "pg_config": {"0": {"ranks": [code]}}}, 4)
    found["in-entry"] = pickle.dumps({**top, "entries": [*top["entries"], {"profiling_name": touch}]}, 2)
    found["global"] = P2 + b"cos\nsystem\n" + command + b"\x85R."
    found["inst"] = P2 + b"(" + command + b"ios\nsystem\n."
    found["obj"] = P2 + b"(cos\nsystem\n" + command + b"o."
    found["newobj"] = P2 + b"cbuiltins\nobject\n)\x81."
    found["build"] = P2 + b"}}b."
    found["persid"], found["binpersid"] = P2 + b"Pid\n.", P2 + b"K\x01Q."
    found["ext1"], found["ext2"] = P2 + b"\x82\x01.", P2 + b"\x83\x01\x00."
    found["ext4"], found["buffer"] = P2 + b"\x84\x01\x00\x00\x00.", b"\x80\x05\x97."
    return found


def doubling(*, tuples: bool) -> bytes:
    """Leaves a list of two lists of two lists… of 2**40 numbers in all."""
    out = b"K\x01\x85q\x000" if tuples else b"](K\x01K\x02eq\x000"
    for n in range(40):
        twice = b"h" + bytes([n]) + b"h" + bytes([n])
        out += (twice + b"\x86" if tuples else b"](" + twice + b"e") + b"q" + bytes([n + 1]) + b"0"
    return out + b"h\x28"


def laughs(key: str, *, tuples: bool) -> bytes:
    """A dump that has such a list under a key, of its own or of its many entries."""
    value = doubling(tuples=tuples)
    if key in TOP_KEYS:
        return P2 + b"}(" + text(key) + value + text("entries" if key != "entries" else "x") + b"]u."
    entries = b"".join(
        b"}(" + text("profiling_name") + text(f"nccl:{n}") + text("pg_id") + b"K\x01" + text(key) + b"h\x28u"
        for n in range(2000)
    )
    return P2 + value + b"0}(" + text("entries") + b"](" + entries + b"eu."


def shared_sizes(rows: int) -> bytes:
    """Many entries, each with thousands of references to one list of dimensions."""
    tensors = b"](" + b"h\x00" * 4096 + b"e"
    entries = (
        b"}(" + text("profiling_name") + text(f"nccl:{n}") + text("input_sizes") + tensors + b"u" for n in range(rows)
    )
    return P2 + b"](" + b"K\x01" * 64 + b"eq\x000}(" + text("entries") + b"](" + b"".join(entries) + b"eu."


def same_entry(times: int) -> bytes:
    made = b"}(" + text("profiling_name") + text("nccl:x") + text("record_id") + b"K\x01uq\x00"
    return P2 + b"}(" + text("entries") + b"](" + made + b"h\x00" * times + b"eu."


def colliding_keys(count: int) -> bytes:
    modulus = (1 << 61) - 1  # hash(n) is n modulo this
    keys = b"".join(b"\x8a\x0c" + (n * modulus).to_bytes(12, "little") + b"N" for n in range(1, count))
    return P2 + b"}(" + text("entries") + b"}(" + keys + b"uu."


def juggled_records() -> bytes:
    """Records that compare equal to a known one, doubled and dropped on the stack afterwards."""
    data = torch_pickle(*dump(60, sites=1, unfinished=0))
    start = data.index(b"u}(", len(data) // 2) + 1
    end = data.index(b"u}(", start) + 1
    return data[:end] + b"2220" + data[start:end] + b"00" + data[end:]


def long_records() -> bytes:
    """Records of the greatest length that is compared, all alike but for the last byte."""
    row = b"}(" + text("profiling_name") + b"h\x00" + text("a") + text("x" * 3900)
    rows = b"".join(row + text("n") + b"J" + struct.pack("<i", n) + b"u" for n in range(8000))
    return P2 + text("nccl:x") + b"q\x000}(" + text("entries") + b"](" + rows + b"eu."


WIDE = b"X" + struct.pack("<I", 1 << 20) + b"a" * ((1 << 20) - 4) + "😀".encode()
EXHAUSTING: dict[str, Callable[[], bytes]] = {
    "memo-bomb": lambda: P2 + b"}r\xf0\xff\xff\xff.",
    "memo-flood": lambda: P2 + b"](" + b"".join(b"Nr" + struct.pack("<I", n) for n in range(900_000)) + b"e.",
    "memoize-flood": lambda: P2 + b"N" + b"\x94" * 3_000_000 + b".",
    "marks": lambda: P2 + b"(" * 1_000_000 + b".",
    "lists": lambda: P2 + b"]" * 5_000_000 + b".",
    "deep-lists": lambda: P2 + b"](" * 1_000_000 + b".",
    "deep-tuples": lambda: P2 + b")" + b"\x85" * 1_000_000 + b".",
    "dicts": lambda: P2 + b"](" + b"}K\x01K\x02s" * 1_100_000 + b"e.",
    "numbers": lambda: P2 + b"](" + b"M\xff\xff" * 5_000_000 + b"e.",
    "long-string": lambda: P2 + b"X\xff\xff\xff\x7f" + b"a" * 100,
    "longer-string": lambda: b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f" + b"a",
    "negative-length": lambda: P2 + b"T\xff\xff\xff\xff.",
    "wide-strings": lambda: P2 + b"](" + WIDE * 60 + b"e.",
    "long-integer": lambda: P2 + b"\x8b" + struct.pack("<i", 30_000_000) + b"\x01" * 30_000_000 + b".",
    "integer-text": lambda: P2 + b"I" + b"9" * 5_000_000 + b"\n.",
    "collisions": partial(colliding_keys, 60_000),
    "tuple-keys": lambda: P2 + b"}(" + doubling(tuples=True) + b"Nu.",
    "setitems": lambda: P2 + b"}" + b"(K\x01Nu" * 500_000 + b".",
    "self": lambda: P2 + b"}(" + text("entries") + b"]q\x00(h\x00h\x00eu.",
    "self-frames": lambda: (
        P2 + b"}(" + text("entries") + b"](}q\x01(" + text("profiling_name") + b"N" + text("frames") + b"](h\x01eueu."
    ),
    "shared-sizes": partial(shared_sizes, 600),
    "same-entry": partial(same_entry, 1_500_000),
    "juggled-records": juggled_records,
    "long-records": long_records,
    "json-lists": lambda: b'{"pg_config":{},"entries":[' + b"[]," * 5_000_000 + b"[]]}",
    "json-deep": lambda: b'{"pg_config":' + b"[" * 2_000_000,
    "json-open": lambda: b'{"pg_config":{},"entries":[' + b'{"a":1},' * 1_000_000,
    "json-number": lambda: b'{"pg_config":{},"entries":[' + b"9" * 3_000_000 + b"]}",
    **{f"laughs-{key}": partial(laughs, key, tuples=False) for key in TOP_KEYS + ENTRY_KEYS},
    **{f"tuple-laughs-{key}": partial(laughs, key, tuples=True) for key in TOP_KEYS + ENTRY_KEYS},
}
# What takes seconds until a limit is reached; one such is read in every run of the tests.
LONG = ("dicts", "lists", "setitems", "deep-tuples", "shared-sizes", "json-open")
SHORT = tuple(name for name in EXHAUSTING if name not in LONG)


def main() -> None:
    """Read each case of a folder with so much address space and no more; print what happened."""
    from whichrank.evidence.readers import flight_recorder
    from whichrank.model.contracts import Item
    from whichrank.model.errors import UnreadableError

    results = {}
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for path in sorted(Path(sys.argv[1]).glob("*.case")):
        began = time.process_time()
        try:
            reading = flight_recorder.read(Item(path, path.name, path.stat().st_size, 0))
            said = f"{reading.quality}: {reading.note}"
        except UnreadableError as error:
            said = f"refused: {error.message}"
        except MemoryError:
            said = "out of memory"
        results[path.stem] = said, time.process_time() - began
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main()
