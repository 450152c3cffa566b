#!/bin/bash
export NCCL_DEBUG=WARN
export TORCH_NCCL_DUMP_ON_TIMEOUT=1
deepspeed --hostfile hostfile --num_gpus 8 train.py --deepspeed ds.json
