"""What the jobs share: a data set in which rank 1 goes wrong at a step, and who has seen which phases."""

import os
import sys
import threading
import time

import torch

from whichrank.worker import marks

MODE = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TRAINER_MODE", "fine")
WRONG_AT = 4
STEPS = 8


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def go_wrong(step: int, mode: str = "") -> None:
    """Called with every batch that is fetched."""
    mode = mode or MODE
    if step != WRONG_AT or rank() != 1:
        return
    if mode == "crash":
        raise ValueError("sample 17 of shard 3 is damaged")
    if mode == "hang":
        wait_for_shard()


def wait_for_shard() -> None:
    time.sleep(3600)


class Samples(torch.utils.data.Dataset):
    """One sample per step."""

    def __init__(self, shape: str = "pair") -> None:
        self.shape, self.fetched = shape, 0

    def __len__(self) -> int:
        return 2 * STEPS

    def __getitem__(self, index: int):
        go_wrong(self.fetched)
        self.fetched += 1
        time.sleep(0.02)
        x, y = torch.randn(8), torch.randn(1)
        return (x, y) if self.shape == "pair" else {"x": x, "labels": y}


class Seen(threading.Thread):
    """Which phases the marks had, as the watch inside the rank would find them; told at the end."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.phases: set[str] = set()
        self.steps = 0
        self.done = False
        self.start()

    def run(self) -> None:
        here = marks.here()
        while not self.done:
            self.phases.add(here.phase)
            self.steps = max(self.steps, here.steps)
            time.sleep(0.0005)

    def tell(self) -> None:
        self.done = True
        print(f"SEEN rank {rank()} steps {self.steps} phases {sorted(self.phases - {''})}", flush=True)
