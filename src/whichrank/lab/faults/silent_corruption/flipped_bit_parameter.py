"""One bit of one parameter flips on one rank, and its replica goes its own way."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "stepped" and rank.guilty and rank.due:
        rank.strike()
        dice = rank.plan.dice()
        parameter = dice.choice(list(value[0].parameters()))
        flip(rank, parameter.data, dice.randrange(parameter.numel()), dice.randrange(31))


def flip(rank, tensor, index, bit):
    """One bit of one number, as a particle does."""
    bits = tensor.detach().view(-1).view(rank.torch.int32)
    bits[index] ^= 1 << bit
