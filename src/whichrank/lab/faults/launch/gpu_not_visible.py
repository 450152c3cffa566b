"""A rank asks for a GPU that it can't see."""

CAUSE = "device-ordinal"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)


def inside(rank, point, value):
    if point == "start" and rank.guilty:
        rank.strike()
        rank.device = rank.torch.device("cuda", 63)
