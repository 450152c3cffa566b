#!/bin/bash
export NCCL_DEBUG=INFO
export NCCL_SOCKET_IFNAME=bond0
docker run --rm --gpus all --ipc=host -e NCCL_DEBUG -e NCCL_P2P_LEVEL=SYS \
  -e NCCL_TIMEOUT=3600 \
  -v $PWD:/w nvcr.io/nvidia/pytorch:24.07-py3 torchrun --nproc_per_node=8 /w/train.py
