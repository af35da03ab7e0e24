"""gq demo: the whole round on a throw-away cluster, shown as a user would see it.

Owns the story and its proof: every command is a real one in a process of its own, and whatever the text claims is
checked.  Ends 0 only if all of it held and nothing was left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from gq.cli.framework.command import Command
from gq.cli.gq.down import take_down
from gq.connection.locate import Location, private_location
from gq.errors import GqError, Refusal
from gq.host import daemons
from gq.request.getopt import Arguments

EXAMPLE = Path(__file__).resolve().parents[2] / "demo"
"""The files of ``examples/digits``, which are installed with the package."""
LEAST_ACCURACY = 0.9
TASKS = 8
_NODES, _GPUS = 2, 4
_GONE_WITHIN_S = 10.0


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise Refusal("operands", f"`gq demo` takes no operand, not `{arguments.operands[0]}`")
    if not EXAMPLE.is_dir():
        raise Refusal("no_example", f"{EXAMPLE} is missing", "install gq-batch again")
    began = time.monotonic()
    with _stage() as stage:
        _play(stage)
    _say(f"The demo took {time.monotonic() - began:.0f} seconds; it left nothing on this machine.")
    _say("`gq up` starts a cluster that stays.")
    return 0


class Stage:
    """A cluster and a directory to work in, both thrown away afterwards."""

    def __init__(self, root: Path) -> None:
        self.cluster = root / "cluster"
        self.work = root / "digits"
        shutil.copytree(EXAMPLE, self.work)
        self.location = private_location(str(self.cluster), os.environ)
        commands = Path(sys.executable).parent
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("GQ_", "GQSUB_", "GQRUN_"))}
        path = f"{commands}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        self.environment = {**kept, "GQ_DIR": str(self.cluster), "PATH": path, "PYTHON": sys.executable}

    def show(self, line: str, expect_code: int = 0) -> str:
        """Type a command: print it, then its output as it comes; returns the output."""
        _print(f"$ {line}")
        process = subprocess.Popen(
            shlex.split(line),
            env=self.environment,
            cwd=self.work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert process.stdout is not None
        text = ""
        for one in process.stdout:
            _print(f"  {one.rstrip()}")
            text += one
        _check(process.wait() == expect_code, f"`{line}` returned {process.returncode} instead of {expect_code}")
        return text

    def ask(self, line: str) -> list[dict[str, object]]:
        """Run a command with --json without showing it, for the checks."""
        answer = subprocess.run(
            shlex.split(line), env=self.environment, cwd=self.work, capture_output=True, text=True, check=False
        )
        _check(answer.returncode == 0, f"`{line}` failed: {answer.stderr.strip()}")
        found: list[dict[str, object]] = json.loads(answer.stdout)
        return found

    def submit(self, line: str) -> int:
        """Submit a job and return its number."""
        match = re.search(r"Submitted batch job (\d+)", self.show(line))
        if match is None:
            raise _failed(f"`{line}` did not print a job's number")
        return int(match[1])


# ── the story ─────────────────────────────────────────────────────────────────────────────────────────────────


def _play(stage: Stage) -> None:
    _say(f"A private cluster on this machine: {_NODES} nodes with {_GPUS} pretended GPUs each, started as you.")
    stage.show(f"gq up --nodes {_NODES} --fake-gpus {_GPUS} --cpus-per-node 4")
    info = stage.show("gqinfo")
    _check(str(_NODES * _GPUS) in info, f"gqinfo does not show {_NODES * _GPUS} free GPUs")
    _prepare(stage)
    hog, train = _wait_in_line(stage)
    _train(stage, hog, train)
    _look_back(stage, hog, train)


def _prepare(stage: Stage) -> None:
    _say("A job on a CPU prepares real data: 1,797 handwritten digits. `gqlog -f` follows it to its end.")
    job = stage.submit("gqsub prepare.sh")
    text = stage.show(f"gqlog -f {job}")
    _check("read 1797 images" in text, "the preparation did not read its data")
    _check((stage.work / "digits.npz").exists(), "the preparation wrote no arrays")


def _wait_in_line(stage: Stage) -> tuple[int, int]:
    _say("Somebody takes all GPUs for ten minutes.  The training, a gang of 2 nodes x 4 GPUs, has to wait.")
    hog = stage.submit("gqsub -J hog -N 2 --gpus-per-node=4 -t 10 --wrap 'sleep 600'")
    _await_state(stage, hog, "RUNNING")
    train = stage.submit("gqsub train.sh")
    queue = stage.show("gqstat")
    _check(str(hog) in queue and str(train) in queue, "gqstat does not show both jobs")
    _say("Why does it wait?")
    why = stage.show(f"gqwhy {train}")
    _check(re.search(rf"\b{hog}\b", why) is not None, f"gqwhy does not name job {hog}, which holds the GPUs")
    _check(_state(stage, train) == "PENDING", "the training did not wait")
    return hog, train


def _train(stage: Stage, hog: int, train: int) -> None:
    _say("The GPUs are given back, and the gang starts on both nodes at once: 8 tasks, one network, plain TCP.")
    stage.show(f"gqdel {hog}")
    text = stage.show(f"gqlog -f {train}")
    places = set(re.findall(r"^ *\d+: on node (\d) with GPU (\d)", text, re.MULTILINE))
    _check(len(places) == TASKS, f"{len(places)} tasks had a GPU of their own instead of {TASKS}")
    accuracy = re.search(r"test accuracy ([\d.]+)", text)
    _check(accuracy is not None and float(accuracy[1]) >= LEAST_ACCURACY, "the network did not learn")


def _look_back(stage: Stage, hog: int, train: int) -> None:
    _say("What became of everything:")
    stage.show("gqacct")
    _check(_state(stage, hog) == "CANCELLED", f"job {hog} was not cancelled")
    _check(_state(stage, train) == "COMPLETED", f"job {train} did not complete")
    info = stage.show("gqinfo")
    _check(str(_NODES * _GPUS) in info, "not all GPUs are free again")


def _state(stage: Stage, job_id: int) -> str:
    found = stage.ask(f"gqacct -X --json -j {job_id}")
    _check(len(found) == 1, f"gqacct knows {len(found)} jobs with the number {job_id}")
    return str(found[0]["state"])


def _await_state(stage: Stage, job_id: int, wanted: str) -> None:
    deadline = time.monotonic() + 15
    while _state(stage, job_id) != wanted:
        _check(time.monotonic() < deadline, f"job {job_id} did not become {wanted}")


# ── before and after ──────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def _stage() -> Iterator[Stage]:
    """A stage that is taken down in every case, Ctrl-C and TERM included; what stays behind is a failure."""
    former = signal.signal(signal.SIGTERM, _interrupt)
    root = Path(tempfile.mkdtemp(prefix="gq-demo-"))
    stage = Stage(root)
    try:
        yield stage
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            _clear(stage.location)
        finally:
            shutil.rmtree(root, ignore_errors=True)
            signal.signal(signal.SIGTERM, former)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _clear(location: Location) -> None:
    if not Path(location.config_path).exists():
        return
    take_down(location, is_sure=True, keep_jobs=False)
    deadline = time.monotonic() + _GONE_WITHIN_S
    while left := daemons.job_processes(location):
        _check(time.monotonic() < deadline, f"processes were left behind: {left}")
        time.sleep(0.05)
    _check(not Path(location.run_dir).exists(), f"{location.run_dir} was left behind")


def _failed(what: str) -> GqError:
    return Refusal("demo_failed", f"the demo failed: {what}", "run `gq doctor` to find the cause")


def _check(is_so: bool, what: str) -> None:
    if not is_so:
        raise _failed(what)


def _say(text: str) -> None:
    is_bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    _print(f"\n\033[1m# {text}\033[0m" if is_bold else f"\n# {text}")


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


COMMAND = Command(
    name="gq demo",
    summary="Show gq on a temporary cluster with pretended GPUs: queue, wait, explain, train, account.",
    run=run,
    details="The demo takes less than a minute, needs no GPU and no privileges, and leaves nothing behind.",
)
