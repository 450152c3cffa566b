#!/bin/bash
# Open MPI over ssh, eight hosts of the lab
set -e
source /opt/lab/env.sh

export NCCL_DEBUG=WARN
export NCCL_SOCKET_IFNAME=enp129s0f0
export NCCL_TREE_THRESHOLD=0
export TORCH_NCCL_ASYNC_ERROR_HANDLING=1
export NCCL_IB_TC=106

HOSTS=hosts.txt
NP=$(( $(wc -l < $HOSTS) * 8 ))

mpirun -np $NP --hostfile $HOSTS --map-by ppr:8:node --bind-to none \
    -x PATH -x LD_LIBRARY_PATH -x NCCL_DEBUG -x NCCL_SOCKET_IFNAME -x NCCL_TREE_THRESHOLD -x TORCH_NCCL_ASYNC_ERROR_HANDLING \
    -mca btl_tcp_if_include enp129s0f0 -mca pml ob1 \
    python train_mpi.py "$@"
