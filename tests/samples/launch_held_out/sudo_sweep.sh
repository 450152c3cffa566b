#!/bin/bash
# sweep over learning rates on the shared box; needs sudo for the locked clocks
set -euo pipefail
lrs=( "$@" )
: "${lrs[0]:?learning rates}"

sudo nvidia-smi -lgc 1410
trap 'sudo nvidia-smi -rgc' EXIT

export NCCL_P2P_LEVEL=SYS
for lr in "${lrs[@]}"; do
    echo "NCCL_DEBUG=INFO is not needed here; lr $lr"
    sudo -u sweep /opt/sweep/bin/torchrun --standalone --nproc-per-node=4 train.py --lr "$lr"
done
