#!/bin/bash
cat > .deepspeed_env <<EOF
NCCL_DEBUG=WARN
NCCL_SOCKET_IFNAME=eth0
NCCL_IB_DISABLE=0
PYTHONPATH=$PYTHONPATH
EOF

export WANDB_MODE=offline
export HF_DATASETS_OFFLINE=1
export CUDA_LAUNCH_BLOCKING=0
deepspeed --hostfile hostfile --master_port 29501 --num_gpus 8 finetune.py \
    --deepspeed ds_config_zero3.json --bf16 True --output_dir out/$(date +%s)
