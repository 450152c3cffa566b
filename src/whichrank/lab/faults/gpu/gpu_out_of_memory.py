"""A rank asks for more memory than its GPU has."""

CAUSE = "gpu-out-of-memory"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        rank.cache = [rank.torch.empty(1 << 38, dtype=rank.torch.uint8, device=rank.device) for _ in range(4)]
