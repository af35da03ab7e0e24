#!/bin/bash
#GQ --job-name=elastic
#GQ --gpus=1-8
#GQ --time=8h
#GQ --output=elastic-%j.out
# Starts on one GPU, takes up to eight of its node while they are idle, and gives them back when others want them.
# elastic.py runs one worker for each GPU, and others when the set changes; train.py goes on from its checkpoint.
#
# With torchrun instead, which counts its workers itself:
#
#   torchrun --standalone --nproc-per-node="$(python -c 'import gq.elastic as e; print(len(e.target()))')" train.py
#
# in a loop that ends it (TERM) and starts it anew when gq.elastic.target() has changed.
exec python3 elastic.py python3 train.py 3000
