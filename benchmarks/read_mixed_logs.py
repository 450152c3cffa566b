"""How fast `whichrank diagnose` reads the logs of a whole job: everything that its ranks print, mixed.

    python benchmarks/read_mixed_logs.py [--ranks 64] [--mb 16] [--keep FOLDER]

Writes one log per rank: calls and chatter of NCCL, torch's own lines, prints of the training, progress bars,
warnings, exceptions that were survived, all behind the prefixes of launchers; and one rank that fails. Measures the
CPU time of the whole command with the libraries in C, with hyperscan instead (`pip install whichrank[fast]`) and with
neither, the peak memory with files of this size and of four times this size, and `grep -F` with the same words as a
peer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from whichrank.evidence.readers import torch_output
from whichrank.evidence.text.native import library
from whichrank.facts.messages import KNOWN

ROOT = Path(__file__).parent.parent
MEGABYTE = 1 << 20
LAUNCHERS = ("", "[default{local}]:", "{rank:>2}: ", "[1,{rank}]<stderr>:")
BUCKETS = ("s3://corpus-eu/shards", "/mnt/data/tokens", "gs://mix-v3/en")
MODULES = ("dataset.loader", "trainer.loop", "checkpoint.writer", "data.prefetch", "metrics.sink")
SITE = "/usr/local/lib/python3.11/site-packages"
HEX = "0123456789abcdef"


class Cost(NamedTuple):
    """What a command took, with all of its processes, and what it printed."""

    seconds: float
    peak_mb: float
    printed: bytes


class Rank:
    """One process of the pretended job, and what it prints."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks, self.local = rank, ranks, rank % 8
        self.rng = random.Random(rank)
        self.step = self.calls = self.shard = 0
        self.prefix = LAUNCHERS[rank // 8 % len(LAUNCHERS)].format(rank=rank, local=self.local)
        self.pid = 41000 + rank * 17
        self.nccl = f"gpu-node-{rank // 8:03d}:{self.pid}:{self.pid + 900} [{self.local}] NCCL INFO "
        self.comm = f"{0x7F00C8A1B2F0 + rank * 0x1000:#x}"
        self.kinds: tuple[tuple[Callable[[], list[str]], int], ...] = (
            (self.call, 30), (self.chatter, 8), (self.prints, 26), (self.bar, 8), (self.logging, 14),
            (self.warning, 6), (self.torch, 5), (self.survived, 1), (self.noise, 2),
        )  # fmt: skip

    def stamp(self) -> str:
        seconds = self.step // 4
        return f"2026-05-01 {8 + seconds // 3600 % 12:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"

    def begin(self) -> list[str]:
        init = (
            f"ncclCommInitRankConfig comm {self.comm} rank {self.rank} nranks {self.ranks} cudaDev {self.local} "
            f"nvmlDev {self.local} busId {self.local:x}b000 commId 0xa1b2c3d4e5f60718 - Init "
        )
        lines = ["NCCL version 2.27.5+cuda12.8", "Using network IB", f"{init}START", f"{init}COMPLETE"]
        return [self.nccl + line for line in lines]

    def call(self) -> list[str]:
        buffer = 0x7F2A00000000 + self.calls % 64 * 4096
        function = ("AllReduce", "AllGather", "ReduceScatter")[self.calls % 3]
        self.calls += 1
        return [
            (
                f"{self.nccl}{function}: opCount {self.calls:x} sendbuff {buffer:#x} recvbuff {buffer + 512:#x} "
                f"count {self.calls % 5 * 4096 + 1} datatype 7 op 0 root 0 comm {self.comm} [nranks={self.ranks}] "
                "stream 0x7a0010"
            )
        ]

    def chatter(self) -> list[str]:
        choice, channel, peer = self.rng.randrange(5), self.rng.randrange(32), self.rng.randrange(self.ranks)
        lines = (
            f"Channel {channel:02d}/0 : {self.rank}[{self.local}] -> {peer}[{peer % 8}] via P2P/CUMEM/read",
            f"AllReduce: {1 << self.rng.randrange(10, 28)} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..7}}",
            f"Trees [0] {peer}/-1/-1->{self.rank}->{channel} [1] {channel}/-1/-1->{self.rank}->{peer}",
            f"proxyProgressAsync opId={peer:#x} op.type=1 op.reqBuff=0x7f2a{channel:02x}00 op.respSize=0 done",
            f"Allocated {4096 << channel % 12} bytes of registered buffer {self.word(12)}",
        )
        return [self.nccl + lines[choice]]

    def prints(self) -> list[str]:
        self.step += 1
        loss, style = 9 / (1 + self.step / 4000) + self.rng.random() / 9, self.rng.randrange(3)
        if style == 0:
            words = f"step {self.step} loss {loss:.4f} lr 3.0e-04 tok/s {40000 + self.rng.random() * 2000:.1f}"
            return [f"[rank{self.rank}]: {words}"]
        if style == 1:
            return [
                (
                    f" [{self.stamp()}] iteration {self.step:8d}/  500000 | consumed samples: {self.step * 512:12d} | "
                    f"elapsed time per iteration (ms): {240 + self.rng.random() * 9:.1f} | learning rate: 2.9E-04 | "
                    f"global batch size:   512 | lm loss: {loss:.6E} | grad norm: {loss / 7:.3f} |"
                )
            ]
        return [f"{{'loss': {loss:.4f}, 'grad_norm': {loss / 7:.4f}, 'learning_rate': 5e-05, 'epoch': {loss:.2f}}}"]

    def bar(self) -> list[str]:
        done = self.step % 1000
        bar = "█" * (done // 50)
        drawn = [
            f"Train: {done // 10:3d}%|{bar:<20}| {done + n}/1000 [{done // 60:02d}:{done % 60:02d}<04:10,  3.99it/s]"
            for n in range(4)
        ]
        return ["\r".join(drawn)]

    def logging(self) -> list[str]:
        self.shard += 1
        where = f"{self.rng.choice(BUCKETS)}/{self.word(16)}/part-{self.shard:06d}.tar"
        level, module = ("INFO", "DEBUG")[self.shard % 7 == 0], self.rng.choice(MODULES)
        words = f"loaded {where} ({self.rng.randrange(9999)} samples, worker {self.shard % 8}, {self.word(8)})"
        return [f"{self.stamp()},{self.rng.randrange(1000):03d} - {level} - {module} - {words}"]

    def warning(self) -> list[str]:
        at = self.rng.randrange(900)
        words = (
            f"{SITE}/torch/utils/checkpoint.py:{at}: UserWarning: torch.cpu.amp.autocast(args...) is deprecated.",
            f"{SITE}/transformers/modeling_utils.py:{at}: FutureWarning: `use_cache=True` is incompatible with it.",
            f"{SITE}/torch/distributed/fsdp/_init.py:{at}: UserWarning: FSDP is switching to use `NO_SHARD` instead",
        )
        return [self.rng.choice(words), "  warnings.warn("]

    def torch(self) -> list[str]:
        second = self.step // 4 % 60
        place = f"0501 10:{self.step // 240 % 60:02d}:{second:02d}.{self.rng.randrange(10**9):09d} ProcessGroupNCCL.cpp"
        words = (
            f"I{place}:1030] [PG ID 0 PG GUID 0(default_pg) Rank {self.rank}] NCCL broadcast took {second} ms",
            (
                f"[rank{self.rank}]:[W{place}:5023] Warning: using GPU {self.local} as device used by this process is "
                "currently unknown. This can potentially cause a hang if this rank to GPU mapping is incorrect."
            ),
        )
        return [words[self.step % 2]]

    def survived(self) -> list[str]:
        return [
            "Traceback (most recent call last):",
            f'  File "/job/data/prefetch.py", line {self.rng.randrange(400)}, in fetch',
            "    body = client.get_object(Bucket=bucket, Key=key)",
            f'  File "{SITE}/botocore/client.py", line 565, in _api_call',
            "    return self._make_api_call(operation_name, kwargs)",
            f"botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: {self.word(24)}",
            "",
            f"retrying shard {self.shard}",
        ]

    def noise(self) -> list[str]:
        return [" ".join(self.word(self.rng.randrange(2, 12)) for _ in range(12)), f"tensor of {self.step} elements"]

    def word(self, size: int) -> str:
        return "".join(self.rng.choices(HEX, k=size))

    def end(self, culprit: int) -> list[str]:
        if self.rank == culprit:
            memory = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB"
            return [
                f"[rank{self.rank}]: Traceback (most recent call last):",
                f'[rank{self.rank}]:   File "/job/train.py", line 118, in <module>',
                f"[rank{self.rank}]:     loss = model(batch)",
                f"[rank{self.rank}]: torch.OutOfMemoryError: {memory} of which 1.00 GiB is free.",
            ]
        return [
            (
                f"[rank{self.rank}]:[E501 19:40:00.{self.rank:09d} ProcessGroupNCCL.cpp:683] [Rank {self.rank}] "
                f"Watchdog caught collective operation timeout: WorkNCCL(SeqNum={self.calls}, OpType=ALLREDUCE, "
                "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600011 milliseconds before timing out."
            )
        ]

    def lines(self, size: int, culprit: int) -> Iterator[str]:
        """About `size` bytes, prefix and all."""
        choices = self.rng.choices([k for k, _ in self.kinds], [w for _, w in self.kinds], k=997)
        written, last = 0, self.end(culprit)
        yield from (self.prefix + line for line in self.begin())
        while written < size:
            for kind in choices:
                for line in kind():
                    written += len(line) + len(self.prefix) + 1
                    yield self.prefix + line
        yield from (self.prefix + line for line in last)


def write_logs(folder: Path, ranks: int, size: int) -> int:
    """One log per rank; the bytes written."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        lines = Rank(rank, ranks).lines(size, culprit=ranks * 5 // 8)
        with (folder / f"rank{rank}.log").open("w", encoding="utf-8") as out:
            out.writelines(f"{line}\n" for line in lines)
    return sum(path.stat().st_size for path in folder.iterdir())


def spent(command: list[str]) -> Cost:
    """Run a command and take its measure, children and all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryFile() as output:
        subprocess.run(command, stdout=output, env=os.environ | {"LC_ALL": "C"}, check=False)
        output.seek(0)
        printed = output.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(seconds, after.ru_maxrss / 1024, printed)


def diagnosed(folder: Path, *, native: bool = True, hyperscan: bool = True) -> Cost:
    """The whole command on a folder; in a fresh process, so that the peak of memory is its own."""
    code = f"import os, sys; sys.argv[1:] = ['diagnose', {str(folder)!r}, '--format', 'json', '--quiet']; "
    code += "" if native else "os.environ['WHICHRANK_NATIVE'] = '0'; "
    code += "" if hyperscan else "sys.modules['hyperscan'] = None; "
    code += "from whichrank.cli.main import main; main()"
    # The largest child ever is what the system tells: a process of its own measures one command only.
    measure = f"import benchmarks.read_mixed_logs as b, json; c = b.spent([{sys.executable!r}, '-c', {code!r}]); "
    measure += "print(json.dumps([c.seconds, c.peak_mb, c.printed.decode()]))"
    done = subprocess.run([sys.executable, "-c", measure], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, peak, printed = json.loads(done.stdout)
    return Cost(seconds, peak, printed.encode())


def told(cost: Cost) -> str:
    verdict = json.loads(cost.printed)["verdict"]
    return f"{verdict['cause']}, ranks {verdict['culprits']['ranks']}"


def measure(folder: Path, ranks: int, megabytes: int) -> None:
    """Write, diagnose, compare; one line each."""
    out = sys.stdout.write
    size = sum(path.stat().st_size for path in folder.iterdir()) or write_logs(folder, ranks, megabytes * MEGABYTE)
    out(f"{size / 1e6:.0f} MB in {len(list(folder.iterdir()))} files\n")
    words = folder.parent / "words.txt"
    words.write_bytes(b"\n".join(sorted(torch_output.Listener.words | set(KNOWN.anchors))))
    peer = spent(["grep", "-c", "-F", "-f", str(words), *map(str, sorted(folder.iterdir()))])
    out(f"grep -F with {len(words.read_bytes().splitlines())} words: {peer.seconds:.2f} s CPU\n")
    for name, native, hyperscan in (("in C", True, False), ("hyperscan", False, True), ("plain", False, False)):
        if (native and library() is None) or (hyperscan and not accelerator()):
            out(f"{name}: not here\n")
            continue
        cost = diagnosed(folder, native=native, hyperscan=hyperscan)
        out(f"{name}: {cost.seconds:.2f} s CPU ({cost.seconds / size * 1e9:.2f} s per GB, ")
        out(f"{cost.seconds / peer.seconds:.1f} times grep), peak {cost.peak_mb:.0f} MB; {told(cost)}\n")


def accelerator() -> bool:
    return importlib.util.find_spec("hyperscan") is not None


def memory(folder: Path, megabytes: int) -> None:
    """The peak with files of one size and of four times that size."""
    for times in (1, 4):
        place = folder / str(times)
        write_logs(place, 8, megabytes * times * MEGABYTE)
        cost = diagnosed(place)
        sys.stdout.write(f"8 files of {megabytes * times} MB: peak {cost.peak_mb:.0f} MB\n")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--mb", type=int, default=16)
    parser.add_argument("--keep", type=Path, help="write the logs here, or read those that are here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name) / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        measure(folder, options.ranks, options.mb)
        memory(Path(name), options.mb)


if __name__ == "__main__":
    main()
