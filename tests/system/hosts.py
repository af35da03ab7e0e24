"""Several hosts on one machine, each with a network, mounts, processes, users' files and a name of its own.

A host is a process that holds its namespaces; a switch, in a namespace of its own, joins the hosts by cables that can
be pulled.  All of it lives in namespaces and nothing has a name outside of them, so test runs cannot meet, and when
the holder of a host ends, also because the test process was killed, the kernel ends all that ran there.

The root file system is shared and everything that gq, its jobs and its users write to is not: /etc, /run, /tmp,
/dev/shm and what is below /var.  Nothing can be written into the machine's own /etc from a host.  The kernel is one, so
cgroups are: what clusters of a run make there is removed by the run's name.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gqnode.isolation.mounts import own_mounts
from gqnode.isolation.tree import ROOT_NAME, remove_directories
from tests import commands
from tests.clusters import COMMAND_TIMEOUT_S, MARK_VARIABLE, clean_environment, wait_until
from tests.integration.mount_namespace import needed, uncover
from tests.system.accounts import EVERYBODY, Account, files, home_of

SUBNET = "10.77.0"
SUBNET_6 = "fd77:"
WORKDIR = "/tmp/work"
"""Where users sit: every host has one, with other files in it."""
START_S = 60.0
PROJECT = Path(__file__).resolve().parents[2]
"""The code under test, which every host has, also where it lies below a directory that each host has for itself."""
_FORKED = commands.NAMES | commands.DAEMONS
"""Programs that the command server runs."""
_HOLD = "echo held; exec cat >/dev/null"
"""Until the test closes the pipe.  The first process of a host: its ignored SIGCHLD lets no zombie stay."""
_SET_UP_HOST = f"""
set -e
trap '' CHLD
hostname "$HOST_NAME"
{uncover(needed())}
mount -t tmpfs -o mode=755 gq-run /run
mkdir /run/etc
mount --rbind /etc /run/etc
mount -o remount,bind,ro /run/etc
mount -t tmpfs -o mode=755 gq-etc /etc
for path in /run/etc/*; do ln -s "$path" /etc; done
rm -f /etc/gq /etc/hosts /etc/systemd /etc/pam.d /etc/passwd* /etc/group* /etc/*shadow* /etc/sub?id*
mkdir -p /etc/systemd/system /etc/pam.d
cp /run/etc/pam.d/* /etc/pam.d
mkdir /run/project
mount --bind "{PROJECT}" /run/project
mount -t tmpfs -o mode=1777 gq-tmp /tmp
mount -t tmpfs -o mode=755 gq-lib /var/lib
mount -t tmpfs -o mode=755 gq-log /var/log
mount -t tmpfs -o mode=755 gq-spool /var/spool
mount -t tmpfs -o mode=1777 gq-shm /dev/shm
mkdir -p "{PROJECT}"
mountpoint -q "{PROJECT}" || mount --bind /run/project "{PROJECT}"
mkdir /tmp/home {WORKDIR}
echo "$HOST_BOOT_ID" > /run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
printf '%s' "$HOST_TABLE" > /etc/hosts
{_HOLD}
"""
_SET_UP_SWITCH = f"""
set -e
ip link add name switch type bridge
ip link set switch up
{_HOLD}
"""


def _holder(script: str, environ: Mapping[str, str], *namespaces: str) -> subprocess.Popen[str]:
    """A process in new namespaces of these kinds, which runs the script there; `_await_held` waits for its end."""
    return subprocess.Popen(
        ["unshare", *namespaces, "--fork", "--kill-child", "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(environ),
    )


def _await_held(holder: subprocess.Popen[str]) -> None:
    """Until the namespaces are as the script leaves them."""
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n", "a host cannot be set up: the reason is in what the test printed"


def _let_go(holder: subprocess.Popen[str]) -> None:
    """The kernel ends what is in the namespaces with their first process."""
    for pipe in (holder.stdin, holder.stdout):
        assert pipe is not None
        pipe.close()
    holder.wait(START_S)


def new_boot_id() -> str:
    return f"{secrets.token_hex(4)}-0000-4000-8000-{secrets.token_hex(6)}"


def child_of(pid: int) -> int:
    """The only child of a process, once it has one."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: path.read_text().strip(), START_S, f"process {pid} has a child")
    return int(path.read_text().split()[0])


def as_user(name: str, argv: Sequence[str]) -> Sequence[str]:
    """`argv` as this user of a host; an empty name is root."""
    return ["setpriv", f"--reuid={name}", f"--regid={name}", "--init-groups", *argv] if name else argv


@dataclass
class Daemon:
    """A program of a host that runs until it is told to end, and its log."""

    host: Host
    argv: tuple[str, ...]
    log_path: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal it and wait until it is gone; its exit status."""
        if not self.has_ended():
            os.kill(child_of(self.process.pid), number)
        return self.process.wait(START_S)

    def start_again(self) -> Daemon:
        return self.host.daemon(*self.argv)

    def await_log(self, words: str, within_s: float = START_S) -> None:
        """Until the log has these words."""
        try:
            wait_until(lambda: words in self.log, within_s)
        except AssertionError:
            raise AssertionError(f"{self.argv[0]} on {self.host.name} does not say {words!r}:\n{self.log}") from None


@dataclass
class Host:
    """One host; its commands are run as a root user's who logs in there."""

    name: str
    address: str
    holder: subprocess.Popen[str]
    mark: str
    daemons: list[Daemon] = field(default_factory=list)
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def init_pid(self) -> int:
        """The first process of the host, by its number here."""
        return child_of(self.holder.pid)

    def path(self, path: str) -> Path:
        """A file of the host, to be read and written from outside."""
        assert path.startswith("/")
        return Path(f"/proc/{self.init_pid}/root{path}")

    def user(self, account: Account) -> User:
        """Who logs in there."""
        return User(self, account)

    def run(
        self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; `environ` adds variables."""
        return self.run_at(WORKDIR, argv, stdin, timeout_s, environ)

    def run_at(
        self,
        directory: str,
        argv: Sequence[str],
        stdin: str | None,
        timeout_s: float,
        environ: Mapping[str, str],
        user: str = "",
    ) -> subprocess.CompletedProcess[str]:
        if argv[0] in _FORKED and len(stdin or "") < commands.MAX_STDIN_BYTES // 4:
            server, pid = commands.server(MARK_VARIABLE), self.init_pid
            return server.run(argv, directory, self._environment(environ), stdin, timeout_s, host_pid=pid, user=user)
        return subprocess.run(
            self._inside(as_user(user, argv), directory),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            env=self._environment(environ),
        )

    def ok(self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **environ: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*argv, stdin=stdin, timeout_s=timeout_s, **environ)
        assert done.returncode == 0, f"{argv} on {self.name} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command; it ends with the host if it still runs then."""
        return self.start_at(WORKDIR, argv, environ)

    def start_at(self, directory: str, argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._inside(argv, directory),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(environ),
        )
        self.started.append(process)
        return process

    def daemon(self, *argv: str) -> Daemon:
        """Start a daemon as a service manager would; it logs into a file of the host."""
        log_path = self.path(f"/run/log-{argv[0]}-{len(self.daemons)}")
        with log_path.open("wb") as log:
            process = subprocess.Popen(
                self._inside(argv, directory="/"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment({}),
            )
        daemon = Daemon(self, argv, log_path, process)
        self.daemons.append(daemon)
        return daemon

    def callers(self) -> int:
        """How many commands are connected to the door for clients on this host."""
        lines = self.path("/proc/1/net/unix").read_text().splitlines()
        paths = ("/run/gq/gqd.sock", "/run/gq/controller/gqd.sock")
        return sum(line.endswith(paths) and line.split()[5] == "03" for line in lines)

    def power_cut(self) -> None:
        """No process is left and the next boot is another one; what is on disk stays."""
        self.ok("sh", "-c", "kill -9 -1")
        shutil.rmtree(self.path("/run/gq"), ignore_errors=True)
        self.path("/run/boot_id").write_text(f"{new_boot_id()}\n")

    def listening(self) -> set[int]:
        """The TCP ports on which anything on this host listens."""
        lines = [
            line.split()
            for kind in ("tcp", "tcp6")
            for line in self.path(f"/proc/1/net/{kind}").read_text().splitlines()
        ]
        return {int(local.rpartition(":")[2], 16) for _, local, _, state, *_ in lines if state == "0A"}

    def logs(self, lines: int = 40) -> str:
        parts = []
        for daemon in self.daemons:
            tail = daemon.log.splitlines()[-lines:]
            parts.append("\n".join([f"── {daemon.argv[0]} on {self.name} ──", *tail]))
        return "\n".join(parts)

    def end(self) -> None:
        """Pull the plug: nothing of it is left."""
        _let_go(self.holder)
        for process in self.started:
            process.communicate()
        for daemon in self.daemons:
            daemon.process.wait(START_S)

    def add_accounts(self, accounts: Sequence[Account]) -> None:
        """These users and no others, besides those of the system; each has a home that is closed to the others."""
        for name, text in files(accounts).items():
            with self.path("/etc").joinpath(name).open("x") as file:  # never through a link to the machine's own
                file.write(text)
        for account in accounts:
            home = self.path("/run").joinpath(home_of(account).removeprefix("/run/"))
            home.mkdir(mode=0o700, parents=True)
            os.chown(home, account.uid, account.uid)

    def _inside(self, argv: Sequence[str], directory: str) -> list[str]:
        namespaces = ("--mount", "--net", "--uts", "--ipc", "--pid")
        return ["nsenter", f"--target={self.init_pid}", *namespaces, "env", "-C", directory, *argv]

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        return {**clean_environment(os.environ), "HOME": "/tmp/home", MARK_VARIABLE: self.mark, **more}


@dataclass(frozen=True)
class User:
    """An ordinary user of a host, in the home directory; not the same who has this name on another host."""

    host: Host
    account: Account

    @property
    def home(self) -> str:
        return home_of(self.account)

    def path(self, name: str) -> Path:
        """A file in the home directory, to be read and written from outside."""
        return self.host.path(f"{self.home}/{name}")

    def write(self, name: str, text: str, mode: int = 0o600) -> str:
        """A file of this user in the home directory; where it is on the host."""
        self.ok("sh", "-c", f"umask 077; cat > {shlex.quote(name)}; chmod {mode:o} {shlex.quote(name)}", stdin=text)
        return f"{self.home}/{name}"

    def run(
        self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end; `environ` adds variables."""
        return self.host.run_at(self.home, argv, stdin, timeout_s, self._environment(environ), self.account.name)

    def ok(self, *argv: str, stdin: str | None = None, timeout_s: float = COMMAND_TIMEOUT_S, **environ: str) -> str:
        """Standard output of a command that must succeed."""
        done = self.run(*argv, stdin=stdin, timeout_s=timeout_s, **environ)
        where = f"{self.account.name} on {self.host.name}"
        assert done.returncode == 0, f"{argv} of {where} ended {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, *argv: str, **environ: str) -> subprocess.Popen[str]:
        """Start a command; it ends with the host if it still runs then."""
        return self.host.start_at(self.home, as_user(self.account.name, argv), self._environment(environ))

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        name = self.account.name
        return {"HOME": self.home, "USER": name, "LOGNAME": name, **more}


class Network:
    """Hosts with these names at SUBNET.1, SUBNET.2, … on one switch.  `run_name`: for clusters of this run alone.

    Every host knows the users EVERYBODY, but for those that `accounts` gives users of their own.
    """

    def __init__(
        self, names: Sequence[str], mark: str, accounts: Mapping[str, Sequence[Account]] | None = None
    ) -> None:
        self.run_name = f"gqt-{secrets.token_hex(4)}"
        self.hosts: dict[str, Host] = {}
        self._switch = _holder(_SET_UP_SWITCH, os.environ, "--net")
        addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(names, 1)}
        table = "".join(f"{address} {name}\n" for name, address in {"localhost": "127.0.0.1", **addresses}.items())
        for name, address in addresses.items():
            environ = {**os.environ, "HOST_NAME": name, "HOST_BOOT_ID": new_boot_id(), "HOST_TABLE": table}
            kinds = ("--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc")
            self.hosts[name] = Host(name, address, _holder(_SET_UP_HOST, environ, *kinds), mark)
        for holder in (self._switch, *(host.holder for host in self.hosts.values())):
            _await_held(holder)
        self._on_switch("sh", "-ec", "\n".join(_cable(host) for host in self.hosts.values()))
        for name, host in self.hosts.items():
            host.add_accounts((accounts or {}).get(name, EVERYBODY))

    def cut(self, host: Host) -> None:
        """Pull the cable."""
        self._on_switch("ip", "link", "set", f"to-{host.name}", "down")

    def heal(self, host: Host) -> None:
        self._on_switch("ip", "link", "set", f"to-{host.name}", "up")

    @contextlib.contextmanager
    def without(self, host: Host) -> Iterator[None]:
        """The cable of a host is pulled for a while."""
        self.cut(host)
        try:
            yield
        finally:
            self.heal(host)

    def start_on_switch(self, *argv: str) -> subprocess.Popen[str]:
        """Start a program that sees all that goes over the switch."""
        return subprocess.Popen(self._at_switch(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def logs(self) -> str:
        return "\n".join(host.logs() for host in self.hosts.values() if host.daemons)

    def end(self) -> None:
        """Everything ends.  AssertionError if cgroups of this run's clusters stayed and cannot be removed."""
        for host in self.hosts.values():
            host.end()
        _let_go(self._switch)
        for directory in cgroups_of(self.run_name):
            remove_directories(str(directory))
        assert not cgroups_of(self.run_name)

    def _at_switch(self, argv: Sequence[str]) -> list[str]:
        return ["nsenter", f"--target={child_of(self._switch.pid)}", "--net", *argv]

    def _on_switch(self, *argv: str) -> None:
        subprocess.run(self._at_switch(argv), check=True, timeout=START_S)


def _cable(host: Host) -> str:
    """A script for the switch that connects a host, which has its addresses afterwards."""
    pid = host.init_pid
    on_host = f"nsenter --target={pid} --net ip -batch -"
    return f"""
ip link add to-{host.name} type veth peer name eth0 netns {pid}
ip link set to-{host.name} master switch up
{on_host} <<'END'
link set lo up
address add {host.address}/24 dev eth0
address add {SUBNET_6}:{host.address.rpartition(".")[2]}/64 dev eth0 nodad
link set eth0 up
END"""


def cgroups_of(run_name: str) -> list[Path]:
    """Directories of the clusters of one run, in every hierarchy of this machine."""
    mounts = own_mounts()
    bases = {*mounts.v1.values(), *([mounts.v2] if mounts.v2 else [])}
    return sorted(path for base in bases for path in Path(base, ROOT_NAME).glob(f"{run_name}*"))


# ── a cluster of hosts ────────────────────────────────────────────────────────────────────────────────────────

CONTROLLER_PORT = 7321
STEP_PORT = 7322
FAKE_GPUS = 4
CONFIG_PATH = "/etc/gq/gq.toml"
KEYS = "/var/lib/gq/keys"


class HostCluster:
    """gqd on the first host and gqnode on others, set up by hand as gqd(8), gqnode(8) and gq.toml(5) say."""

    def __init__(self, net: Network, config: str) -> None:
        self.net = net
        self.config = config
        self.head = next(iter(net.hosts.values()))
        self.nodes: dict[str, Daemon] = {}
        self.state_dir = "/var/lib/gq/controller" if "[controller]\nuser = " in config else "/var/lib/gq"
        """Of gqd."""
        self.configure(self.head)
        self.head.ok("gqd", "keygen")
        self.gqd = self.start_gqd()

    def start_gqd(self) -> Daemon:
        """As the unit file of the example does."""
        gqd = self.head.daemon("gqd", "--config", CONFIG_PATH)
        gqd.await_log("gqd is ready")
        return gqd

    def configure(self, host: Host) -> None:
        """The same file lies on every host."""
        path = host.path(CONFIG_PATH)
        path.parent.mkdir(exist_ok=True)
        path.write_text(self.config)

    def new_keys(self, node: str) -> None:
        """The node may join from now on."""
        self.head.ok("gqd", "keygen", "--node", node)

    def copy_key(self, file: str, host: Host, to: str = "") -> None:
        """As ``scp -p`` from the head."""
        keys = host.path(KEYS)
        keys.mkdir(parents=True, exist_ok=True)
        source = self.head.path(f"{self.state_dir}/keys/{file}")
        shutil.copyfile(source, keys / (to or file))
        keys.joinpath(to or file).chmod(stat.S_IMODE(source.stat().st_mode))

    def add(self, name: str) -> Daemon:
        """The host becomes the node of its name."""
        self.add_all((name,))
        return self.nodes[name]

    def add_all(self, names: Sequence[str]) -> None:
        """As `add`, and they start at the same time."""
        for name in names:
            self._prepare(name)
            self.nodes[name] = self.start_gqnode(self.net.hosts[name])
        for name in names:
            self.nodes[name].await_log("is part of cluster")

    def _prepare(self, name: str) -> None:
        host = self.net.hosts[name]
        self.new_keys(name)
        self.configure(host)
        self.copy_key("gqd.pub", host)
        self.copy_key(f"node-{name}.key", host)

    def start_gqnode(self, host: Host, name: str = "") -> Daemon:
        return host.daemon("gqnode", "--config", CONFIG_PATH, "--name", name or host.name)


def config_of(
    net: Network, nodes: Sequence[str], logins: Sequence[str] = (), timers: str = "", limits: str = ""
) -> str:
    """A gq.toml: the first host runs gqd; `nodes` pretend to have GPUs; `timers` and `limits` are lines of theirs."""
    controller = f"tcp://{SUBNET}.1:{CONTROLLER_PORT}"
    parts = [
        f"""cluster = "{net.run_name}"

[controller]
listen = "{controller}"

[access]
root_jobs = true

[timers]
backoff_min_s = 1
{timers}
[limits]
{limits}"""
    ]
    for name in nodes:
        address = net.hosts[name].address
        parts.append(f"""
[[node]]
name = "{name}"
address = "{address}"
controller = "{controller}"
step_listen = "tcp://{address}:{STEP_PORT}"
cpus = 16
gpus = []
""")
        parts += ["  [[node.fake_gpu]]\n"] * FAKE_GPUS
    parts += [
        f"""
[[node]]
name = "{name}"
controller = "{controller}"
login = true
"""
        for name in logins
    ]
    return "".join(parts)


@contextlib.contextmanager
def network(
    names: Sequence[str], mark: str, accounts: Mapping[str, Sequence[Account]] | None = None
) -> Iterator[Network]:
    made = Network(names, mark, accounts)
    try:
        yield made
    finally:
        made.end()
