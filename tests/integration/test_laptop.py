"""Commands on a machine outside the cluster: by tcp and a key to gqd, and by tcp to the nodes that run their steps."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from gq.connection.curve import KeyPair, fresh_keys, server_public_path
from tests.clusters import PrivateCluster


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def open_to_others(cluster: PrivateCluster) -> str:
    """Give gqd a door for clients, and the node a step door, on tcp; where the first is."""
    clients, steps = free_ports(2)
    cluster.ok("gqd", "keygen")
    cluster.ok("gqd", "keygen", "--node", "n1")
    cluster.ok("gq", "down", "--yes")
    toml = cluster.directory / "gq.toml"
    text = toml.read_text()
    for heading, settings in (
        ("[controller]\n", f'listen_clients = "tcp://127.0.0.1:{clients}"\n'),
        ('name = "n1"\n', f'step_listen = "tcp://127.0.0.1:{steps}"\n'),
    ):
        assert heading in text
        text = text.replace(heading, heading + settings, 1)
    toml.write_text(text)
    cluster.ok("gq", "up")
    return f"tcp://127.0.0.1:{clients}"


class Laptop:
    """A directory with a gq.toml and a key, and nothing else of the cluster."""

    def __init__(self, cluster: PrivateCluster, controller: str) -> None:
        self._cluster = cluster
        self.keys: KeyPair = fresh_keys()
        self.home = cluster.workdir / "laptop"
        self.home.mkdir(mode=0o700)
        key = self.home / "key"
        key.touch(mode=0o600)
        key.write_bytes(self.keys.secret + b"\n")
        server_key = server_public_path(str(cluster.directory / "keys")).read_text().strip()
        self.config = self.home / "gq.toml"
        self.config.write_text(
            f'[client]\ncontroller = "{controller}"\nserver_key = "{server_key}"\nkey_file = "{key}"\n'
        )

    def ok(self, *argv: str, stdin: str | None = None) -> str:
        return self._cluster.ok(*argv, stdin=stdin, GQ_DIR="", GQ_CONFIG=str(self.config), HOME=str(self.home))


@pytest.mark.slow
def test_a_laptop_submits_runs_steps_and_reads_output_until_its_key_is_revoked(
    private_cluster: Callable[..., PrivateCluster],
) -> None:
    cluster = private_cluster(nodes=1, cpus=2)
    laptop = Laptop(cluster, open_to_others(cluster))
    public = laptop.keys.public.decode()
    refused = cluster.run("gqstat", GQ_DIR="", GQ_CONFIG=str(laptop.config))
    assert refused.returncode == 1
    assert "does not know the key" in refused.stderr

    cluster.ok("gqctl", "key", "add", public, "--note", "laptop")
    output = Path(cluster.workdir, "out")
    job_id = laptop.ok("gqsub", "--parsable", "--wait", f"--output={output}", "--wrap=echo by key").strip()
    assert output.read_text() == "by key\n"
    assert laptop.ok("gqlog", job_id) == "by key\n"
    assert laptop.ok("gqrun", "cat", stdin="through the step door\n") == "through the step door\n"
    assert job_id in laptop.ok("gqacct", "--parsable2", "--noheader")

    cluster.ok("gqctl", "key", "revoke", public[:8])
    assert cluster.run("gqstat", GQ_DIR="", GQ_CONFIG=str(laptop.config)).returncode == 1
