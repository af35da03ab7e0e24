"""A munged of a test's own: its key, socket and files lie in one directory, and nothing of the machine's is touched."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from tests.clusters import wait_until
from tests.system.hosts import Daemon, Host

MUNGED = shutil.which("munged", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))
START_S = 10.0


def munged_argv(directory: str) -> list[str]:
    """Its command line; the directory holds a key already and others may pass through it."""
    files = {name: f"--{name}-file={directory}/munged.{name}" for name in ("pid", "log", "seed")}
    return [
        MUNGED or "munged", "--foreground", "--num-threads=2", "--group-update-time=0", f"--socket={directory}/socket",
        f"--key-file={directory}/munge.key", *files.values(),
    ]  # fmt: skip


def write_key(directory: Path, key: bytes | None = None) -> None:
    """The same on all hosts of a site."""
    path = directory / "munge.key"
    path.touch(mode=0o600)
    path.write_bytes(key or os.urandom(128))


class Munged:
    """`socket` is where it listens; it can be stopped and started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.socket = f"{directory}/socket"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            munged_argv(str(self.directory)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_until(Path(self.socket).is_socket, START_S, "munged listens")

    def stop(self) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(START_S)

    def credential(self, payload: bytes, uid: int, *options: str) -> str:
        """As the program of MUNGE itself makes one for this user."""
        done = subprocess.run(
            ["munge", f"--socket={self.socket}", *options],
            input=payload, capture_output=True, check=True, timeout=START_S, user=uid, group=uid, extra_groups=[],
        )  # fmt: skip
        return done.stdout.decode().strip()

    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid


@contextlib.contextmanager
def own_munged(directory: Path, key: bytes | None = None) -> Iterator[Munged]:
    """Runs as the user of the test."""
    directory.mkdir(mode=0o711)
    directory.chmod(0o711)
    write_key(directory, key)
    munged = Munged(directory)
    munged.start()
    try:
        yield munged
    finally:
        munged.stop()


def munged_on(host: Host, directory: str, key: bytes) -> Daemon:
    """Of root of a host, for all its users; it can be killed and started again."""
    host.ok("mkdir", "-m", "711", directory)
    write_key(host.path(directory), key)
    munged = host.daemon("env", *munged_argv(directory))
    wait_until(lambda: host.path(f"{directory}/socket").is_socket(), START_S, f"munged listens on {host.name}")
    return munged


def wait_for_age(seconds: float) -> None:
    """Until a credential that was made now is older than that by munged's clock, which knows whole seconds."""
    made_at = time.time()
    wait_until(lambda: time.time() > made_at + seconds + 1, seconds + START_S)
