"""A hand-written kernel of one rank writes where it must not."""

CAUSE = "cuda-illegal-access"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"
NEEDS = ("gpu",)
BACKENDS = ("nccl",)
SOURCE = 'extern "C" __global__ void scatter(float* out) { out[1LL << 45] = 1.0f; }'


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        kernel = rank.torch.cuda._compile_kernel(SOURCE, "scatter")
        kernel((1, 1, 1), (1, 1, 1), (rank.tensor(16),))
