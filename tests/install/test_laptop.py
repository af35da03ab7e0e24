"""A machine outside the cluster, by the documented commands: a key is made there, enrolled, used, revoked."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence

import pytest

from gq.config.config import parse_config
from tests.integration.jobs import submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB
from tests.system.hosts import CONFIG_PATH, Host, Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.timeout(300),
]

MakeNet = Callable[[Sequence[str]], Network]
KEY = "/run/home/bob/.config/gq/key"
ENVIRON = {"GQ_CONFIG": "/run/home/bob/gq.toml"}


def set_up(net: Network) -> list[Host]:
    """A cluster of one host with a door for laptops, and a laptop."""
    head, laptop = net.hosts.values()
    head.ok("gqd", "init", "--cluster", net.run_name, "--node=head")
    text = head.path(CONFIG_PATH).read_text()
    head.path(CONFIG_PATH).write_text(text.replace("[controller]\n", '[controller]\nlisten_clients = "tcp://*:7135"\n'))
    head.ok("gqd", "init", "--start", "--node=head")
    return [head, laptop]


def test_a_laptop_acts_as_its_user_until_its_key_is_revoked(net: MakeNet) -> None:
    head, laptop = set_up(net(("head", "laptop")))
    alice, bob = head.user(ALICE), laptop.user(BOB)
    """Who is bob on the laptop is alice in the cluster."""

    public = bob.ok("gq", "key", "new").strip()
    table = alice.ok("gqctl", "key", "add", public, "--note=laptop")
    bob.write("gq.toml", table)

    assert parse_config(table, "gq.toml").client.controller == "tcp://head:7135"
    [identity] = json.loads(bob.ok("gqctl", "whoami", "--json", **ENVIRON))
    assert (identity["user"], identity["uid"], identity["role"]) == ("alice", ALICE.uid, "user")
    job = submit(bob, "-D", alice.home, "-o", f"{alice.home}/out", wrap="id -un", **ENVIRON)
    assert bob.run("gqwait", job, **ENVIRON).returncode == 0
    assert alice.ok("gqlog", job) == "alice\n"
    [shown] = json.loads(alice.ok("gqctl", "key", "show", "--json"))
    assert (shown["public"], shown["note"], shown["name"]) == (public, "laptop", "alice")

    alice.ok("gqctl", "key", "revoke", public[:8])

    refused = bob.run("gqstat", **ENVIRON)
    assert refused.returncode != 0 and refused.stdout == ""
    assert "key" in refused.stderr


def test_a_key_is_made_once_and_only_its_owner_reads_it(net: MakeNet) -> None:
    hosts = net(("laptop",))
    bob = hosts.hosts["laptop"].user(BOB)

    first = bob.run("gq", "key", "new")
    again = bob.run("gq", "key", "new")

    assert (first.returncode, len(first.stdout.strip())) == (0, 40)
    assert f"gqctl key add '{first.stdout.strip()}' --note laptop" in first.stderr
    key = bob.host.path(KEY)
    assert (stat.S_IMODE(key.stat().st_mode), key.stat().st_uid) == (0o600, BOB.uid)
    assert stat.S_IMODE(key.parent.stat().st_mode) == 0o700
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith(f"error: {KEY} already exists\nhint: ")


def test_a_key_can_lie_elsewhere_and_the_file_must_say_so(net: MakeNet) -> None:
    hosts = net(("laptop",))
    bob = hosts.hosts["laptop"].user(BOB)

    made = bob.run("gq", "key", "new", "--out=other")

    assert made.returncode == 0 and f'key_file = "{bob.home}/other"' in made.stderr
    assert stat.S_IMODE(bob.path("other").stat().st_mode) == 0o600
