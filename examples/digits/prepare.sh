#!/bin/sh
#GQ --job-name=prepare --ntasks=1 --time=5 --output=prepare-%j.out
# Read the raw data and write arrays for the training.  No GPU is needed.
exec "${PYTHON:-python3}" prepare.py digits.csv.gz digits.npz
