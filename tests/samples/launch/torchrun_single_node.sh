#!/usr/bin/env bash
set -euo pipefail

NGPUS=${NGPUS:-8}
CONFIG=${1:-configs/llama3_8b.toml}
LOG_RANK=${LOG_RANK:-0}
export OMP_NUM_THREADS=8
export TOKENIZERS_PARALLELISM=false
export PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}

# don't forget: the dataset must be cached first
torchrun --standalone --nproc_per_node="$NGPUS" \
    --local-ranks-filter "$LOG_RANK" --role rank --tee 3 \
    train.py --config "$CONFIG" "${@:2}"
