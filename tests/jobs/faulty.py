"""Real Gloo jobs with a known fault each; every rank writes its flight-recorder dump while it hangs.

python faulty.py SECONDS FAULT:OUT:WORLD:CULPRIT …

Torch is imported once; the ranks are forked from there. Jobs run one after the other.
"""

import os
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("TORCH_FR_BUFFER_SIZE", "2000")
import torch
import torch.distributed as dist

from whichrank.worker.recorder_frames import without_compiler

FAULT_STEP, STEPS = 6, 10
PATIENCE_S = 60.0


class Rank:
    """One rank of a job."""

    def __init__(self, fault: str, out: Path, world: int, culprit: int, rank: int, seconds: float) -> None:
        self.fault, self.out, self.world, self.rank, self.seconds = fault, out, world, rank, seconds
        self.odd = rank == culprit
        self.at_fault = threading.Event()

    def dump(self):
        from torch._C import _distributed_c10d as c10d

        part = self.out / f".part{self.rank}"
        with without_compiler():  # frames would import it in every rank
            part.write_bytes(c10d._dump_fr_trace())
        part.rename(self.out / f"trace_rank_{self.rank}")

    def leave(self):
        """Exit together: a rank that leaves early would make the others fail before their dump is written."""
        deadline = time.monotonic() + PATIENCE_S
        files = [self.out / f"trace_rank_{rank}" for rank in range(self.world)]
        while time.monotonic() < deadline and not all(file.exists() for file in files):
            time.sleep(0.05)
        os._exit(0)

    def dump_later(self):
        self.at_fault.wait(PATIENCE_S)  # a busy machine takes its time to come there
        time.sleep(self.seconds)
        self.dump()
        self.leave()

    def run(self):
        """All that a rank does; never returns."""
        dist.init_process_group("gloo", timeout=timedelta(seconds=120))
        threading.Thread(target=self.dump_later, daemon=True).start()
        try:
            self.train()
        except RuntimeError:  # Gloo notices some mismatches itself: the recorder still has what was issued
            time.sleep(600)
        if self.fault in ("healthy", "straggler"):
            self.dump()
            self.leave()
        time.sleep(600)

    def train(self):
        half = self.world // 2
        groups = [dist.new_group(list(range(i * half, (i + 1) * half)), group_desc="tp") for i in range(2)]
        tp = groups[min(self.rank // half, 1)]
        steps = STEPS - 3 if self.fault == "uneven" and self.odd else STEPS
        for step in range(steps):
            if self.fault == "straggler" and self.odd:
                time.sleep(0.05)
            if step == FAULT_STEP:
                self.at_fault.set()
                self.faulty_step(tp)
            self.tensor_parallel(tp)
            if self.fault == "skip_known" and self.odd and step == FAULT_STEP:
                continue
            self.grads()
        dist.barrier()

    def grads(self):
        for size in (4096, 1024, 256):
            dist.all_reduce(torch.ones(size))

    def tensor_parallel(self, tp):
        out_list = [torch.zeros(64) for _ in range(dist.get_world_size(tp))]
        dist.all_gather(out_list, torch.ones(64), group=tp)
        dist.all_reduce(torch.ones(64), group=tp)

    def evaluate(self):
        loss = torch.ones(1)
        if self.odd:
            return loss
        dist.all_reduce(loss)
        return loss

    def faulty_step(self, tp):
        a, b = torch.ones(2048), torch.ones(128)
        if self.fault == "stuck" and self.odd:
            time.sleep(600)
        if self.fault == "swap" and self.odd:
            dist.broadcast(b, 0)
            dist.all_reduce(a)
        elif self.fault == "swap":
            dist.all_reduce(a)
            dist.broadcast(b, 0)
        if self.fault == "dtype":
            dist.all_reduce(torch.ones(512, dtype=torch.float64 if self.odd else torch.int64))
        if self.fault == "alone" and self.odd:
            dist.barrier()
        if self.fault == "cross" and self.odd:
            dist.all_reduce(torch.ones(33), group=tp)
            dist.all_reduce(torch.ones(55))
        elif self.fault == "cross":
            dist.all_reduce(torch.ones(55))
            dist.all_reduce(torch.ones(33), group=tp)
        if self.fault == "skip_new":
            self.evaluate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_job(fault: str, out: Path, world: int, culprit: int, seconds: float) -> None:
    """Fork the ranks of one job and wait until all of them have left."""
    out.mkdir(parents=True, exist_ok=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), WORLD_SIZE=str(world))
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            os.environ["RANK"] = str(rank)
            Rank(fault, out, world, culprit, rank, seconds).run()
        children.append(child)
    deadline = time.monotonic() + PATIENCE_S
    while children and time.monotonic() < deadline:
        children = [child for child in children if os.waitpid(child, os.WNOHANG)[0] == 0]
        time.sleep(0.05)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def main() -> None:
    torch.set_num_threads(1)
    for job in sys.argv[2:]:
        fault, out, world, culprit = job.rsplit(":", 3)
        run_job(fault, Path(out), int(world), int(culprit), float(sys.argv[1]))


if __name__ == "__main__":
    main()
