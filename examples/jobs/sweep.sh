#!/bin/sh
#GQ --job-name=sweep
#GQ --sweep="lr=1e-2,1e-3,1e-4 batch=32,64"
#GQ --array=%auto
#GQ --gpus=1
#GQ --time=10
# Six tasks, one for each pair of values; as many run at once as there are idle GPUs, and other users' jobs get GPUs as
# tasks end.  The results: gqacct -j JOB -o jobid,sweep%30,state,elapsed
echo "task $GQ_ARRAY_TASK_ID: lr $lr, batch $batch, on GPU $CUDA_VISIBLE_DEVICES"
