"""How fast NCCL logs are read, and whether the stopped process is found: one log per rank, written here.

    python benchmarks/read_nccl_logs.py [--ranks 64] [--mb 1000] [--constant] [--merged] [FOLDER]

With FOLDER, the logs there are read instead. Prints CPU seconds, nanoseconds per byte, peak memory and
the processes with the fewest calls on each communicator.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from whichrank.evidence.readers import nccl_log
from whichrank.model.contracts import Item
from whichrank.records.nccl import NcclLog

FUNCTIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
INIT = "ncclCommInitRank comm {comm} rank {rank} nranks {ranks} cudaDev 0 nvmlDev 0 busId 1b commId {id}"


def write_logs(folder: Path, ranks: int, size: int, *, constant: bool, merged: bool) -> int:
    """Write the logs of a job in which one rank stops three calls early; its rank."""
    culprit = ranks * 5 // 8
    calls = size // ranks // 190
    for rank in range(ranks):
        prefix = f"gpu-node-{rank // 8:03d}:{41000 + rank * 17}:{42000 + rank * 17} [{rank % 8}] NCCL INFO "
        comm = f"{0x7F00C8A1B2F0 + rank * 0x1000:#x}"
        init = prefix + INIT.format(comm=comm, rank=rank, ranks=ranks, id="0xa1b2c3d4e5f60718")
        lines = [init + " - Init START", init + " - Init COMPLETE"]
        for number in range(calls - 3 * (rank == culprit)):
            counter = 0 if constant else number
            buffer = 0x7F2A00000000 + number % 64 * 4096
            lines.append(
                f"{prefix}{FUNCTIONS[number * 7 % 4]}: opCount {counter:x} sendbuff {buffer:#x} "
                f"recvbuff {buffer + 512:#x} count {number % 5 * 4096 + 1} datatype 7 op 0 root 0 "
                f"comm {comm} [nranks={ranks}] stream 0x7a0010"
            )
            if number % 50 == 49:
                lines.append(f"[rank{rank}] step {number // 50} loss 2.5 lr 3.0e-04")
        name = f"nccl.node{rank // 8}.log" if merged else f"nccl.{rank}.log"
        with (folder / name).open("a") as out:
            out.write("\n".join(lines) + "\n")
    return culprit


def measure(folder: Path) -> None:
    """Read every log of the folder and print what it cost."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    size = 0
    totals: dict[str | None, list[tuple[int, int | None, str]]] = defaultdict(list)
    begin = time.process_time()
    for path in paths:
        status = path.stat()
        size += status.st_size
        for log in nccl_log.read(Item(path, path.name, status.st_size, status.st_mtime_ns)).records:
            assert isinstance(log, NcclLog)
            for calls in log.calls:
                totals[calls.comm_id].append((calls.total, calls.rank, calls.process.label))
    spent = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    out = sys.stdout.write
    out(f"{size / 1e6:.0f} MB in {len(paths)} files: {spent:.2f} s CPU, {spent / size * 1e9:.2f} ns/byte, ")
    out(f"peak {peak:.0f} MB\n")
    for comm_id, items in totals.items():
        fewest = min(items)[0]
        behind = [f"rank {rank} ({label})" for total, rank, label in items if total == fewest]
        out(f"communicator {comm_id}: {max(items)[0]} calls; {fewest} on {', '.join(behind[:4])}\n")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--mb", type=int, default=1000)
    parser.add_argument("--constant", action="store_true", help="opCount stays 0, as on NVLink since 2.27.3")
    parser.add_argument("--merged", action="store_true", help="the eight ranks of a host in one file")
    options = parser.parse_args()
    if options.folder:
        measure(options.folder)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = options.mb * 1_000_000
        culprit = write_logs(folder, options.ranks, size, constant=options.constant, merged=options.merged)
        sys.stdout.write(f"rank {culprit} stops three calls early\n")
        measure(folder)


if __name__ == "__main__":
    main()
