#!/bin/bash
#SBATCH -A account -p batch -N 32
#SBATCH --ntasks-per-node=8

export TRANSFORMERS_OFFLINE=1
export NCCL_NVLS_ENABLE=0
export NVTE_DP_AMAX_REDUCE_INTERVAL=0
export NVTE_ASYNC_AMAX_REDUCTION=1
export NCCL_P2P_NET_CHUNKSIZE=2097152
export NCCL_IB_SL=1
export HYDRA_FULL_ERROR=1
MOUNTS="--container-mounts=/lustre:/lustre"
srun --container-image nvcr.io/nvidia/nemo:24.07 $MOUNTS --no-container-mount-home bash -c "
  cd /opt/NeMo && git rev-parse HEAD && \
  python3 -u examples/nlp/language_modeling/megatron_gpt_pretraining.py \
  --config-path=/lustre/conf --config-name=gpt_5b \
  run.results_dir=/lustre/results trainer.num_nodes=32"
