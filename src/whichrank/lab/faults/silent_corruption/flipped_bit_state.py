"""One bit of the optimizer's state flips on one rank."""

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
        state = value[1].state[parameter][dice.choice(["exp_avg", "exp_avg_sq"])]
        # A high bit: the next updates round a low one away, and the replicas are equal again.
        flip(rank, state, dice.randrange(state.numel()), dice.randrange(16, 31))


def flip(rank, tensor, index, bit):
    """One bit of one number, as a particle does."""
    bits = tensor.detach().view(-1).view(rank.torch.int32)
    bits[index] ^= 1 << bit
