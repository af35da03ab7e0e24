"""A training loop that can be interrupted: python3 train.py STEPS [SECONDS]

It saves its state at SIGUSR1 and at SIGTERM, reports that to the scheduler, and resumes from there at the next start.
The result does not depend on interruptions.  SECONDS is the duration of a step (default: 0.1).  All workers of a job
have the same state; the first one (RANK 0) saves it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

CHECKPOINT, RESULT = Path("checkpoint.json"), Path("result.json")
IS_FIRST = os.environ.get("RANK", "0") == "0"
told: list[int] = []


def load() -> tuple[int, int]:
    step, weight = json.loads(CHECKPOINT.read_text()) if CHECKPOINT.exists() else (0, 1)
    print(f"begins at step {step}, restart {os.environ.get('GQ_RESTART_COUNT', 0)}", flush=True)
    return step, weight


def save(step: int, weight: int) -> None:
    """Replace the checkpoint atomically: a half-written checkpoint is worse than an old one."""
    if not IS_FIRST:
        return
    new = CHECKPOINT.with_suffix(".new")
    new.write_text(json.dumps([step, weight]))
    new.replace(CHECKPOINT)
    if signal.SIGTERM not in told:  # after SIGTERM a report is refused
        tell("checkpoint-done")  # jobs that would lose the least work are preempted first
    print(f"saved step {step}", flush=True)


def tell(verb: str) -> None:
    if IS_FIRST and shutil.which("gq") and "GQ_JOB_ID" in os.environ:
        subprocess.run(["gq", verb], check=False)


def main() -> int:
    steps, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0.1
    for signum in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(signum, lambda number, frame: told.append(number))
    step, weight = load()
    tell("resume-done")  # the time since the restart is the cost of another stop
    while step < steps:
        weight = (weight * 1103515245 + 12345 + step) % 2**31  # the training
        step += 1
        time.sleep(seconds)
        if told:
            save(step, weight)
            if signal.SIGTERM in told:
                return 1
            told.clear()
    if IS_FIRST:
        RESULT.write_text(json.dumps({"steps": step, "weight": weight}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
