"""Where attacks by MUNGE are played: a controller that takes its word, and a host of the site that runs nothing of gq.

``ctl`` runs gqd and munged.  Users sit on ``desk``, where munged runs too; a second one there has the key of another
site.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gq.connection import munge
from gq.connection.client import Client
from gq.connection.curve import KeyPair, fresh_keys
from gq.connection.locate import Location
from gq.model.ids import RequestId
from gq.wire import client as wire
from tests.integration.jobs import LONG_S
from tests.munge import munged_on
from tests.system.accounts import BOB, EVERYBODY, Account
from tests.system.hosts import CONFIG_PATH, CONTROLLER_PORT, KEYS, SUBNET, Host, HostCluster, Network, User
from tests.system.speaker import Keys, Line, Speaker
from tests.system.stage import (
    BOB_OF_LOGIN,
    FIRST_SPARE_ADDRESS,
    FRANK_OF_CTL,
    FRANK_OF_LOGIN,
    GHOST,
    PORT_OF_CLIENTS,
    Trail,
)

NAMES = ("ctl", "desk")
OTHERS = tuple(one for one in EVERYBODY if one is not BOB)
ACCOUNTS = {"ctl": (*EVERYBODY, FRANK_OF_CTL), "desk": (*OTHERS, BOB_OF_LOGIN, FRANK_OF_LOGIN, GHOST)}
DIRECTORY = "/run/mg"
OF_ANOTHER_SITE = "/run/mg-other"
_CONFIG = f"""
cluster = "{{cluster}}"
[controller]
listen = "tcp://{{ctl}}:{CONTROLLER_PORT}"
listen_clients = "tcp://{{ctl}}:{PORT_OF_CLIENTS}"
munge = true
munge_socket = "{DIRECTORY}/socket"
[access]
operators = ["%gqops"]
"""


@dataclass
class Site(Trail):
    net: Network
    client: Client
    """Root's, on the controller's host."""
    reader: Speaker
    """Likewise."""
    speakers: list[Speaker] = field(default_factory=list)
    addresses: int = 0

    @property
    def desk(self) -> Host:
        return self.net.hosts["desk"]

    @property
    def server_key(self) -> bytes:
        return self.net.hosts["ctl"].path(f"{KEYS}/gqd.pub").read_bytes().strip()

    @property
    def client_door(self) -> str:
        return f"{SUBNET}.1:{PORT_OF_CLIENTS}"

    @property
    def client_config(self) -> str:
        """The gq.toml of a host whose users come by MUNGE."""
        controller = f'[client]\ncontroller = "tcp://{self.client_door}"\nserver_key = "{self.server_key.decode()}"\n'
        return f'{controller}munge = true\nmunge_socket = "{DIRECTORY}/socket"\n'

    def end_speakers(self) -> None:
        while self.speakers:
            self.speakers.pop().end()

    def credential(self, account: Account, payload: bytes, *options: str, directory: str = DIRECTORY) -> str:
        """As the program of MUNGE makes one for a user who sits there."""
        who = self.desk.user(account) if account.uid else self.desk
        return who.ok("munge", f"--socket={directory}/socket", *options, stdin=payload.decode()).strip()

    def link(self, account: Account = BOB, port: int = PORT_OF_CLIENTS, keys: KeyPair | None = None) -> Link:
        """A program of the user's own, by an address that was never used before."""
        return self.link_of(self.desk.user(account), port, keys)

    def link_of(self, who: User | Host, port: int = PORT_OF_CLIENTS, keys: KeyPair | None = None) -> Link:
        mine = keys or fresh_keys()
        self.speakers.append(Speaker(who))
        door = f"tcp://{self.new_address()}:0;{SUBNET}.1:{port}"
        line = self.speakers[-1].dial(door, Keys(mine.public, mine.secret, self.server_key), RECONNECT_IVL=-1)
        return Link(line, mine)

    def new_address(self) -> str:
        """One more of the users' host: what a door sees is told once a minute from each place."""
        self.addresses += 1
        address = f"{SUBNET}.{FIRST_SPARE_ADDRESS + self.addresses}"
        self.desk.ok("ip", "address", "add", f"{address}/24", "dev", "eth0")
        return address


@dataclass
class Link:
    """Of one key, which is nobody's until it is introduced."""

    line: Line
    keys: KeyPair

    @property
    def payload(self) -> bytes:
        """What a credential for this link is over."""
        return munge.payload_of(self.keys.public.decode())

    def introduce(self, credential: str, account: Account = BOB) -> str:
        """The code of the refusal; the answer's name where it is none."""
        body = wire.Introduce(user=account.name, credential=credential)
        return self._said(wire.introduction(RequestId(os.urandom(16)), body))

    def ask(self, body: wire.RequestBody) -> str:
        """Likewise."""
        return self._said(wire.request(RequestId(os.urandom(16)), body))

    def _said(self, data: bytes) -> str:
        self.line.send(data)
        answer = self.line.receive()
        assert answer is not None, "nobody answers"
        said = wire.REPLIES.decode(answer).body
        return said.code if isinstance(said, wire.Refused) else type(said).__name__


def set_up_site(net: Network) -> Site:
    ctl, desk = net.hosts.values()
    key = os.urandom(128)
    for host in (ctl, desk):
        munged_on(host, DIRECTORY, key)
    munged_on(desk, OF_ANOTHER_SITE, os.urandom(128))
    reader = Speaker(ctl)  # started by now, as all else that stays
    HostCluster(net, _CONFIG.format(cluster=net.run_name, ctl=ctl.address))
    run_dir = str(ctl.path("/run/gq"))
    client = Client(Location(CONFIG_PATH, "/var/lib/gq", run_dir, is_private=False), patience_s=LONG_S)
    return Site(net=net, client=client, reader=reader)
