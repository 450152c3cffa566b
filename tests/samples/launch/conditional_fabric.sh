#!/bin/bash
# one script for two clusters
if [ -d /sys/class/infiniband/mlx5_0 ]; then
    export NCCL_IB_HCA==mlx5_0,mlx5_3
    export NCCL_SOCKET_IFNAME=ib0
else
    export NCCL_IB_DISABLE=1
    export NCCL_SOCKET_IFNAME=eth0
fi
[ -n "$DEBUG" ] && export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ALL
case "$MODE" in
    slow) export NCCL_P2P_DISABLE=1 ;;
    fast) export NCCL_P2P_LEVEL=SYS ;;
esac
python -m torch.distributed.run --nproc_per_node 4 train.py
