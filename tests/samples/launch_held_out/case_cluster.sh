#!/usr/bin/env bash
set -euo pipefail
cluster=$(hostname -d)
declare -A IF=([alps.example]=hsn0 [jura.example]=ib0 [default]=eth0)
export NCCL_SOCKET_IFNAME="=${IF[$cluster]:-${IF[default]}}"
case $cluster in
  alps.example) export NCCL_NET="AWS Libfabric" FI_PROVIDER=cxi NCCL_NET_GDR_LEVEL=PHB ;;
  jura.example) export NCCL_NET=IB NCCL_IB_HCA="=mlx5_0,mlx5_1" NCCL_IB_TIMEOUT=22 ;;
  *)            unset NCCL_IB_HCA NCCL_NET NCCL_TIMEOUT ;;
esac
version=$(python -c 'import torch; print(torch.__version__)')
if [[ $version == 2.[0-7].* ]]; then
  export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=1
else
  export TORCH_FR_BUFFER_SIZE=2000
fi
grep -q 'NCCL_DEBUG=TRACE' ~/.bashrc && echo "please remove NCCL_DEBUG=TRACE from your .bashrc" >&2
exec srun torchrun --nnodes "$SLURM_NNODES" --nproc-per-node 4 --rdzv-backend c10d --rdzv-id "$SLURM_JOB_ID" \
    --rdzv-endpoint "$(scontrol show hostnames | head -1):29400" train.py
