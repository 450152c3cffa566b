#!/bin/sh
export NCCL_P2P_DISABLE=1
export NCCL_DEBUG=WARN
sudo --preserve-env=NCCL_DEBUG nice -n 5 python3 train.py
sudo nvidia-smi -pm 1
