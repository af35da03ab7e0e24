#!/bin/sh
#GQ --job-name=steps
#GQ --ntasks=4
#GQ --gpus=4
#GQ --time=10
# Four programs side by side in one allocation, each with a CPU and a GPU of its own; the script waits for all.
for seed in 1 2 3 4; do
    gqrun -n 1 --gpus-per-task=1 --output="seed-$seed.log" sh -c "echo seed $seed on GPU \$CUDA_VISIBLE_DEVICES" &
done
wait
