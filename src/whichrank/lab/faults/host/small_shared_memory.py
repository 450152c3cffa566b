"""/dev/shm is too small for what the data loader's workers send."""

CAUSE = "shm-too-small"
CATEGORY = "crash"
WORKLOAD = "loader"
ENDING = "crash"
NEEDS = ("root",)
ACCEPT = ("dataloader-worker-death",)


def launch(setup):
    # Only this job sees the small one: the mount is in a namespace of its own.
    mount = 'mount -t tmpfs -o size=512k tmpfs /dev/shm && exec "$@"'
    setup.prefix = ["unshare", "--mount", "sh", "-c", mount, "sh"]


def inside(rank, point, value):
    if point == "workers" and rank.guilty:
        rank.strike()
        return 2
    if point == "item" and rank.guilty:
        return rank.torch.ones(1 << 20)
    return None
