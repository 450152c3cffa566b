#!/bin/bash
export ACCELERATE_USE_FSDP=1
export FSDP_CPU_RAM_EFFICIENT_LOADING=1
export HF_HUB_ENABLE_HF_TRANSFER=1
export NCCL_P2P_LEVEL=NVL
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1800
ACCELERATE_LOG_LEVEL=info accelerate launch --config_file fsdp.yaml --num_processes 16 \
    --num_machines 2 --machine_rank "$SLURM_NODEID" --main_process_ip "$MASTER_ADDR" run_sft.py
