#!/bin/bash
# all NCCL_* and TORCH_* variables are handed on
export NCCL_IB_HCA=^mlx5_bond_0
export NCCL_SOCKET_IFNAME=eno
export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=1200
X=()
for v in $(compgen -e | grep -E '^(NCCL|TORCH)_'); do X+=(-x "$v"); done
mpirun -np 32 --hostfile hosts "${X[@]}" -x PATH python train.py
