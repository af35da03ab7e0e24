#!/bin/bash
#GQ --job-name=elastic
#GQ --nodes=1-4 --elastic
#GQ --gpus-per-node=8
#GQ --ntasks-per-node=1
#GQ --cpus-per-task=32
#GQ --time=1-0
#GQ --output=elastic-%j.out
# Starts on one node, uses up to four while they are idle, and releases them when pending jobs need them.  Each node
# runs one torchrun, started when the node joins; the rendezvous is on the first node, which stays.  When their number
# changes, they restart with the remaining workers, and train.py resumes from its checkpoint.
#   gqsub elastic-nodes.sh train.py --config big.toml
exec gqrun --elastic torchrun --nnodes=1:4 --nproc-per-node=8 --max-restarts=100 \
    --rdzv-backend=c10d --rdzv-id="$GQ_JOB_ID" --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" "$@"
