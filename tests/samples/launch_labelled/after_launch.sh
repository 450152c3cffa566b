#!/bin/bash
export NCCL_DEBUG=WARN
torchrun --nproc_per_node 8 train.py > log 2>&1
export NCCL_IB_TIMEOUT=22
