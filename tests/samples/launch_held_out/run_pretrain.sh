#!/usr/bin/env bash
# Starts the 4-node pre-training; run on every node by clush.
set -euo pipefail

NODE_RANK=${1:?node rank}
HEAD=${HEAD:-gpu-a01}
ARGS=(--config configs/13b.yaml --resume auto)

setup_net() {
    local dev
    dev=$(ip -o -4 route show to 10.20.0.0/16 | awk '{print $3; exit}')
    NCCL_SOCKET_IFNAME=$dev
    export GLOO_SOCKET_IFNAME=$dev
    export NCCL_IB_HCA="=mlx5_0,mlx5_3,mlx5_4,mlx5_7"
}

setup_debug() {
    export NCCL_DEBUG=WARN
    export TORCH_NCCL_DUMP_ON_TIMOUT=1
    export TORCH_FR_DUMP_TEMP_FILE=/local/fr/rank_
}

setup_net
setup_debug
exec torchrun --nnodes 4 --node-rank "$NODE_RANK" --nproc-per-node 8 \
    --master-addr "$HEAD" --master-port 29511 pretrain.py "${ARGS[@]}"
