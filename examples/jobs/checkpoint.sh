#!/bin/sh
#GQ --job-name=checkpoint
#GQ --qos=scavenger
#GQ --gpus=1
#GQ --time=30
#GQ --signal=USR1@60
#GQ --requeue-on=preempt,node_fail,timeout
# Runs on idle GPUs and is preempted by jobs with QOS normal or high.  It then has a minute to save its work, is
# requeued with its age, and resumes from its checkpoint.  The same happens at its time limit.
#   gqsub checkpoint.sh
gqrun python3 train.py 3000
