#!/bin/bash
DEBUG=${DEBUG:-0}
while getopts "dh" opt; do
  case $opt in
    d) DEBUG=1 ;;
    h) echo "Usage: NCCL_TIMEOUT=10 $0"; exit 0 ;;
    *) exit 1 ;;
  esac
done
[[ $DEBUG == 1 ]] && export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET
NCCL_SOCKET_IFNAME=$(ip route | awk '/default/{print $5; exit}')
export NCCL_SOCKET_IFNAME
export GLOO_SOCKET_IFNAME=$NCCL_SOCKET_IFNAME
if [ "${SLURM_NNODES:-1}" -gt 1 ]; then
  export NCCL_CROSS_NIC=0
else
  unset NCCL_CROSS_NIC
fi
printf 'NCCL_%s\n' DEBUG=1 FOO=2
cat <<'EOF' >> README.md
export NCCL_IB_DISABLE=true
EOF
NCCL_VERSION=2.21.5
wget https://x/nccl_$NCCL_VERSION.txz
nohup torchrun --nproc_per_node=8 train.py "$@" > out.log 2>&1 &
wait $!
