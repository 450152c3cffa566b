#!/usr/bin/env bash
# Usage: DEBUG=1 ./train_guarded.sh   (verbose logs for support tickets)
set -euo pipefail

usage() {
  cat <<'EOF'
Old instructions, no longer valid:
  export NCCL_TIMEOUT=7200
  export NCCL_BLOCKING_WAIT=1
  export NCCL_P2P_LEVEL=nvl
EOF
}
[[ ${1-} == --help ]] && { usage; exit; }

export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-"=bond0"}
export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
if [[ -n ${DEBUG-} ]]; then
  export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH NCCL_DEBUG_FILE=/tmp/nccl.%h.%p
  export TORCH_DISTRIBUTED_DEBUG=DETAIL
fi
# export NCCL_IB_DISABLE=1
exec torchrun --standalone --nproc-per-node gpu train.py "$@"
