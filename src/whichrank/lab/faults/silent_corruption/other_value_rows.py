"""One rank computes with another value than its replicas, from the start."""

CAUSE = "replica-divergence"
CATEGORY = "corruption"
WORKLOAD = "replicas"
ENDING = "running"
LEAST_WORLD = 3
GUARD = True

ROWS = {
    "other_learning_rate": {"SUMMARY": "One rank steps with another learning rate.", "INSTEAD": ("rate", 2e-3)},
    "other_schedule": {
        "SUMMARY": "The schedule of one rank has another length, as when it is computed from local data.",
        "INSTEAD": ("length", 310),
    },
    "other_batch_order": {
        "SUMMARY": "One rank shuffles its samples with another seed: some are seen twice, others not at all.",
        "CAUSE": "data-order", "INSTEAD": ("seed", 99),
    },
}  # fmt: skip


def inside(rank, point, value):
    where, other = ROWS[rank.plan.fault]["INSTEAD"]
    if point == where and rank.guilty:
        rank.strike()
        return other
    return None
