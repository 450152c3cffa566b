#!/bin/sh
# two workstations under the desk
export NCCL_SOCKET_IFNAME=lo
export NCCL_IB_DISABLE=1   # no RDMA cards
export MASTER_ADDR=localhost
export MASTER_PORT=29500
torchrun --nnodes=2 --node-rank="$1" --nproc-per-node=2 --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" train.py
