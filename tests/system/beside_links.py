"""How long another user's commands take beside 20,000 silent links of an ordinary user on each socket of a cluster.

    python -m tests.system.beside_links [--links 20000] [--submissions 200] [--commands 30]

Needs root.  Measures the same commands twice in one run, without and beside the links, and prints one table; on a busy
machine the ratios count.  A submission is a connection of its own through the Python API, without Python's start;
`gqrun` and `gqlog` are whole processes.  Exit status 1 when a command failed or a daemon ended.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from typing import NamedTuple

from tests.benchmarks.row import median, percentile
from tests.clusters import new_mark
from tests.integration.jobs import submit
from tests.system.accounts import BOB
from tests.system.hosts import CONTROLLER_PORT, STEP_PORT, User, network
from tests.system.speaker import Speaker
from tests.system.stage import ACCOUNTS, NAMES, PORT_OF_CLIENTS, Stage, set_stage
from tests.system.test_attacks_wire import GREETING_OF_NULL, READY

LINKS_OF_PROCESS = 10_000
"""A process can have so many descriptors, whoever runs it."""
PROBE_S = 400.0
SUBMIT = """
import json, sys, time
import gq
def sample():
    began = time.monotonic()
    with gq.connect() as cluster:
        cluster.submit("true", hold=True, output="/dev/null")
    return time.monotonic() - began
sample()
print(json.dumps([sample() for _ in range(int(sys.argv[1]))]))
"""
RUN = """
import json, subprocess, sys, time
def sample(argv):
    began = time.monotonic()
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, timeout=100)
    return time.monotonic() - began
sample(sys.argv[2:])
print(json.dumps([sample(sys.argv[2:]) for _ in range(int(sys.argv[1]))]))
"""


class Door(NamedTuple):
    """One socket, and where the user sits who opens links to it."""

    name: str
    host: str
    path: str = ""
    port: int = 0
    """Of `of`, where it is no path."""
    of: str = ""


DOORS = (
    Door("gqd: gqd.sock", "ctl", "/run/gq/gqd.sock"),
    Door("gqd: port of nodes", "lab", port=CONTROLLER_PORT, of="ctl"),
    Door("gqd: port of users", "lab", port=PORT_OF_CLIENTS, of="ctl"),
    Door("gqnode: relay", "n1", "/run/gq/gqd.sock"),
    Door("gqnode: socket of the host", "n1", "/run/gq/step-n1.sock"),
    Door("gqnode: step port", "lab", port=STEP_PORT, of="n1"),
)


class Attack:
    """Silent links to every door, of one ordinary user; they stand until the hosts end, or the daemons hang up."""

    def __init__(self, stage: Stage, links: int) -> None:
        self._stage = stage
        self.opened = dict.fromkeys((door.name for door in DOORS), 0)
        """How many connections were made to each door before it kept the user out, if it did."""
        self._threads: list[threading.Thread] = []
        processes = -(-links // LINKS_OF_PROCESS)
        for door in DOORS:
            for _ in range(processes):
                self._threads.append(threading.Thread(target=self._open, args=(door, links // processes), daemon=True))
        for thread in self._threads:
            thread.start()

    def _open(self, door: Door, count: int) -> None:
        speaker = Speaker(self._stage.user(BOB, door.host))
        if door.path:
            self.opened[door.name] += speaker.fall_silent_local(door.path, count, GREETING_OF_NULL + READY)
        else:
            with suppress(AssertionError, OSError):  # the hosts ended before all were attempted
                speaker.half_open((self._stage.host(door.of).address, door.port), count)
                self.opened[door.name] += count

    def await_links(self, within_s: float = 90.0) -> None:
        """Until all connections were attempted."""
        until = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def measure(stage: Stage, submissions: int, commands: int, job: str) -> dict[str, list[float]]:
    """Seconds of each sample, by what was measured; all probes run at the same time."""
    at_controller, at_node = stage.user(stage.alice.account, "ctl"), stage.user(stage.alice.account, "n1")
    probes = {
        "submit, controller's host": _probe(at_controller, SUBMIT, submissions),
        "submit, by a node's relay": _probe(at_node, SUBMIT, submissions),
        "gqrun step": _probe(at_node, RUN, commands, "gqrun", f"--jobid={job}", "--overlap", "true"),
        "gqlog": _probe(stage.alice, RUN, commands, "gqlog", job),
    }
    return {name: _answer(name, probe) for name, probe in probes.items()}


def _probe(user: User, code: str, count: int, *argv: str) -> subprocess.Popen[str]:
    return user.start(sys.executable, "-I", "-c", code, str(count), *argv)


def _answer(name: str, probe: subprocess.Popen[str]) -> list[float]:
    said, _ = probe.communicate(timeout=PROBE_S)
    if probe.returncode:
        raise SystemExit(f"error: {name} failed:\n{said}")
    found: list[float] = json.loads(said.splitlines()[-1])
    return found


def show(without: dict[str, list[float]], beside: dict[str, list[float]]) -> None:
    print(f"{'':27}{'samples':>8}{'p50 without':>13}{'beside':>9}{'p99 without':>13}{'beside':>9}{'ratio':>7}")
    for name, quiet in without.items():
        loud = beside[name]
        p99 = percentile(quiet, 0.99), percentile(loud, 0.99)
        print(
            f"{name:27}{len(loud):8}{median(quiet):11.3f} s{median(loud):7.3f} s"
            f"{p99[0]:11.3f} s{p99[1]:7.3f} s{p99[1] / p99[0]:7.2f}"
        )


def say(progress: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {progress}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.beside_links", description=__doc__.splitlines()[0])
    parser.add_argument("--links", type=int, default=20_000, help="to each socket")
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--commands", type=int, default=30)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with ExitStack() as stack:
        stage = set_stage(stack.enter_context(network(NAMES, new_mark(), ACCOUNTS)))
        stack.callback(stage.client.close)
        stack.callback(stage.reader.end)
        say("the cluster stands")
        job = submit(stage.alice, "-w", "n1", "-t", "60", wrap="echo one line; exec sleep 3000")
        stage.await_state(job, "RUNNING")
        without = measure(stage, asked.submissions, asked.commands, job)
        say("measured without links")
        attack = Attack(stage, asked.links)
        attack.await_links()
        say("measuring beside the links")
        beside = measure(stage, asked.submissions, asked.commands, job)
        show(without, beside)
        for door in DOORS:
            end = "before the user was kept out" if door.path else "by openers that were through in time"
            print(f"{door.name:27}{attack.opened[door.name]:8} links were opened {end}")
        ended = [daemon.argv[0] for host in stage.net.hosts.values() for daemon in host.daemons if daemon.has_ended()]
        print(f"daemons that ended: {', '.join(ended) or 'none'}")
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())
