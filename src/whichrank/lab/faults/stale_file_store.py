"""The ranks meet in a file that an earlier run has left."""

CAUSE = "stale-lock-or-store"
CATEGORY = "hang"
WORKLOAD = "ddp"
ACCEPT = ("world-size-mismatch",)


def inside(rank, point, value):
    if point != "init":
        return None
    import time

    # What a run that was killed leaves: the file store of a world that had all joined.
    path = rank.folder / "rendezvous"
    if rank.rank == 0:
        left = rank.folder / "left"
        store = rank.dist.FileStore(str(left), rank.world)
        for number in range(rank.world):
            store.set(f"default_pg/0//cpu//0/{number}", "\0" * 64)
        store.add("init/", rank.world)
        left.replace(path)
        rank.strike()
    while not path.exists():
        time.sleep(0.05)
    return {**value, "init_method": f"file://{path}", "rank": rank.rank, "world_size": rank.world}


def culprits(plan):
    return None
