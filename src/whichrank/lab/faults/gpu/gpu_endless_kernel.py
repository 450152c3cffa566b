"""A kernel of one rank does not end, so the collective behind it can't begin."""

CAUSE = "gpu-kernel-stuck"
CATEGORY = "hang"
WORKLOAD = "sharded"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)


def launch(setup):
    # Whether a collective has begun on the GPU is recorded only with this.
    setup.environment["TORCH_NCCL_ENABLE_TIMING"] = "1"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        rank.torch.cuda._sleep(1 << 50)
