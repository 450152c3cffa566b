#!/bin/bash
set -x
HOSTFILE=${1:-hosts}
mpirun --allow-run-as-root -np 16 --hostfile $HOSTFILE -bind-to none -map-by slot \
    -x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=^docker0,lo -x LD_LIBRARY_PATH -x PATH \
    -x NCCL_IB_PCI_RELAXED_ORDERING=1 -x UCX_TLS=rc -x NCCL_TOPO_FILE=/opt/microsoft/ndv4-topo.xml \
    -mca pml ob1 -mca btl ^openib -mca btl_tcp_if_include eth0 \
    python train.py
