"""A mount namespace of a test's own, held by a process; with it, an ordinary user who can read this environment.

What is mounted there is seen by nobody else, and gone with the holder, also when the test process was killed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.clusters import RunAs
from tests.requires import skip_or_fail

USER = "nobody"
SOURCE = Path(__file__).resolve().parents[2]


@contextlib.contextmanager
def own_mounts(set_up: str = "") -> Iterator[RunAs]:
    """Run as root in a new mount namespace, after a shell script made it what it is to be."""
    script = f"set -e\n{set_up}\necho held\nexec cat > /dev/null"
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},  # without the mark of this run: it outlives a test
    )
    assert holder.stdin is not None and holder.stdout is not None
    try:
        if holder.stdout.readline() != "held\n":
            skip_or_fail(f"needs a mount namespace: {holder.communicate()[1].strip()}")
        yield RunAs(os.geteuid(), ("nsenter", "-t", str(holder.pid), "-m", "--"), holder.pid)
    finally:
        with contextlib.suppress(BrokenPipeError):
            holder.communicate()


@contextlib.contextmanager
def ordinary_user() -> Iterator[RunAs]:
    """This user, if it is not root; else one without any right, who sees what belongs to this environment."""
    if os.geteuid() != 0:
        yield RunAs(os.geteuid())
        return
    user = pwd.getpwnam(USER)
    drop = ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    with own_mounts(uncover(needed())) as root:
        run_as = RunAs(user.pw_uid, (*root.prefix, *drop), root.host_pid, user.pw_name)
        command = run_as.command((sys.executable, "-c", "import gq.cli._run, gqd, gqnode, zmq"), Path("/"))
        tried = subprocess.run(command, capture_output=True, text=True)
        if tried.returncode != 0:
            skip_or_fail(f"needs an environment that `{USER}` can read: {tried.stderr.strip()}")
        yield run_as


def needed() -> list[Path]:
    """The trees without which no gq runs: the interpreter's, the environment's and the source."""
    trees = {Path(path).resolve() for path in (sys.prefix, sys.base_prefix, SOURCE)}
    return [tree for tree in sorted(trees) if not any(other in tree.parents for other in trees)]


def uncover(trees: Iterable[Path]) -> str:
    """A script that puts a readable directory, with nothing but those trees in it, over each that keeps others out."""
    hidden: dict[Path, list[Path]] = {}
    for tree in trees:
        closed = [one for one in reversed(tree.parents) if not one.stat().st_mode & stat.S_IXOTH]
        if closed:
            hidden.setdefault(closed[0], []).append(tree)
    lines = []
    for cover, below in hidden.items():
        stash = [Path("/run", f"{index}") for index, _ in enumerate(below)]
        lines.append("mount -t tmpfs none /run")
        lines += [
            f"mkdir {at}; mount --bind {shlex.quote(str(tree))} {at}" for at, tree in zip(stash, below, strict=True)
        ]
        lines.append(f"mount -t tmpfs -o mode=755 none {shlex.quote(str(cover))}")
        for at, tree in zip(stash, below, strict=True):
            lines.append(f"mkdir -p {shlex.quote(str(tree))}; mount --move {at} {shlex.quote(str(tree))}")
        lines.append("umount /run")
    return "\n".join(lines)
