#!/bin/sh
#GQ --job-name=train --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 --time=10 --output=train-%j.out
# Two nodes with four GPUs each, which start together.  One task per GPU; rank 0 listens at MASTER_ADDR:MASTER_PORT.
export OPENBLAS_NUM_THREADS=1 # eight tasks may share few cores
exec gqrun --label --gpus-per-task=1 "${PYTHON:-python3}" train.py digits.npz
