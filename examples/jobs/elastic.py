"""Run one worker for each GPU of this job, and restart the workers whenever the set of GPUs changes.

    #GQ --gpus=1-8
    python elastic.py COMMAND [ARGUMENT ...]

Each worker gets its GPU (CUDA_VISIBLE_DEVICES), RANK, LOCAL_RANK and WORLD_SIZE, as under torchrun.  When the set
changes, the workers get SIGTERM, save their work and end.  Then new workers start on the new set, and the other GPUs
are released before the deadline.  The job ends with its workers, and succeeds if all of them did.
"""

import os
import signal
import subprocess
import sys
import time

import gq.elastic

GRACE_S = 5.0


def start(command: list[str], gpus: tuple[str, ...]) -> list[subprocess.Popen[bytes]]:
    workers = []
    for rank, gpu in enumerate(gpus):
        facts = {"CUDA_VISIBLE_DEVICES": gpu, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(len(gpus))}
        workers.append(subprocess.Popen(command, env=os.environ | facts))
    return workers


def stop(workers: list[subprocess.Popen[bytes]]) -> None:
    for one in workers:
        one.send_signal(signal.SIGTERM)
    until = time.monotonic() + GRACE_S
    for one in workers:
        try:
            one.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


def main() -> int:
    command = sys.argv[1:]
    gpus = gq.elastic.target()
    workers = start(command, gpus)
    while any(one.poll() is None for one in workers):
        time.sleep(0.2)
        if gq.elastic.target() == gpus:
            continue
        stop(workers)
        gpus = gq.elastic.target()
        gq.elastic.accept()
        print(f"elastic: {len(gpus)} workers on GPUs {','.join(gpus)}", flush=True)
        workers = start(command, gpus)
    return max((abs(one.returncode) for one in workers), default=0)


if __name__ == "__main__":
    sys.exit(main())
