#!/bin/sh
# nightly evaluation, called by cron as root
DIR=/srv/eval
cd "$DIR" || exit 1

# settings, one per line
cat settings.list | while read -r kv; do
    export "$kv"
done

export NCCL_SOCKET_IFNAME=enp3s0
su - evaluator -c "cd $DIR && NCCL_MAX_NCHANNEL=4 torchrun --nnodes 2 --node-rank 0 --nproc-per-node 4 --master-addr eval-a --master-port 29500 eval.py"
