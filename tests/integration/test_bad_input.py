"""What users and strangers get wrong: one clear error and the right exit code each, and nothing else changes."""

from __future__ import annotations

import random
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from gq.wire.codec import MAX_MESSAGE_BYTES
from tests.clusters import PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_state, counters, record_counts, submit

QUICK_S = 5.0
"""Much more than a command needs to find out that nobody listens, much less than it waits for an answer."""


@pytest.fixture
def script(shared_cluster: PrivateCluster) -> Iterator[Callable[[str], str]]:
    """Write a batch script where commands run, and name it."""
    made: list[Path] = []

    def write(text: str) -> str:
        path = shared_cluster.workdir / f"bad-{len(made)}.sh"
        path.write_text(text)
        made.append(path)
        return path.name

    yield write
    for path in made:
        path.unlink()


def refused(cluster: PrivateCluster, *argv: str, code: int, stdin: str | None = None) -> str:
    """The one error that a command gives; nothing is printed besides, and nothing is recorded."""
    before = record_counts(cluster)
    done = cluster.run(*argv, stdin=stdin)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] in (["error"], ["error", "hint"]), done.stderr
    assert record_counts(cluster) == before
    return done.stderr


def test_a_script_that_is_missing_or_no_script_is_refused(
    shared_cluster: PrivateCluster, script: Callable[[str], str]
) -> None:
    assert "`nowhere.sh`" in refused(shared_cluster, "gqsub", "nowhere.sh", code=1)
    assert "does not begin with #!" in refused(shared_cluster, "gqsub", script("echo hello\n"), code=1)
    assert "#!" in refused(shared_cluster, "gqsub", code=1, stdin="echo hello\n")
    assert "#!" in refused(shared_cluster, "gqsub", code=1, stdin="")


def test_an_unknown_option_in_a_header_is_refused_with_file_and_line(
    shared_cluster: PrivateCluster, script: Callable[[str], str]
) -> None:
    name = script("#!/bin/sh\n#GQ --nodes=1\n#GQ --gpu=2\ntrue\n")
    assert f"{name}:3" in refused(shared_cluster, "gqsub", name, code=2)
    name = script("#!/bin/sh\n#SBATCH --nodes=1\n\n#SBATCH --time=often\n")
    assert f"{name}:4" in refused(shared_cluster, "gqsub", name, code=2)


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("-N3",), 1, ("3", "2")),
        (("--gpus-per-node=5",), 1, ("5", "4")),
        (("--gpus=h100:1",), 1, ("h100", "fake")),
        (("-c17",), 1, ("17", "16")),
        (("--mem=100T",), 1, ("100T",)),
        (("-w", "n1", "-x", "n1"), 2, ("n1",)),
        (("-p", "mian"), 1, ("mian", "main")),
        (("-w", "n3"), 1, ("n3",)),
        (("-N0",), 2, ("0",)),
        (("--time=often",), 2, ("often",)),
        (("--mem=much",), 2, ("much",)),
        (("--no-such",), 2, ("--no-such",)),
        (("--gpus=-1",), 2, ("-1",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_can_never_be_is_refused_with_the_value_and_what_there_is(
    shared_cluster: PrivateCluster, options: tuple[str, ...], code: int, told: tuple[str, ...]
) -> None:
    error = refused(shared_cluster, "gqsub", *options, "--wrap", "true", code=code)
    assert not [word for word in told if word not in error]


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (("gqctl", "hold", "999999"), 1, "999999"),
        (("gqctl", "node", "drain", "n9", "--reason", "x"), 1, "node `n9` does not exist"),
        (("gqctl", "node", "drain", "n1"), 2, "--reason"),
        (("gqwait", "999999"), 1, "job 999999 does not exist"),
        (("gqwhy", "999999"), 1, "job 999999 does not exist"),
        (("gqlog", "999999"), 1, "job 999999 does not exist"),
        (("gqctl", "hold", "one"), 2, "`one` is not a job id"),
        (("gqstat", "-t", "SLEEPING"), 2, "`SLEEPING`"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_commands_about_what_does_not_exist_are_refused(
    shared_cluster: PrivateCluster, argv: tuple[str, ...], code: int, said: str
) -> None:
    assert said in refused(shared_cluster, *argv, code=code)


def test_a_step_whose_program_does_not_exist_says_so_once(shared_cluster: PrivateCluster) -> None:
    done = shared_cluster.run("gqrun", "-n2", "no-such-program")

    told = "task N: cannot execute `no-such-program`: No such file or directory"
    assert done.returncode == 127
    assert [re.sub(r".*task \d", "task N", line) for line in done.stderr.splitlines() if "cannot" in line] == [told]


# ── a controller that is not there ────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def lonely(private_cluster: MakeCluster) -> PrivateCluster:
    return private_cluster(nodes=1)


def test_a_controller_that_is_down_is_told_quickly_with_its_own_exit_code(lonely: PrivateCluster) -> None:
    """It is 125 from commands that return a job's code."""
    lonely.kill("gqd")
    for command in ("gqsub --wrap true", "gqstat", "gqinfo", "gqacct", "gqdel 1", "gqctl hold 1"):
        began = time.monotonic()
        done = lonely.run(*command.split())
        assert time.monotonic() - began < QUICK_S
        assert (done.returncode, done.stdout) == (3, ""), command
        assert done.stderr.startswith("error: no controller listens at "), command
        assert "gq up" in done.stderr, command
    assert lonely.run("gqrun", "true").returncode == 125
    lonely.up()


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────────


def noise(dice: random.Random) -> list[bytes]:
    return [dice.randbytes(dice.randrange(0, 2000)) for _ in range(50)]


def send(path: Path, frames: list[bytes]) -> None:
    """As a peer that speaks ZeroMQ and nothing more."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.setsockopt(zmq.LINGER, 5000)
        stranger.connect(f"ipc://{path}")
        for frame in frames:
            stranger.send(frame)


@pytest.mark.parametrize("door", ["gqd.sock", "nodes.sock"])
def test_random_bytes_on_a_door_are_dropped_and_counted(lonely: PrivateCluster, door: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    messages = noise(random.Random(seed))
    before = record_counts(lonely)
    pid = lonely.pid("gqd")
    send(lonely.directory / "run" / door, messages)

    def counted() -> int:
        found = counters(lonely)
        return found["malformed"] + found["refused_at_door"]

    wait_until(lambda: counted() >= len(messages), LONG_S, "each is counted")
    assert counted() == len(messages)
    assert record_counts(lonely) == before
    assert await_state(lonely, submit(lonely, wrap="true"), "COMPLETED")
    assert lonely.pid("gqd") == pid


@pytest.mark.parametrize("door", ["gqd.sock", "nodes.sock", "step-n1.sock"])
def test_a_message_over_the_limit_and_bytes_that_are_no_zeromq_close_only_their_own_link(
    lonely: PrivateCluster, door: str
) -> None:
    path = lonely.directory / "run" / door
    before = record_counts(lonely)
    pids = {daemon: lonely.pid(daemon) for daemon in ("gqd", "gqnode-n1")}
    send_until_closed(path, b"\xff" * 4096)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
    send_until_closed(path, greeting + b"\x02" + struct.pack(">Q", MAX_MESSAGE_BYTES * 1000) + b"x" * 65536)

    assert record_counts(lonely) == before
    assert await_state(lonely, submit(lonely, wrap="gqrun true"), "COMPLETED")
    for daemon, pid in pids.items():
        assert lonely.pid(daemon) == pid
        assert Path(f"/proc/{pid}/exe").exists(), f"{daemon} lives"


def send_until_closed(path: Path, data: bytes) -> None:
    """As a peer that speaks no ZeroMQ: the daemon must hang up, not wait or die."""
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(LONG_S)
        stranger.connect(str(path.resolve()))
        try:
            stranger.sendall(data)
            while stranger.recv(4096):
                continue
        except (ConnectionResetError, BrokenPipeError):
            return
