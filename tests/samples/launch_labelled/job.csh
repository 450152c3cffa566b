#!/bin/csh
setenv NCCL_DEBUG INFO
if ( $?SLURM_JOB_ID ) then
  setenv NCCL_SOCKET_IFNAME ib0
endif
set NCCL_IB_DISABLE = 1
setenv NCCL_CROSS_NIC maybe
torchrun train.py
