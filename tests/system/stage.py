"""Where the attacks are played: a shared cluster on five hosts, whose users do not trust each other.

``ctl`` runs gqd.  ``n1`` is a node as it comes, ``n2`` one with everything that a site can forbid.  Users sit on
``login``.  ``lab`` is a host whose root is the attacker: it holds the key of a node and speaks for itself.  The cluster
must be as good after every attack as before.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from gq.connection.client import Client
from gq.connection.locate import Location
from gq.model.ids import RequestId
from gq.model.job import JobInfo
from gq.model.node import Inventory, IsolationLevels
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import WIRE_VERSION
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, submit
from tests.system.accounts import ALICE, BOB, CAROL, DORA, EVERYBODY, GQ, Account
from tests.system.hosts import CONTROLLER_PORT, STEP_PORT, SUBNET, Daemon, Host, HostCluster, Network, User
from tests.system.speaker import Keys, Line, Speaker

NAMES = ("ctl", "n1", "n2", "login", "lab")
EVE = Account("eve", 2005)
"""Is not known on n2."""
FRANK_OF_CTL = Account("frank", 2006)
FRANK_OF_LOGIN = Account("frank", 2007)
"""Another number on the login host than on the controller's."""
GHOST = Account("ghost", 2099)
"""Is known on the login host and the attacker's only."""
BOB_OF_LOGIN = Account("bob", BOB.uid, ("gqops",))
"""Is in the operators' group there, and not on the controller's host."""
ACCOUNTS = {
    "ctl": (*EVERYBODY, EVE, FRANK_OF_CTL, GQ),
    "n1": (*EVERYBODY, EVE),
    "n2": EVERYBODY,
    "login": (ALICE, BOB_OF_LOGIN, CAROL, DORA, EVE, FRANK_OF_LOGIN, GHOST),
    "lab": (*EVERYBODY, GHOST),
}
PIDS_MAX = 100
FIRST_SPARE_ADDRESS = 100
GPU_MAJOR, FIRST_GPU_MINOR = 195, 240
"""Of GPUs that no machine has: to open one that is allowed says ENXIO, one that is denied EPERM."""
GPUS = ("/run/gpu0", "/run/gpu1")
"""Of each node: n1 guards them as it does by itself, n2 by programs of cgroup v2."""
PORT_OF_CLIENTS = 7323
CLIENT_SOCKET = "ipc:///run/gq/gqd.sock"
_CONFIG = """
cluster = "{cluster}"
[controller]
user = "gq"
listen = "tcp://{ctl}:{port}"
listen_clients = "tcp://{ctl}:{port_of_clients}"
[access]
administrators = ["dora"]
operators = ["%gqops"]
[timers]
heartbeat_s = 1
prepare_ack_s = 10
grace_s = 1
backoff_min_s = 1
[notify]
webhook_hosts = ["{ctl}:8099", "localhost:8098"]
webhook_networks = ["{ctl}/32"]
mail = "/bin/true"
[[partition]]
name = "main"
default = true
nodes = ["n1", "n2"]
[[partition]]
name = "lab"
nodes = ["lab"]
[[node]]
name = "n1"
address = "{n1}"
controller = "tcp://{ctl}:{port}"
step_listen = "tcp://{n1}:{step_port}"
cpus = 16
memory = "4G"
gpus = []
fake_gpu = [{{ device = "/run/gpu0" }}, {{ device = "/run/gpu1" }}]
[[node]]
name = "n2"
address = "{n2}"
controller = "tcp://{ctl}:{port}"
step_listen = "tcp://{n2}:{step_port}"
cpus = 16
memory = "4G"
gpus = []
private_tmp = true
no_new_privs = true
seccomp = true
rlimits = {{ core = "0", nofile = "256:512" }}
isolation = {{ devices = "cgroup2" }}
fake_gpu = [{{ device = "/run/gpu0" }}, {{ device = "/run/gpu1" }}]
[[node]]
name = "login"
controller = "tcp://{ctl}:{port}"
login = true
[[node]]
name = "lab"
address = "{lab}"
controller = "tcp://{ctl}:{port}"
"""


class Entry(NamedTuple):
    """A line of the audit trail."""

    seq: int
    at: float
    user: str
    uid: int | None
    origin: str
    action: str
    object: str
    outcome: str
    detail: str


class Trail:
    """What a controller says of itself, to root of its host."""

    client: Client
    reader: Speaker
    database = "/var/lib/gq/gq.db"

    def counters(self) -> dict[str, int]:
        answer = self.client.ask(wire.GetCluster())
        assert isinstance(answer, wire.Cluster)
        return dict(answer.info.counters)

    def audit(self, after: int = 0) -> list[Entry]:
        """Lines of the trail that came after one."""
        return [Entry(*row) for row in self.rows("SELECT * FROM audit WHERE seq > ? ORDER BY seq", after)]

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """What the controller's database says."""
        return self.reader.query(self.database, query, *values)

    def await_audit(self, after: int, action: str, outcome: str) -> Entry:
        """A line that says so; it may come a moment after the answer."""
        found: list[Entry] = []

        def is_there() -> bool:
            found[:] = [one for one in self.audit(after) if (one.action, one.outcome) == (action, outcome)]
            return bool(found)

        try:
            wait_until(is_there, 5.0)
        except AssertionError:
            raise AssertionError(f"no {action}: {outcome} in the audit trail, but {self.audit(after)}") from None
        return found[0]


@dataclass
class Stage(Trail):
    net: Network
    cluster: HostCluster
    database = "/var/lib/gq/controller/gq.db"
    client: Client
    """Root's, on the controller's host."""
    reader: Speaker
    """Likewise."""
    speakers: list[Speaker] = field(default_factory=list)
    addresses: int = 0

    def host(self, name: str) -> Host:
        return self.net.hosts[name]

    def user(self, account: Account, host: str = "login") -> User:
        return self.host(host).user(account)

    @property
    def alice(self) -> User:
        """Who is attacked."""
        return self.user(ALICE)

    @property
    def bob(self) -> User:
        """Who attacks."""
        return self.user(BOB)

    @property
    def operator(self) -> User:
        return self.user(CAROL, "ctl")

    @property
    def administrator(self) -> User:
        return self.user(DORA, "ctl")

    @property
    def root(self) -> Host:
        return self.host("ctl")

    @property
    def gqd(self) -> Daemon:
        return self.cluster.gqd

    # ── what the attacker has ─────────────────────────────────────────────────────────────────────────────────

    def speaker(self, who: User | Host) -> Speaker:
        """Ends with the test."""
        self.speakers.append(Speaker(who))
        return self.speakers[-1]

    def end_speakers(self) -> None:
        while self.speakers:
            self.speakers.pop().end()

    def ask(self, user: User, body: wire.RequestBody, request_id: bytes = b"") -> wire.ReplyBody:
        """What a program of the user's own says to the door of that host, and the answer."""
        line = self.speaker(user).dial(CLIENT_SOCKET)
        line.send(wire.request(RequestId(request_id or os.urandom(16)), body))
        answer = line.receive()
        assert answer is not None, f"nobody answers a {type(body).__name__}"
        return wire.REPLIES.decode(answer).body

    def refusal(self, user: User, body: wire.RequestBody) -> str:
        """The code of the refusal; the answer's name where it is none."""
        answer = self.ask(user, body)
        return answer.code if isinstance(answer, wire.Refused) else type(answer).__name__

    @property
    def keys_dir(self) -> str:
        return f"{self.cluster.state_dir}/keys"

    def node_keys(self, name: str) -> Keys:
        """What root of a node finds there."""
        keys = self.root.path(self.keys_dir)
        public, secret = ((keys / path).read_bytes().strip() for path in (f"nodes/{name}.pub", f"node-{name}.key"))
        return Keys(public, secret, self.server_key)

    @property
    def server_key(self) -> bytes:
        return self.root.path(f"{self.keys_dir}/gqd.pub").read_bytes().strip()

    @property
    def node_door(self) -> str:
        return f"tcp://{self.root.address}:{CONTROLLER_PORT}"

    @property
    def client_door(self) -> str:
        return f"tcp://{self.root.address}:{PORT_OF_CLIENTS}"

    def lab_line(self) -> Line:
        """The link of the attacker's host, with the key of the node that it is."""
        return self.speaker(self.host("lab")).dial(self.node_door, self.node_keys("lab"))

    def strangers_line(self, door: str, keys: Keys | None = None, **options: str | int) -> Line:
        """A link from the attacker's host by an address that was never used before.

        What a door sees goes into the audit trail once a minute from each place.
        """
        return self.speaker(self.host("lab")).dial(door.replace("//", f"//{self.new_address()}:0;"), keys, **options)

    def new_address(self) -> str:
        """One more of the attacker's host."""
        self.addresses += 1
        address = f"{SUBNET}.{FIRST_SPARE_ADDRESS + self.addresses}"
        self.host("lab").ok("ip", "address", "add", f"{address}/24", "dev", "eth0")
        return address

    # ── what is true ──────────────────────────────────────────────────────────────────────────────────────────

    def running_job(self, *options: str, wrap: str = "sleep 1000", user: User | None = None) -> str:
        """A job of Alice's (or of `user`) that runs."""
        job = submit(user or self.alice, *options, wrap=wrap)
        self.await_state(job, "RUNNING")
        return job

    def facts(self, job: str | int) -> JobInfo:
        """What its owner would be told."""
        answer = self.client.ask(wire.QueryHistory(filter=wire.JobFilter(job_ids=(int(job),))))
        assert isinstance(answer, wire.Jobs)
        return answer.jobs[0]

    def await_state(self, job: str | int, *states: str) -> JobInfo:
        wait_until(lambda: self.facts(job).state in states, LONG_S, f"job {job} is {' or '.join(states)}")
        return self.facts(job)

    def isolation(self, node: str) -> IsolationLevels:
        """What the node enforces, and by what."""
        answer = self.client.ask(wire.ListNodes(names=(node,)))
        assert isinstance(answer, wire.Nodes)
        return answer.nodes[0].isolation

    def await_counter(self, name: str, more_than: int) -> None:
        wait_until(lambda: self.counters()[name] > more_than, LONG_S, f"{name} is more than {more_than}")

    def is_well(self) -> None:
        """Nothing of any job is left, and both nodes take more."""
        self.client.ask(wire.CancelJobs(filter=wire.JobFilter(partitions=("main", "lab"))))
        wait_until(lambda: _is_idle(self.client), LONG_S, "both nodes are idle again")
        for daemon in self.net.hosts.values():
            assert all(not one.has_ended() for one in daemon.daemons), daemon.logs()


def _is_idle(client: Client) -> bool:
    answer = client.ask(wire.ListNodes(names=("n1", "n2")))
    assert isinstance(answer, wire.Nodes)
    return {one.state for one in answer.nodes} == {"IDLE"}


def hello(node: str = "lab", **fields: Any) -> node_wire.Hello:
    """As the attacker's host introduces itself, or pretends to be another."""
    greeting = node_wire.Hello(
        node=node,
        version=WIRE_VERSION,
        incarnation=f"{time.time_ns()}",
        boot_id="boot",
        address="10.77.0.5",
        inventory=Inventory(cpus=4, memory_mib=4096),
        step_endpoint="tcp://10.77.0.5:7399",
    )
    return msgspec.structs.replace(greeting, **fields)


def say(line: Line, message: node_wire.NodeMessage) -> None:
    line.send(node_wire.NODE_MESSAGES.encode(message))


def hear(line: Line, within_s: float = 10.0) -> node_wire.ControllerMessage | None:
    message = line.receive(within_s)
    return None if message is None else node_wire.CONTROLLER_MESSAGES.decode(message)


def set_stage(net: Network) -> Stage:
    addresses = {name: host.address for name, host in net.hosts.items()}
    ports = {"port": CONTROLLER_PORT, "port_of_clients": PORT_OF_CLIENTS, "step_port": STEP_PORT}
    for name in ("n1", "n2"):
        _make_gpus(net.hosts[name])
    _limit_processes(net.hosts["n1"])
    cluster = HostCluster(net, _CONFIG.format(cluster=net.run_name, **addresses, **ports))
    cluster.new_keys("lab")
    run_dir = str(net.hosts["ctl"].path("/run/gq"))
    client = Client(Location("/etc/gq/gq.toml", "/var/lib/gq", run_dir, is_private=False), patience_s=LONG_S)
    stage = Stage(net, cluster, client, Speaker(net.hosts["ctl"]))
    cluster.add_all(("n1", "n2", "login"))
    wait_until(lambda: stage.host("login").path("/run/gq/gqd.sock").exists(), LONG_S)
    return stage


def _make_gpus(host: Host) -> None:
    for minor, path in enumerate(GPUS, FIRST_GPU_MINOR):
        host.ok("mknod", "-m", "666", path, "c", f"{GPU_MAJOR}", f"{minor}")


def _limit_processes(host: Host) -> None:
    """A node gives a job half of the processes that the kernel has; this host's kernel seems to have few."""
    host.path("/run/pid_max").write_text(f"{2 * PIDS_MAX}\n")
    host.ok("mount", "--bind", "/run/pid_max", "/proc/sys/kernel/pid_max")
