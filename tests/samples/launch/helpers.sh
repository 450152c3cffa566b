#!/bin/bash
# helper variables that look like settings
NCCL_OPTS="-x NCCL_DEBUG=WARN -x NCCL_IB_DISABLE=1"
NCCL_TEST_ARGS="-b 8 -e 128M"
NCCL_TIMEOUT=1800
SOCKET_IFNAME=$(ip route show default | awk '{print $5}')
export NCCL_SOCKET_IFNAME=$SOCKET_IFNAME
export TORCH_LOGS="+dynamo"
export TORCH_HOME=/data/torch
export TORCH_CUDA_ARCH_LIST="8.0 9.0"
export TORCH_EXTENSIONS_DIR=/tmp/ext
export TORCH_COMPILE_DEBUG=0
export CONF_FILE=train.yaml DEBUG_FILE=out.txt
echo "NCCL_DEBUGG is not a variable; this is only text"
grep -q "NCCL_FOO=1" log.txt || true
mpirun $NCCL_OPTS python train.py --timeout $NCCL_TIMEOUT
