NCCL_DEBUG ?= WARN
IFACE := eth0
RUN = NCCL_DEBUG=$(NCCL_DEBUG) NCCL_SOCKET_IFNAME=$(IFACE) torchrun

train:
	export NCCL_CROSS_NIC=0; \
	export TORCH_FR_BUFFER_SIZE=2000; \
	$(RUN) --nproc_per_node=8 train.py

.PHONY: train
