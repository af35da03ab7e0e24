#!/bin/sh
#GQ --job-name=prepare --ntasks=1 --time=5 --output=prepare-%j.out
# Read the raw data and write arrays to train on.  No GPU is needed for that.
set -eu
here=${DIGITS_DIR:?where the example lies}
exec "${PYTHON:-python3}" "$here/prepare.py" "$here/digits.csv.gz" digits.npz
