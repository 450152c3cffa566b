"""The loss of one rank turns into NaN, and the reduction of the gradients carries it to all."""

CAUSE = "nan-origin"
CATEGORY = "corruption"
WORKLOAD = "ddp"
ENDING = "running"


def inside(rank, point, value):
    if point == "batch" and rank.guilty and rank.due:
        rank.strike()
        return normalise(value * 0)
    if point == "metrics":
        rank.say(f"loss {value[0].item():.4f}")
    return None


def normalise(batch):
    """By a deviation that is zero where all samples are alike."""
    return (batch - batch.mean()) / batch.std()
