"""After a resume one rank has one tensor of before."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True


def inside(rank, point, value):
    if point == "checkpoint" and rank.guilty:
        rank.strike()
        left_out = rank.plan.dice().choice(sorted(value))
        return {name: tensor for name, tensor in value.items() if name != left_out}
    return None
