#!/bin/sh
#GQ --job-name=checkpoint
#GQ --qos=scavenger
#GQ --gpus=1
#GQ --time=30
#GQ --signal=USR1@60
#GQ --requeue-on=preempt,node_fail,timeout
# Runs on what is idle, and gives way to whoever has a better claim: it then has a minute to save its work, waits
# again, as old as it is, and goes on where it was.  So it does after its time limit.
#   gqsub checkpoint.sh
gqrun python3 train.py 3000
