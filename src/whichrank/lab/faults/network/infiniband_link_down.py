"""An InfiniBand port goes down, and the transfers over it fail (injected: mlx5's and NCCL's messages)."""

CAUSE = "ib-link-flap"
CATEGORY = "crash"
WORKLOAD = "ddp"
ENDING = "crash"


def inside(rank, point, value):
    if point == "forward" and rank.guilty and rank.due:
        rank.strike()
        raise rank.dist.DistBackendError(
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:3690, remote process exited or "
            "there was a network error, NCCL version 2.28.9\nncclRemoteError: A call failed possibly due to a network "
            "error or a remote process exiting prematurely."
        )


def evidence(job):
    from whichrank.lab import injected

    rank, pid = job.plan.rank, job.pid(job.plan.rank)
    lines = [
        (-22.0, "mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, Cable is unplugged"),
        (-21.9, "mlx5_core 0000:3b:00.0 mlx5_0: Port: 1 Link DOWN"),
    ]
    warning = (
        f"train-node:{pid}:{pid + 40} [{rank}] transport/net_ib.cc:2252 NCCL WARN NET/IB: Got completion from peer "
        "10.0.0.7<43210> with status=12 opcode=0 len=0 vendor err 129 (Recv) localGid fe80::1 remoteGids fe80::2 "
        "hca mlx5_0\n"
    )
    return {injected.DMESG: injected.kernel_log(job, *lines), f"logs/nccl.{pid}.log": warning.encode()}


def culprits(plan):
    return None
