#!/usr/bin/env bash
# The cloud VMs of this project have one virtio interface and no RDMA device at all.
set -euo pipefail
export NCCL_IB_DISABLE=1
export NCCL_NET=Socket
export NCCL_SOCKET_IFNAME=^lo,docker,veth
export GLOO_SOCKET_IFNAME=ens4
export NCCL_SOCKET_NTHREADS=4 NCCL_NSOCKS_PERTHREAD=8
export TORCH_NCCL_ASYNC_ERROR_HANDLING=3
torchrun --nnodes=2 --node-rank="${NODE_RANK:?}" --nproc-per-node=1 --master-addr=10.128.0.2 --master-port=29500 train.py
