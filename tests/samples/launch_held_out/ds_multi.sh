#!/usr/bin/env bash
# DeepSpeed ZeRO-3 on the nodes of hostfile (pdsh launcher)
set -euo pipefail
export NCCL_IB_HCA="=mlx5_0,mlx5_1"
export NCCL_SOCKET_IFNAME=eth2
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800
export NCCL_NTHREADS=1024

deepspeed --hostfile=hostfile --master_port=29601 train_zero3.py \
    --deepspeed ds_zero3.json --model_name_or_path ckpt/base
