#!/bin/bash
export FI_PROVIDER=efa
export FI_EFA_USE_DEVICE_RDMA=1
export FI_EFA_FORK_SAFE=1
export NCCL_PROTO=simple
export NCCL_SOCKET_IFNAME=^lo,docker
export OFI_NCCL_NIC_DUP_CONNS=1
export SM_NUM_GPUS=${SM_NUM_GPUS:-8}
export SMDATAPARALLEL_USE_HOMOGENEOUS=1
if [ "${SM_CURRENT_INSTANCE_TYPE:-}" = "ml.p4d.24xlarge" ]; then
    export RDMAV_FORK_SAFE=1
fi
torchrun --nnodes=$SM_HOST_COUNT --nproc_per_node=$SM_NUM_GPUS train.py
