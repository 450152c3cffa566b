#!/bin/bash
#SBATCH --account=project --partition=standard-g --nodes=8 --gpus-per-node=8
module load LUMI/23.09 partition/G
export NCCL_SOCKET_IFNAME=hsn0,hsn1,hsn2,hsn3
export NCCL_NET_GDR_LEVEL=3
export RCCL_MSCCL_ENABLE=0
export MIOPEN_USER_DB_PATH="/tmp/$(whoami)-miopen-cache-$SLURM_NODEID"
export MIOPEN_CUSTOM_CACHE_DIR=$MIOPEN_USER_DB_PATH
export HSA_FORCE_FINE_GRAIN_PCIE=1
export ROCR_VISIBLE_DEVICES=$SLURM_LOCALID
export MPICH_GPU_SUPPORT_ENABLED=1
export FI_CXI_ATS=0
c=fe
MYMASKS="0x${c}000000000000,0x${c}00000000000000"
srun --cpu-bind=mask_cpu:$MYMASKS ./launch.sh "$@"
