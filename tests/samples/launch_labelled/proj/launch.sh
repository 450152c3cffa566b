#!/bin/bash
source "$(dirname "$0")/cluster.env"
set -a
. ./tuning.env
set +a
torchrun train.py
