#!/bin/bash
HOSTS=(gpu01 gpu02)
export NCCL_IB_TIMEOUT=23
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
for i in "${!HOSTS[@]}"; do
  ssh "${HOSTS[$i]}" "cd /srv/lm && NCCL_DEBUG=WARN TORCH_NCCL_ASYNC_ERROR_HANDLING=$TORCH_NCCL_ASYNC_ERROR_HANDLING torchrun --nnodes=2 --node-rank=$i --master-addr=gpu01 train.py" &
done
wait
