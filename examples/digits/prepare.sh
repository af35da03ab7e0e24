#!/bin/sh
#GQ --job-name=prepare --ntasks=1 --time=5 --output=prepare-%j.out
# Read the raw data and write arrays to train on.  That takes no GPU.
exec "${PYTHON:-python3}" prepare.py digits.csv.gz digits.npz
