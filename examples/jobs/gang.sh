#!/bin/sh
#GQ --job-name=gang
#GQ --nodes=2
#GQ --gpus-per-node=4
#GQ --ntasks-per-node=4
#GQ --time=10
# The job starts on both nodes at the same time.  The script runs on the first node; gqrun starts tasks on all of them.
gqrun --label --gpus-per-task=1 sh -c \
    'echo "rank $GQ_PROCID of $GQ_NTASKS: node $GQ_NODEID ($(hostname)), GPU $CUDA_VISIBLE_DEVICES"'
