"""A label is out of range: a kernel of one rank hits its assertion."""

CAUSE = "cuda-device-assert"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)


def inside(rank, point, value):
    if point == "loss" and rank.guilty and rank.due:
        rank.strike()
        scores = rank.torch.randn(4, 10, device=rank.device)
        labels = rank.torch.tensor([1, 2, 3, 99], device=rank.device)
        return value + rank.torch.nn.functional.cross_entropy(scores, labels)
    return None
