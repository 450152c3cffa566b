#!/bin/bash
export NCCL_DEBUG=INFO
export NCCL_SOCKET_IFNAME=ens5
export LD_LIBRARY_PATH=/opt/aws-ofi-nccl/lib:$LD_LIBRARY_PATH
MPI_OPTS="--bind-to none --mca btl tcp,self -x LD_LIBRARY_PATH -x NCCL_DEBUG"
mpirun -np 16 --hostfile ~/hosts $MPI_OPTS \
  -x NCCL_ALGO=ring,tree \
  -x NCCL_PROTO=LL129 \
  -x FI_PROVIDER=efa \
  python train.py
