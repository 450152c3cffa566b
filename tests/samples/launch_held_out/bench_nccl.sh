#!/usr/bin/env bash
# weekly all_reduce_perf on the new rack (NCCL 2.29)
set -u
NODES=${NODES:-2}
sizes=(8M 64M 512M 4G)
export NCCL_SOCKET_NTHREADS=8 NCCL_NSOCKS_PERTHREAD=16
export NCCL_ALGO=CollNet
export NCCL_MULTI_RANK_GPU_ENABLE=1
for s in "${sizes[@]}"; do
    srun -N "$NODES" --ntasks-per-node=8 --gpus-per-task=1 \
        /opt/nccl-tests/build/all_reduce_perf -b "$s" -e "$s" -n 20 -c 1
done
