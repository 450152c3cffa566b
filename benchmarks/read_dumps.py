"""CPU time to read flight-recorder dumps: read_dumps.py [FOLDER] [--ranks 64] [--entries 2000].

Without a folder it writes dumps of torch's shape: 12 call sites of 10 frames in three groups. The C
implementation of pickle.loads on the same bytes is timed beside, as a measure of the machine.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.evidence.readers.torchlike import entry, frames, torch_pickle  # noqa: E402
from whichrank.evidence.readers import flight_recorder  # noqa: E402 - imported before timing
from whichrank.model.contracts import Item  # noqa: E402

SITES = 12


def write(folder: Path, ranks: int, entries: int) -> None:
    stacks = [frames(site, depth=10) for site in range(SITES)]
    shared = [frame for stack in stacks for frame in stack]
    made = [entry(n, n % SITES, stacks[n % SITES], n // 3 + 1) for n in range(entries)]
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    data = torch_pickle({"version": "2.10", "pg_config": config, "entries": made}, shared)
    for rank in range(ranks):
        (folder / f"fr_{rank}").write_bytes(data)


def measure(folder: Path) -> dict[str, float]:
    paths = sorted(path for path in folder.iterdir() if path.is_file())
    began = time.process_time()
    entries = 0
    for path in paths:
        reading = flight_recorder.read(Item(path, path.name, 0, 0))
        entries += len(reading.records[0])
    read = time.process_time() - began
    spent = 0.0
    for path in paths[:16]:
        data = path.read_bytes()
        began = time.process_time()
        pickle.loads(data)
        spent += time.process_time() - began
    return {
        "dumps": len(paths),
        "entries": entries,
        "cpu_s": round(read, 3),
        "us_per_entry": round(read / entries * 1e6, 2),
        "pickle_loads_ms_per_dump": round(spent / len(paths[:16]) * 1e3, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="dumps that you trust; without it some are made")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--entries", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        print(json.dumps(measure(arguments.folder)))
        return
    with tempfile.TemporaryDirectory() as made:
        write(Path(made), arguments.ranks, arguments.entries)
        print(json.dumps(measure(Path(made))))


if __name__ == "__main__":
    main()
