"""A program that submits through the Python client over one connection, many jobs on the way at once.

Several of them begin at the same word, so that what is measured is the controller and not the start of Python.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import gq
from tests.benchmarks.gq_side import GqSide


def submitted_per_second(side: GqSide, connections: int, count: int) -> float:
    """How many jobs are durable in a second, from the first request to the last answer."""
    command = [sys.executable, "-m", "tests.benchmarks.submitter", str(count // connections)]
    environ = {**side.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    programs = [
        subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(connections)
    ]
    try:
        for program in programs:
            assert _line(program) == "ready"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        spans: list[tuple[float, float]] = [json.loads(_line(program)) for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.communicate()
    began, ended = min(began for began, _ in spans), max(ended for _, ended in spans)
    return count // connections * connections / (ended - began)


def _line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def main() -> None:
    count = int(sys.argv[1])
    with gq.connect() as cluster:
        request = cluster.prepare("true", output="/dev/null")
        cluster.submit("true", output="/dev/null")  # the connection stands, the modules are loaded
        print("ready", flush=True)
        sys.stdin.readline()
        began = time.monotonic()
        jobs = list(cluster.submit_many([request] * count))
        print(json.dumps([began, time.monotonic()]), flush=True)
        assert all(isinstance(job, gq.Job) for job in jobs), "a submission was refused"


if __name__ == "__main__":
    main()
