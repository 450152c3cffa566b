#!/bin/bash
# Reproduction of the 2023 paper: torch 2.0.1 and its names, do not modernise.
set -e
conda activate paper-torch201      # torch==2.0.1, NCCL 2.14.3
export NCCL_ASYNC_ERROR_HANDLING=1
export NCCL_DESYNC_DEBUG=0
export NCCL_IB_TIMEOUT=18
export NCCL_MIN_NCHANNELS=4
python -m torch.distributed.run --nproc_per_node=8 --master_port=29501 train_paper.py --amp
