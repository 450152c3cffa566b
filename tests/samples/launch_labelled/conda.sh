#!/bin/bash
pip install "torch==2.3.1" --index-url https://download.pytorch.org/whl/cu121
export TORCH_NCCL_NAN_CHECK=1
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
torchrun train.py
