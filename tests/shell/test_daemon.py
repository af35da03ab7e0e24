"""gqd as a process: how it starts, how it ends, what a kill leaves, and what it says."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gq
from gq.connection.client import Client
from gq.connection.curve import (
    node_key_path,
    node_public_path,
    pinned_nodes,
    read_keys,
    read_public,
    server_key_path,
    server_public_path,
)
from gq.connection.locate import Location, private_location
from gq.wire import client as wire
from gqd.control.controller import Controller
from gqd.shell.listeners.keys import KeyRing
from gqd.state.input import Peer
from gqd.state.policy import Policy
from gqd.store.rows.rows import materialise
from gqd.store.sqlite import SqliteStore
from tests.builders import client_request, hello
from tests.clusters import wait_until
from tests.shell.rig import job, short_directory

GQD = (sys.executable, "-m", "gqd")


class Gqd:
    """One directory, and the controllers that live in it one after the other."""

    def __init__(self, directory: str) -> None:
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": "", "GQ_DIR": directory}
        self.directory = Path(directory)
        self.log = self.directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        (self.directory / "gq.toml").touch()

    @property
    def location(self) -> Location:
        return private_location(str(self.directory), self.environ)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*GQD, "--dir", str(self.directory)], stderr=log, env=self.environ)
        with self.client() as client:
            assert client.ask(wire.Ping()) == wire.Done()

    def client(self) -> Client:
        return Client(self.location, patience_s=30)

    def end(self, number: int) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(20)
        self.process = None
        return status

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*GQD, *words], env=self.environ, capture_output=True, text=True, timeout=30)


@contextmanager
def own_gqd() -> Iterator[Gqd]:
    """A directory in which no controller has run yet; whichever runs there at the end is killed."""
    with short_directory() as directory:
        one = Gqd(directory)
        yield one
        if one.process is not None:
            one.end(signal.SIGKILL)
        shutil.rmtree(one.location.run_dir, ignore_errors=True)


@pytest.fixture
def gqd() -> Iterator[Gqd]:
    with own_gqd() as one:
        yield one


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(gqd: Gqd, number: int) -> None:
    gqd.start()
    pid_file = gqd.directory / "gqd.pid"
    assert gqd.process is not None
    assert int(pid_file.read_text()) == gqd.process.pid
    assert gqd.end(number) == 0
    assert not pid_file.exists()
    assert "gqd stops" in gqd.log.read_text()


def test_no_acknowledged_job_is_lost_by_kill_9(gqd: Gqd) -> None:
    gqd.start()
    acknowledged: list[int] = []
    with gqd.client() as client:
        for answer in client.ask_many([job(str(number)) for number in range(200)]):
            assert isinstance(answer, wire.Submitted)
            acknowledged.append(answer.job_id)
    assert gqd.end(signal.SIGKILL) == -signal.SIGKILL
    gqd.start()
    with gqd.client() as client:
        jobs = client.ask(wire.ListJobs())
        assert isinstance(jobs, wire.Jobs)
        assert [one.job_id for one in jobs.jobs] == acknowledged
        answer = client.ask(job())
        assert answer == wire.Submitted(job_id=max(acknowledged) + 1)


def test_a_second_controller_of_the_same_directory_is_refused_and_the_first_serves_on(gqd: Gqd) -> None:
    gqd.start()
    second = gqd.call("--dir", str(gqd.directory))
    assert second.returncode == 1
    assert "in use by another controller" in second.stderr
    with gqd.client() as client:
        assert client.ask(wire.Ping()) == wire.Done()


def test_the_log_has_one_line_per_fact_and_json_by_option(gqd: Gqd) -> None:
    (gqd.directory / "gq.toml").write_text('[controller]\nlog_json = true\nlog_level = "debug"\n')
    gqd.start()
    with gqd.client() as client:
        client.ask(job("secretive", comment="hush"))
    assert gqd.end(signal.SIGTERM) == 0
    lines = [json.loads(line) for line in gqd.log.read_text().splitlines()]
    [submitted] = [line for line in lines if line["message"] == "JobSubmitted"]
    assert submitted["job"] == 1
    assert submitted["level"] == "debug"
    assert "hush" not in gqd.log.read_text(), "what a user wrote is not for the log"


@pytest.mark.parametrize(
    ("toml", "complaint"),
    [
        ("[limits]\njbos = 3\n", "did you mean `jobs`?"),
        ('[controller]\nlisten = "tcp://127.0.0.1:7321"\n', "gqd keygen"),
        ("[[[\n", "is not TOML"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_said_in_one_message(gqd: Gqd, toml: str, complaint: str) -> None:
    (gqd.directory / "gq.toml").write_text(toml)
    ended = gqd.call("--dir", str(gqd.directory))
    assert ended.returncode in (1, 2)
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr


def test_keygen_makes_keys_that_only_their_owner_reads_and_never_overwrites(gqd: Gqd) -> None:
    assert gqd.call("keygen").returncode == 0
    assert gqd.call("--dir", str(gqd.directory), "keygen", "--node", "n1").returncode == 0
    keys = gqd.location.keys_dir
    assert read_keys(server_key_path(keys)).public == read_public(server_public_path(keys))
    assert pinned_nodes(keys) == {read_keys(node_key_path(keys, "n1")).public: "n1"}
    assert read_public(node_public_path(keys, "n1")) == read_keys(node_key_path(keys, "n1")).public
    for secret in (server_key_path(keys), node_key_path(keys, "n1")):
        assert secret.stat().st_mode & 0o777 == 0o600
    again = gqd.call("keygen", "--node", "n1")
    assert again.returncode == 1
    assert "already exists" in again.stderr


@pytest.mark.slow
def test_a_crash_between_the_removal_of_a_node_and_that_of_its_key_file_leaves_no_good_key(gqd: Gqd) -> None:
    assert gqd.call("--dir", str(gqd.directory), "keygen", "--node", "n1").returncode == 0
    keys_dir, database = gqd.location.keys_dir, str(gqd.directory / "gq.db")
    _remove_node_and_crash(database)
    assert pinned_nodes(keys_dir), "the file is there, and the removal is on disk"
    ring = KeyRing(dict, keys_dir, time.time, lambda: _void_key_files(database))
    public = read_public(node_public_path(keys_dir, "n1")).decode()
    assert ring.holder(public) is None, "it opens nothing even before it is deleted"

    gqd.start()

    wait_until(lambda: not pinned_nodes(keys_dir))
    assert gqd.end(signal.SIGTERM) == 0
    assert _void_key_files(database) == {}
    node_key_path(keys_dir, "n1").unlink()
    assert gqd.call("keygen", "--node", "n1").returncode == 0
    gqd.start()
    assert gqd.end(signal.SIGTERM) == 0
    assert pinned_nodes(keys_dir), "one that is pinned anew stays"


def _remove_node_and_crash(database: str) -> None:
    """Up to the commit, and not a step further."""
    store = SqliteStore(database)
    core = Controller(store.load(), Policy(owner_uid=os.geteuid()))
    peer = Peer(uid=os.geteuid(), gid=os.getegid(), user="owner")
    events = [
        *core.handle(hello("n1"), now=1.0).events,
        *core.handle(client_request(wire.RemoveNode(name="n1"), 1, peer), now=2.0).events,
    ]
    asyncio.run(store.commit(materialise(core.cluster, events)))
    store.close()


def _void_key_files(database: str) -> dict[str, None]:
    store = SqliteStore(database)
    try:
        return store.load().void_key_files
    finally:
        store.close()


def test_nobody_else_can_read_what_it_writes_whatever_its_umask_was(gqd: Gqd) -> None:
    before = os.umask(0)
    try:
        gqd.start()
    finally:
        os.umask(before)
    with gqd.client() as client:
        client.ask(job())
    made = [path for path in gqd.directory.rglob("*") if path.name not in ("gq.toml", "log", "run")]
    assert {"gq.db", "gq.db-wal", "blobs.db", "blobs.db-wal", "gqd.pid"} <= {path.name for path in made}
    assert {path.name: oct(path.lstat().st_mode & 0o077) for path in made} == {path.name: "0o0" for path in made}


def test_it_may_have_as_many_descriptors_as_the_machine_allows(gqd: Gqd) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with gqd.log.open("ab") as log:
        argv = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh", *GQD, "--dir", str(gqd.directory)]
        gqd.process = subprocess.Popen(argv, stderr=log, env=gqd.environ)
    with gqd.client() as client:
        client.ask(wire.Ping())
    assert resource.prlimit(gqd.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


def test_version_and_help_work_without_a_cluster(gqd: Gqd) -> None:
    assert gqd.call("--version").stdout == f"gqd {gq.__version__}\n"
    assert "keygen" in gqd.call("--help").stdout


@pytest.mark.slow
def test_a_submit_during_a_restart_waits_and_succeeds(gqd: Gqd) -> None:
    gqd.start()
    with gqd.client() as client:
        assert client.ask(job()) == wire.Submitted(job_id=1)
        gqd.end(signal.SIGKILL)
        with gqd.log.open("ab") as log:
            gqd.process = subprocess.Popen([*GQD, "--dir", str(gqd.directory)], stderr=log, env=gqd.environ)
        began = time.monotonic()
        assert client.ask(job()) == wire.Submitted(job_id=2)
        assert time.monotonic() - began < 20
