"""CPU of `diagnose` on text of every kind: 20 MB each, and many small files.

    python benchmarks/read_any_text.py [KIND ...] [--mb 20] [--files 5000] [--repeat 3]

The bars: 2 s of CPU per 20 MB of any text, 1 ms of CPU per small log of 1 KB; both without what starting Python and
loading the rules costs, which `start` shows.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

Lines = Callable[[random.Random], Iterator[str]]
KINDS: dict[str, Lines] = {}
EVERYDAY = (
    "the of a training model was gradient and to in error rank loss for step is that with batch epoch time data loader "
    "worker memory device checkpoint saved failed connection timeout network reduce node process group learning rate"
)
TELLING = "NCCL CUDA error timeout Connection refused rank Killed signal exit code Traceback OOM killed process"
WORDS = EVERYDAY.split()


def kind(function: Lines) -> Lines:
    KINDS[function.__name__] = function
    return function


@kind
def tracebacks(dice: random.Random) -> Iterator[str]:
    while True:
        rank = dice.randrange(64)
        yield f"[rank{rank}]: Traceback (most recent call last):"
        for depth in range(dice.randrange(2, 9)):
            yield f'[rank{rank}]:   File "/srv/app/{dice.choice(WORDS)}.py", line {dice.randrange(999)}, in f{depth}'
            yield f"[rank{rank}]:     {dice.choice(WORDS)}({dice.choice(WORDS)}, {dice.random()})"
        yield f"[rank{rank}]: {dice.choice(['ValueError', 'RuntimeError', 'KeyError'])}: {prose_line(dice)}"


@kind
def bare_tracebacks(dice: random.Random) -> Iterator[str]:
    while True:
        yield "Traceback (most recent call last):"
        for depth in range(3):
            yield f'  File "/srv/app/train.py", line {dice.randrange(999)}, in f{depth}'
            yield f"    {dice.choice(WORDS)}()"
        yield f"RuntimeError: CUDA error: an illegal memory access was encountered {dice.randrange(99999)}"


@kind
def nccl_pids(dice: random.Random) -> Iterator[str]:
    while True:
        pid = dice.randrange(1 << 22)
        yield f"node{pid % 97}:{pid}:{pid + 9} [{pid % 8}] NCCL INFO Bootstrap : Using eth0:10.0.0.{pid % 250}<0>"


@kind
def nccl_info(dice: random.Random) -> Iterator[str]:
    while True:
        rank = dice.randrange(64)
        head = f"node{rank // 8}:{4000 + rank}:{5000 + rank} [{rank % 8}] NCCL INFO"
        for channel in range(16):
            peer = (rank + 1) % 64
            yield f"{head} Channel {channel:02d}/0 : {rank}[{rank % 8}] -> {peer}[{peer % 8}] via NET/IB/0"
        yield f"{head} AllReduce: opCount {dice.randrange(999):x} sendbuff 0x7f00 recvbuff 0x7f00 count 1024 datatype 7"


@kind
def nccl_warnings(dice: random.Random) -> Iterator[str]:
    while True:
        rank = dice.randrange(64)
        head = f"node{rank // 8}:{4000 + rank}:{5000 + rank} [{rank % 8}]"
        yield f"{head} misc/socket.cc:{dice.randrange(999)} "
        yield (
            f"{head} transport/net_ib.cc:{dice.randrange(999)} NCCL WARN NET/IB : Got completion from peer "
            f"10.0.0.{rank}<4{rank}> with status=12 opcode=0 len={dice.randrange(9999)}"
        )


@kind
def watchdog(dice: random.Random) -> Iterator[str]:
    while True:
        rank = dice.randrange(64)
        yield (
            f"[rank{rank}]:[E1115 10:00:{dice.randrange(60):02d}.{dice.randrange(999999):06d} "
            f"ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={dice.randrange(99999)}, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, "
            f"Timeout(ms)=600000) ran for 600{dice.randrange(999)} milliseconds"
        )


@kind
def launcher(dice: random.Random) -> Iterator[str]:
    while True:
        pid = dice.randrange(99999)
        place = "torch/distributed/elastic/multiprocessing/api.py"
        yield (
            f"E1115 10:00:{dice.randrange(60):02d}.{dice.randrange(999):03d}000 {pid} {place}:874] failed "
            f"(exitcode: {dice.choice([1, -9, -11])}) local_rank: {pid % 8} (pid: {pid})"
        )
        yield f"W1115 10:00:00.000000 {pid} {place}:897] Sending process {pid} closing signal SIGTERM"


@kind
def kernel(dice: random.Random) -> Iterator[str]:
    clock = 0.0
    while True:
        clock += dice.random()
        yield (
            f"[{clock:12.6f}] NVRM: Xid (PCI:0000:{dice.randrange(8):02x}:00): {dice.choice([31, 79, 94])}, "
            f"pid={dice.randrange(99999)}, name=python, Ch 00000008"
        )
        yield f"[{clock:12.6f}] pcieport 0000:00:01.0: AER: Corrected error received: {prose_line(dice)}"


@kind
def progress(dice: random.Random) -> Iterator[str]:
    step = 0
    while True:
        step += 1
        when = f"2026-11-15 10:00:{step % 60:02d},123"
        yield f"{when} INFO rank {step % 64} step {step} loss={dice.random():.4f} lr=1e-4 tok/s={step}"


@kind
def random_lines(dice: random.Random) -> Iterator[str]:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;-_/[](){}=+'\""
    while True:
        yield "".join(dice.choices(letters, k=dice.randrange(160)))


@kind
def random_bytes(dice: random.Random) -> Iterator[str]:
    while True:
        yield dice.randbytes(100).decode("latin-1").replace("\0", " ")


def prose_line(dice: random.Random) -> str:
    return " ".join(dice.choices(WORDS, k=dice.randrange(4, 16)))


@kind
def prose(dice: random.Random) -> Iterator[str]:
    while True:
        yield prose_line(dice)


@kind
def failing_prose(dice: random.Random) -> Iterator[str]:
    """Every line has words that signatures look for, and no line is one."""
    parts = TELLING.split()
    while True:
        yield " ".join(dice.choices(parts + WORDS, k=10))


@kind
def one_long_line(dice: random.Random) -> Iterator[str]:
    while True:
        yield prose_line(dice)


@kind
def short_lines(dice: random.Random) -> Iterator[str]:
    while True:
        yield dice.choice("abcdefgh.")


@kind
def empty_lines(dice: random.Random) -> Iterator[str]:
    while True:
        yield " " * dice.randrange(2)


@kind
def python_stacks(dice: random.Random) -> Iterator[str]:
    while True:
        pid = dice.randrange(99999)
        yield f"Process {pid}: /usr/bin/python train.py"
        yield "Python v3.11.2 (/usr/bin/python3.11)"
        yield ""
        yield f'Thread {pid} (idle): "MainThread"'
        for depth in range(12):
            yield f"    {dice.choice(WORDS)} (torch/{dice.choice(WORDS)}.py:{depth})"
        yield ""


@kind
def json_lines(dice: random.Random) -> Iterator[str]:
    while True:
        yield json.dumps({"ts": dice.random(), "rank": dice.randrange(64), "level": "ERROR", "msg": prose_line(dice)})


def write(path: Path, name: str, size: int, seed: int = 1) -> None:
    """So many bytes of one kind."""
    dice = random.Random(seed)
    lines = KINDS[name](dice)
    separator = " " if name == "one_long_line" else "\n"
    made: list[str] = []
    length = 0
    while length < size:
        line = next(lines)
        made.append(line)
        length += len(line) + 1
    path.write_text(separator.join(made)[:size], encoding="utf-8", errors="replace")


def cost(*given: str) -> float:
    """CPU seconds of one `diagnose`, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "whichrank", "diagnose", "--quiet", *given], stdout=subprocess.DEVNULL, check=False,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*KINDS, "files", []])
    parser.add_argument("--mb", type=float, default=20)
    parser.add_argument("--files", type=int, default=5000)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        nothing = Path(folder) / "nothing.log"
        nothing.write_text("step 1\n")
        start = statistics.median(cost(str(nothing)) for _ in range(asked.repeat))
        print(f"{'start':16} {start:6.2f} s")
        for name in asked.kinds or KINDS:
            if name == "files":
                continue
            path = Path(folder) / f"{name}.log"
            write(path, name, int(asked.mb * 1e6))
            took = statistics.median(cost(str(path)) for _ in range(asked.repeat)) - start
            print(
                f"{name:16} {took:6.2f} s for {asked.mb:g} MB{'' if took <= asked.mb / 10 else '  over the bar'}",
                flush=True,
            )
            path.unlink()
        if not asked.kinds or "files" in asked.kinds:
            for name in ("progress", "tracebacks", "nccl_info", "watchdog", "prose", "random_lines"):
                small = Path(folder) / f"small-{name}"
                small.mkdir()
                for number in range(asked.files):
                    write(small / f"rank_{number}.log", name, 1000, number)
                took = statistics.median(cost(str(small)) for _ in range(asked.repeat)) - start
                each = took / asked.files * 1000
                print(f"{name:16} {each:6.2f} ms per file of 1 KB{'' if each <= 1 else '  over the bar'}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
