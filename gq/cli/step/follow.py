"""``gqrun --elastic``: a command on every node of an elastic job, also on those that join while it runs.

Each node has a step of its own, which another gqrun leads.  Which nodes there are the job's file says (`gq.elastic`).
How the command ends on a node that leaves does not count; once it has ended well on one that stays, it is begun on no
other.  It is over when it is over on all nodes that stay, with the worst of their codes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

import gq.elastic
from gq.errors import Refusal, UsageError
from gq.host.interpreter import isolated_python
from gq.request.option import ParsedOption

LOOK_S = 0.5
_NOT_HERE = ("nodes", "nodelist", "exclude", "ntasks", "pty", "jobid", "role", "het-group")
"""Options that select nodes or tasks of the whole job, which ``--elastic`` excludes."""


def follow(said: Iterable[ParsedOption], *, is_in_job: bool) -> int:
    """`said`: on the command line."""
    if not is_in_job:
        hint = "queue a script that calls it: gqsub --nodes=1-4 --elastic job.sh"
        raise UsageError("not_in_job", "gqrun --elastic follows the nodes of the job in which it is called", hint)
    for given in said:
        if given.name in _NOT_HERE:
            raise UsageError("contradiction", f"{given.place} and --elastic exclude each other", "leave it out")
    known = gq.elastic.gpus()
    if known is None or not known.most_nodes:
        hint = "submit it with --nodes=1-4 --elastic, and call this on its first node"
        raise Refusal("not_elastic", "the nodes of this job do not come and go", hint)
    rest = sys.argv[1:]
    own = [at for at, word in enumerate(rest) if word.startswith("--el") and "--elastic".startswith(word)]
    for at in own[:1]:  # later ones are the command's
        del rest[at]
    return _Following(rest).run()


class _Membership(NamedTuple):
    """A node of the job, from when it joined: one that left and joined again is another membership."""

    name: str
    joined: int


@dataclass
class _Following:
    words: list[str]
    steps: dict[_Membership, subprocess.Popen[bytes]] = field(default_factory=dict)
    """The step on each node of the job."""
    leaving: list[subprocess.Popen[bytes]] = field(default_factory=list)
    signum: int = 0
    """The last signal that this command received and passed on; 0: none."""

    def run(self) -> int:
        for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(signum, self._pass_on)
        while True:
            known = gq.elastic.gpus()
            if known is not None and not self.signum:
                self._meet([_Membership(node.name, node.joined) for node in known.nodes], known.target_nodes)
            stay = [step for node, step in self.steps.items() if known is None or node.name in known.target_nodes]
            if all(step.poll() is not None for step in stay):
                break
            time.sleep(LOOK_S)
        for step in (*self.steps.values(), *self.leaving):
            step.wait()
        codes = [step.returncode if step.returncode >= 0 else 128 - step.returncode for step in stay]
        return 128 + self.signum if self.signum else max(codes, default=0)

    def _meet(self, nodes: Sequence[_Membership], target: Sequence[str]) -> None:
        """Begin a step on each node that joined, and set aside the steps of nodes that left."""
        for node in self.steps.keys() - set(nodes):
            self.leaving.append(self.steps.pop(node))
        self.leaving = [step for step in self.leaving if step.poll() is None]
        is_ending = any(step.poll() == 0 for node, step in self.steps.items() if node.name in target)
        for node in nodes:
            if node.name in target and node not in self.steps and not is_ending:
                self.steps[node] = self._begin(node.name)

    def _begin(self, name: str) -> subprocess.Popen[bytes]:
        """Start a `gqrun` with the step's options for one node."""
        command = [*isolated_python(os.environ), sys.argv[0], "--nodes=1", f"--nodelist={name}", *self.words]
        environ = {name: value for name, value in os.environ.items() if name != "GQRUN_ELASTIC"}
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environ)

    def _pass_on(self, signum: int, _frame: FrameType | None) -> None:
        self.signum = signum
        for step in (*self.steps.values(), *self.leaving):
            if step.poll() is None:
                step.send_signal(signum)
