#!/bin/bash
#GQ --job-name=elastic
#GQ --nodes=1-4 --elastic
#GQ --gpus-per-node=8
#GQ --ntasks-per-node=1
#GQ --cpus-per-task=32
#GQ --time=1-0
#GQ --output=elastic-%j.out
# Starts on one node, takes up to four while they are idle, and gives them back when others want them.  On each there is
# one torchrun, begun when the node comes; they find each other at the first node, which stays, and when their number
# changes they begin anew with the workers that there are: train.py goes on from its checkpoint.
#   gqsub elastic-nodes.sh train.py --config big.toml
exec gqrun --elastic torchrun --nnodes=1:4 --nproc-per-node=8 --max-restarts=100 \
    --rdzv-backend=c10d --rdzv-id="$GQ_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" "$@"
