#!/bin/bash
docker run --rm --gpus all --ipc=host --ulimit memlock=-1 --network=host \
    -e NCCL_DEBUG=INFO -e "NCCL_SOCKET_IFNAME=eth0" --env NCCL_IB_DISABLE=1 \
    -e MASTER_ADDR="$MASTER_ADDR" -e WANDB_API_KEY \
    --shm-size 64g -v /data:/data train:latest \
    bash -c "pip install -e . && torchrun --nproc_per_node=8 train.py"
