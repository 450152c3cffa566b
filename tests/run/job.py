"""A rank of the watched jobs: python job.py WHAT [ARGUMENT]; RANK and the others are in the environment."""

import ctypes
import os
import re
import signal
import socket
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist

RANK, CULPRIT, STEPS, FAULT_STEP = int(os.environ["RANK"]), 2, 60, 40


def step(number):
    for size in (4096, 1024):
        dist.all_reduce(torch.ones(size))
    dist.broadcast(torch.ones(16), 0)
    time.sleep(0.05)


def load_batch():
    time.sleep(600)


def evaluate(some):
    """A reduction among three ranks; one of them thinks it has nothing to say."""
    if RANK != CULPRIT and RANK < 3:
        dist.all_reduce(torch.ones(33), group=some)


class Lock:
    """Taken twice by the same thread."""

    def __init__(self):
        self.lock = threading.Lock()

    def take(self):
        with self.lock, self.lock:
            pass


def hold_the_interpreter():
    # Backtracking forever, in C, with the interpreter's lock.
    re.match(r"(a+)+$", "a" * 64 + "b")


def spin():
    """A retry loop that never succeeds."""
    attempts = 0
    while True:
        attempts += 1
        if attempts < 0:
            break
        for _ in range(1000):
            attempts += 1


def beat(group):
    """A thread that goes on whatever the training does."""

    def forever():
        while True:
            dist.all_reduce(torch.ones(1), group=group)
            time.sleep(0.5)

    threading.Thread(target=forever, daemon=True).start()


def note_the_moment():
    """For whoever measures how long the hang goes unnoticed."""
    if RANK == CULPRIT and "HANG_MOMENT" in os.environ:
        Path(os.environ["HANG_MOMENT"]).write_text(str(time.time()))


def fault(what, some):
    note_the_moment()
    if what == "skip":
        evaluate(some)
    if RANK != CULPRIT:
        return
    if what in ("stuck", "beat"):
        load_batch()
    elif what == "spin":
        spin()
    elif what == "lock":
        Lock().take()
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "gil":
        hold_the_interpreter()
    elif what == "raise":
        raise ValueError("a bad sample")


def train(what):
    world = dist.get_world_size()
    some = dist.new_group(range(min(3, world)), group_desc="some")
    hearts = dist.new_group(range(world), group_desc="hearts")
    if what == "beat":
        beat(hearts)
    for number in range(STEPS):
        if RANK < 3:
            dist.all_reduce(torch.ones(7), group=some)
        if number == FAULT_STEP:
            fault(what, some)
        step(number)


def pauses():
    """What healthy jobs do: checkpoints of rank 0 and evaluations, each longer than the one before."""
    for number in range(5):
        for _ in range(20):
            step(number)
        busy_until = time.monotonic() + 3 + 3 * number
        if number % 2 == 0 and RANK == 0:
            with Path(sys.argv[2]).open("wb") as stream:
                while time.monotonic() < busy_until:
                    stream.write(os.urandom(1 << 20))
                    stream.seek(0)
        elif number % 2:
            x = torch.ones(128, 128)
            while time.monotonic() < busy_until:
                x = (x @ x).clamp(0, 1)
        dist.barrier()
    step(0)


def answered_late():
    """A service that takes its time."""
    ours, theirs = socket.socketpair()
    threading.Timer(9, theirs.send, [b"x"]).start()
    ours.recv(1)


def counts():
    total, until = 0, time.monotonic() + 7
    while time.monotonic() < until:
        for number in range(1000):
            total += number


def alone():
    """What a single rank may do for a while, in a job of short steps: each is no hang."""
    held = partial(ctypes.PyDLL(None).usleep, 3_500_000)  # in C, with the interpreter's lock
    for phase in (partial(time.sleep, 2.5), held, counts, answered_late, partial(time.sleep, 11)):
        for number in range(40):
            step(number)
        if RANK == CULPRIT:
            phase()
    for number in range(150):
        step(number)


def main():
    what = sys.argv[1]
    torch.set_num_threads(1)
    if what == "absent" and RANK == CULPRIT:
        time.sleep(600)
    dist.init_process_group("gloo", timeout=timedelta(seconds=300))
    if what == "pauses":
        pauses()
    elif what == "alone":
        alone()
    else:
        train(what)
    if what == "teardown" and RANK == CULPRIT:
        time.sleep(600)
    dist.barrier()
    dist.destroy_process_group()
    sys.stdout.write(f"rank {RANK} done\n")
    if what == "three":
        sys.exit(3)


if __name__ == "__main__":
    main()
