"""What a careless or a malicious hand leaves in the files of a daemon."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.clusters import wait_until
from tests.requires import needs_program, needs_root
from tests.system.accounts import BOB
from tests.system.attacks import CONTAINED, NOTHING, REFUSED, attack
from tests.system.hosts import Host
from tests.system.stage import Stage

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

CONFIG = 'cluster = "lab"\n[controller]\nlisten = "tcp://127.0.0.1:7999"\n[[node]]\nname = "lab"\n'


@pytest.fixture
def lab(stage: Stage) -> Iterator[Host]:
    """A host on which somebody sets up a controller; nothing of it stays."""
    host = stage.host("lab")
    host.ok(
        "sh", "-c", "rm -rf /etc/gq /var/lib/gq; mkdir -m 755 /etc/gq; umask 022; cat > /etc/gq/gq.toml", stdin=CONFIG
    )
    host.ok("gqd", "keygen")
    yield host
    host.ok("rm", "-rf", "/etc/gq", "/var/lib/gq", "/run/gq")


def refusals(host: Host) -> str:
    """What both daemons say; neither starts."""
    said = ""
    for argv in (("gqd",), ("gqnode", "--name", "lab")):
        done = host.run("timeout", "20", argv[0], "--config", "/etc/gq/gq.toml", *argv[1:])
        assert done.returncode not in (0, 124), done.stderr
        said += done.stderr + done.stdout
    return said


@attack("Settings that every user may write", REFUSED, NOTHING)
def test_settings_that_every_user_may_write(lab: Host) -> None:
    lab.ok("chmod", "666", "/etc/gq/gq.toml")

    assert refusals(lab).count("/etc/gq/gq.toml") >= 2


@attack("Settings in a directory that every user may write", REFUSED, NOTHING)
def test_settings_in_a_directory_that_every_user_may_write(lab: Host) -> None:
    lab.ok("chmod", "777", "/etc/gq")

    assert refusals(lab).count("/etc/gq") >= 2


@attack("Settings that belong to a user", REFUSED, NOTHING)
def test_settings_that_belong_to_a_user(lab: Host) -> None:
    lab.ok("chown", BOB.name, "/etc/gq/gq.toml")

    assert refusals(lab).count("/etc/gq/gq.toml") >= 2


@attack("A secret key that other users may read", REFUSED, NOTHING)
def test_a_secret_key_that_other_users_may_read(lab: Host) -> None:
    lab.ok("sh", "-c", "chmod 644 $(find /var/lib/gq /etc/gq -name gqd.key)")
    done = lab.run("timeout", "20", "gqd", "--config", "/etc/gq/gq.toml")

    assert done.returncode not in (0, 124)
    assert "is readable by others" in done.stderr + done.stdout


@attack("A state directory that belongs to a user", REFUSED, NOTHING)
def test_a_state_directory_that_belongs_to_a_user(lab: Host) -> None:
    lab.ok("chown", BOB.name, "/var/lib/gq")
    done = lab.run("timeout", "20", "gqd", "--config", "/etc/gq/gq.toml")

    assert done.returncode not in (0, 124)
    assert "/var/lib/gq" in done.stderr + done.stdout


@attack("Connect to the step socket of a host whose controller listens on loopback only", REFUSED, NOTHING)
def test_connect_to_the_step_socket_of_a_host_whose_controller_listens_on_loopback_only(
    lab: Host, stage: Stage
) -> None:
    lab.ok("rm", "-rf", "/etc/gq", "/var/lib/gq")
    lab.ok("gqd", "init", "--listen", "tcp://127.0.0.1:7999", "--node", "lab")
    daemons = [lab.daemon("gqd"), lab.daemon("gqnode")]
    try:
        connect = "import socket, sys; socket.create_connection((sys.argv[1], 7134), 5)"
        wait_until(lambda: lab.run("python3", "-c", connect, "127.0.0.1").returncode == 0)
        refused = stage.host("n1").run("python3", "-c", connect, lab.address)
    finally:
        for daemon in reversed(daemons):
            daemon.kill(signal.SIGTERM)
            lab.daemons.remove(daemon)

    assert "ConnectionRefusedError" in refused.stderr


WITH_A_DRIVER = """
set -e
mount -t tmpfs -o mode=755 planted-dev /dev
mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; mknod -m 666 /dev/urandom c 1 9
mknod /dev/nvidiactl c 195 255
mkdir -p /tmp/planted && cd /tmp/planted
for module in pynvml gqd gqnode msgspec sitecustomize usercustomize; do
  echo 'open("/tmp/planted/ran", "a").write(__name__)' > $module.py
done
gq up --dir /tmp/planted-cluster --nodes 1 >&2 || true  # without a driver the node may not start
gq down --dir /tmp/planted-cluster --yes >&2
cat ran 2>/dev/null || true
"""


@attack("Plant Python modules in the directory in which root types a command", CONTAINED, NOTHING)
def test_plant_python_modules_in_the_directory_in_which_root_types_a_command(lab: Host) -> None:
    lab.ok("rm", "-f", "/etc/gq/gq.toml")

    done = lab.run("unshare", "--mount", "sh", "-c", WITH_A_DRIVER)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
