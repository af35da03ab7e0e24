#!/bin/sh
#GQ --job-name=steps
#GQ --ntasks=4
#GQ --gpus=4
#GQ --time=10
# Four programs at the same time in one allocation, each with its own CPU and GPU; the script waits for all of them.
for seed in 1 2 3 4; do
    gqrun -n 1 --gpus-per-task=1 --output="seed-$seed.log" sh -c "echo seed $seed on GPU \$CUDA_VISIBLE_DEVICES" &
done
wait
