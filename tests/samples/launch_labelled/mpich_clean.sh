#!/bin/bash
export NCCL_DEBUG=WARN
export NCCL_SOCKET_IFNAME=^docker0,lo
mpiexec -f hosts -ppn 8 -n 16 -genv FI_PROVIDER verbs python train.py
