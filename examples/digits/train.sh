#!/bin/sh
#GQ --job-name=train --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --time=10 --output=train-%j.out
# A gang: two nodes with four GPUs each, all or nothing.  One task per GPU; they meet at MASTER_ADDR:MASTER_PORT.
export OPENBLAS_NUM_THREADS=1 # eight tasks may share few cores
exec gqrun --label --gpus-per-task=1 "${PYTHON:-python3}" train.py digits.npz
