#!/usr/bin/env bash
# the two cards of slot 3 are broken, leave them out
set -e
export CUDA_VISIBLE_DEVICES=0,1,2,3,6,7
export NCCL_CHECK_POINTERS=1
export TORCH_CPP_LOG_LEVEL=WARNING
export NCCL_NET_GDR_READ=yes
torchrun --standalone --nproc-per-node=8 nightly.py --production
