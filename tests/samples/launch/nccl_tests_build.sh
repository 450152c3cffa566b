#!/bin/bash
NCCL_VERSION=${NCCL_VERSION:-2.21.5-1}
NCCL_HOME=/opt/nccl
NCCL_TESTS_DIR=/opt/nccl-tests
git clone -b v$NCCL_VERSION https://github.com/NVIDIA/nccl.git $NCCL_HOME
make -j -C $NCCL_HOME src.build NVCC_GENCODE="-gencode=arch=compute_90,code=sm_90"
make -C $NCCL_TESTS_DIR MPI=1 NCCL_HOME=$NCCL_HOME/build CUDA_HOME=/usr/local/cuda
NCCL_ARGS="-b 8 -e 8G -f 2 -g 1"
mpirun -np 8 -x NCCL_DEBUG=WARN $NCCL_TESTS_DIR/build/all_reduce_perf $NCCL_ARGS
