"""A high bit of one local gradient flips before the reduction, which spreads it to all replicas alike."""

CAUSE = "gpu-computes-wrong"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True
ACCEPT = ("nan-origin",)


def inside(rank, point, value):
    if point == "model":
        parameters = list(value.module.parameters())
        chosen = rank.plan.dice().randrange(len(parameters))
        parameters[chosen].register_hook(lambda gradient: struck(rank, gradient))


def struck(rank, gradient):
    if not rank.guilty or not rank.due or (rank.folder / "struck").exists():
        return None
    rank.strike()
    wrong = gradient.clone()
    flip(rank, wrong, int(wrong.abs().argmax()), 30)  # the highest bit of the exponent
    return wrong


def flip(rank, tensor, index, bit):
    """One bit of one number, as a particle does."""
    bits = tensor.detach().view(-1).view(rank.torch.int32)
    bits[index] ^= 1 << bit
