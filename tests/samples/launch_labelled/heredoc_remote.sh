#!/bin/bash
# the job description goes to the login node
ssh login1 'bash -s' <<'REMOTE'
export NCCL_SOCKET_IFNAME=ib0
export NCCL_IB_RETRY_CNT=15
cd /work/job
srun --export=ALL python train.py
REMOTE
cat > notes.txt <<'N'
export NCCL_P2P_DISABLE=yes
N
echo "remember: NCCL_TIMEOUT does nothing"
