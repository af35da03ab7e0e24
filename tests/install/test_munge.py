"""A host that runs nothing of gq, at a site with MUNGE: its users need no key."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence

import pytest

from tests.integration.jobs import submit
from tests.munge import munged_on
from tests.requires import needs_munge, needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import CONFIG_PATH, Network

pytestmark = [
    needs_root,
    needs_munge,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(120),
]

MakeNet = Callable[[Sequence[str]], Network]
DIRECTORY = "/run/mg"
SETTINGS = f'munge = true\nmunge_socket = "{DIRECTORY}/socket"\n'


@pytest.mark.slow
def test_a_user_with_munge_and_no_key_submits_lists_and_cancels(net: MakeNet) -> None:
    hosts = net(("head", "laptop"))
    head, laptop = hosts.hosts.values()
    key = os.urandom(128)
    for host in (head, laptop):
        munged_on(host, DIRECTORY, key)
    head.ok("gqd", "init", "--cluster", hosts.run_name, "--node=head")
    text = head.path(CONFIG_PATH).read_text()
    table = f'[controller]\nlisten_clients = "tcp://*:7135"\n{SETTINGS}'
    head.path(CONFIG_PATH).write_text(text.replace("[controller]\n", table))
    head.ok("gqd", "init", "--start", "--node=head")
    server_key = head.path("/var/lib/gq/controller/keys/gqd.pub").read_text().strip()
    laptop.path("/etc/gq").mkdir()
    client = f'[client]\ncontroller = "tcp://head:7135"\nserver_key = "{server_key}"\n{SETTINGS}'
    laptop.path(CONFIG_PATH).write_text(client)
    alice = laptop.user(ALICE)

    [identity] = json.loads(alice.ok("gqctl", "whoami", "--json"))
    origin = f"munge ({laptop.address})"
    assert (identity["user"], identity["uid"], identity["role"], identity["origin"]) == ("alice", 2001, "user", origin)
    job = submit(alice, "-D", alice.home, wrap="sleep 1000")
    assert job in alice.ok("gqstat", "-h")
    alice.ok("gqdel", job)
    assert alice.run("gqwait", job).returncode != 0
    assert job not in alice.ok("gqstat", "-h")

    refused = laptop.run("gqctl", "whoami")
    assert refused.returncode == 1 and "root of another host is not root here" in refused.stderr
