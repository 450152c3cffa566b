"""The kernel ends a rank whose control group is out of memory."""

CAUSE = "host-out-of-memory"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"
NEEDS = ("memory control groups",)


def launch(setup):
    from whichrank.lab.control_groups import limit_memory

    setup.shared["group"] = limit_memory(setup.folder.name, 1 << 30)


def outside(job):
    from whichrank.lab.control_groups import join

    join(job.setup.shared["group"], job.await_step(job.plan.rank, 1))


def inside(rank, point, value):
    if point == "sample" and rank.guilty and rank.due:
        rank.strike()
        rank.cache = []
        while True:
            rank.cache.append(b"x" * (16 << 20))
