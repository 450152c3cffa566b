#!/bin/bash
ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": ".", "env_vars": {"NCCL_DEBUG": "WARN", "NCCL_CUMEM_ENABLE": "0", "VLLM_USE_V1": "1"}}' \
   -- python3 -m train_ppo --actor_num_nodes 1 --micro_train_batch_size 8
