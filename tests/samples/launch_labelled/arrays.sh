#!/bin/bash
NCCL_ENV=(
  NCCL_DEBUG=WARN
  NCCL_IB_DISABLE=no
  NCCL_SOCKET_IFNAME=eth0
)
declare -A TUNE=(
  [NCCL_BUFFSIZE]=8M
  [NCCL_MIN_NCHANNELS]=4
)
for k in "${!TUNE[@]}"; do
  export "$k=${TUNE[$k]}"
done
for v in NCCL_P2P_LEVEL=nvl NCCL_SHM_DISABLE=0; do
  export "$v"
done
env "${NCCL_ENV[@]}" torchrun --standalone --nproc_per_node=8 train.py
