"""Runs gq's commands in children of one process that has loaded them, each with the standard streams that it is given.

Started as ``python -m tests.integration.verb_host``.  Each line of its input is a call in JSON, each line of its output
an exit status.  A child finds what the interpreter makes at its start: `sys.stdin`, `sys.stdout` or `sys.stderr` is
None where that stream is closed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from gq.cli import _run

PATIENCE_S = 60
"""No command of the table takes longer."""
_NAMES = ("stdin", "stdout", "stderr")


class Done(NamedTuple):
    status: int
    out: str
    err: str


class VerbHost:
    """The process, seen from a test."""

    def __init__(self, environ: dict[str, str], directory: Path) -> None:
        self._directory = directory
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.verb_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            cwd=directory,
        )

    def run(self, *argv: str, closed: Sequence[int] = ()) -> Done:
        """`argv` with these standard streams closed; standard input is empty."""
        assert self._process.stdin is not None and self._process.stdout is not None
        out, err = self._directory / "out.txt", self._directory / "err.txt"
        call = {"argv": argv, "closed": list(closed), "files": [os.devnull, str(out), str(err)]}
        self._process.stdin.write(json.dumps(call) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        return Done(status, out.read_text(), err.read_text())

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


def main() -> None:
    for module in (*_run.JOB_VERBS, *_run.CLUSTER_VERBS):
        _run.load(_run.module_of(module))
    for module in ("gqd.sim.replay", "gqd.sim.report", "gq.ics", "gq.curve", "rich.table"):
        import_module(module)
    for line in sys.stdin:
        call = json.loads(line)
        if (child := os.fork()) == 0:
            _run_child(call["argv"], call["closed"], call["files"])
        _, ended = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(ended), flush=True)


def _run_child(argv: list[str], closed: list[int], files: list[str]) -> None:
    signal.alarm(PATIENCE_S)
    for fd, (name, path) in enumerate(zip(_NAMES, files, strict=True)):
        opened = os.open(path, os.O_RDONLY if fd == 0 else os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, fd)
        os.close(opened)
        setattr(sys, name, os.fdopen(fd, "w" if fd else "r", closefd=False))
    for fd in closed:
        os.close(fd)
        setattr(sys, _NAMES[fd], None)
    sys.argv = argv
    try:
        _run._main(argv[0])
    except BaseException:  # as the interpreter ends with it
        import traceback

        if sys.stderr is not None:
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
