#!/bin/sh
#GQ --job-name=torchrun
#GQ --nodes=4
#GQ --gpus-per-node=8
#GQ --ntasks-per-node=1
#GQ --cpus-per-task=32
#GQ --time=1-0
#GQ --signal=B:USR1@300
# One torchrun per node, with the rendezvous that gq sets.  Five minutes before the time limit the script gets SIGUSR1,
# asks for a checkpoint and requeues the job.
#   gqsub torchrun.sh train.py --config big.toml
trap 'touch checkpoint-now; gqctl requeue "$GQ_JOB_ID"' USR1
gqrun sh -c 'exec torchrun --nnodes "$GQ_NNODES" --node-rank "$GQ_NODEID" --nproc-per-node "$GQ_GPUS_ON_NODE" \
    --master-addr "$MASTER_ADDR" --master-port "$MASTER_PORT" "$@"' torchrun "$@" &
wait $!
