"""One bit of one number flips on one rank after a step, as a particle does, and its replica goes its own way."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True

ROWS = {
    "flipped_bit_parameter": {
        "SUMMARY": "One bit of one parameter flips on one rank, and its replica goes its own way.", "LOWEST": 0,
    },
    # A high bit: the next updates round a low one away, and the replicas are equal again.
    "flipped_bit_state": {"SUMMARY": "One bit of the optimizer's state flips on one rank.", "LOWEST": 16},
}  # fmt: skip


def inside(rank, point, value):
    if point == "stepped" and rank.guilty and rank.due:
        rank.strike()
        dice, lowest = rank.plan.dice(), ROWS[rank.plan.fault]["LOWEST"]
        parameter = dice.choice(list(value[0].parameters()))
        state = value[1].state[parameter][dice.choice(["exp_avg", "exp_avg_sq"])] if lowest else parameter.data
        index, bit = dice.randrange(state.numel()), dice.randrange(lowest, 31)
        state.detach().view(-1).view(rank.torch.int32)[index] ^= 1 << bit
