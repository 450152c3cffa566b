#!/bin/bash
set -a
NCCL_SOCKET_IFNAME=eth1
GLOO_SOCKET_IFNAME=eth1
NCCL_IB_HCA="=mlx5_0,mlx5_1"
MASTER_ADDR=$(cat /etc/headnode)
MASTER_PORT=29512
set +a
LOGDIR=/var/log/train
python -m torch.distributed.run --nnodes=2 --node-rank="$1" --nproc-per-node=8 \
    --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" train.py 2>&1 | tee "$LOGDIR/$(hostname).log"
