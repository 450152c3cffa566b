#!/bin/bash
MODE=prod
case $MODE in
  debug) export NCCL_DEBUG=DEBUG ;;
  prod)  export NCCL_DEBUG=WARN ;;
esac
USE_IB=false
if $USE_IB; then
  export NCCL_IB_DISABLE=off
fi
if false; then export NCCL_TIMEOUT=9; fi
export NCCL_ALGO=Rang
export NCCL_ALGO=Ring
export NCCL_PROTO=foo
unset NCCL_PROTO
exec torchrun train.py
export NCCL_LL_THRESHOLD=0
