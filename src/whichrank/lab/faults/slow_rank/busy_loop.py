"""One rank works in a loop of its own that never ends."""

CAUSE = "rank-stuck-in-user-code"
CATEGORY = "hang"
WORKLOAD = "ddp"


def launch(setup):
    setup.limit_s = 260.0


def inside(rank, point, value):
    if point == "batch" and rank.guilty and rank.due:
        rank.strike()
        pack([3, 5, 8], limit=7)


def pack(lengths, limit):
    """Looks for an order in which all fit; there is none."""
    while True:
        lengths = lengths[1:] + lengths[:1]
        if max(lengths) <= limit:
            return lengths
