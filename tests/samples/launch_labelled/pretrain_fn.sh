#!/usr/bin/env bash
set -euo pipefail
usage() {
  cat <<EOF
usage: $0 [--debug]
  NCCL_TIMEOUT=1800 is not needed any more
EOF
  exit 1
}
setup_ib() {
  export NCCL_IB_HCA="=mlx5_0,mlx5_3"
  export NCCL_IB_GID_INDX=3
}
old_setup() {
  export NCCL_TREE_THRESHOLD=0
}
setup_ib
: "${NCCL_DEBUG:=WARN}"
(export NCCL_CROSS_NIC=1)
torchrun --nproc-per-node 8 pretrain.py "$@"
