#!/bin/bash
#GQ --job-name=elastic
#GQ --gpus=1-8
#GQ --time=8h
#GQ --output=elastic-%j.out
# Starts on one GPU, uses up to eight of its node while they are idle, and releases them when pending jobs need them.
# elastic.py runs one worker for each GPU and restarts them when the set changes; train.py resumes from its checkpoint.
#
# With torchrun instead, which starts its workers itself:
#
#   torchrun --standalone --nproc-per-node="$(python -c 'import gq.elastic as e; print(len(e.target()))')" train.py
#
# in a loop that ends it (SIGTERM) and restarts it when gq.elastic.target() has changed.
exec python3 elastic.py python3 train.py 3000
