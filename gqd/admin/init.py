"""`gqd init`: creates the files of a system's cluster on a host, and shows the commands with which other hosts join.

Owns the first gq.toml; afterwards the file is the administrator's, and only a ``[[node]]`` for this host is ever added.
It replaces nothing: existing files are kept, or named in a refusal.  gq.toml is written last, so that an interrupted
call can simply be repeated.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import tomllib
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.config.config import Config, load_config, node_lines, parse_config
from gq.connection.client import Client
from gq.connection.curve import (
    fresh_keys,
    make_keys,
    node_key_path,
    node_public_path,
    read_keys,
    read_public,
    server_key_path,
    server_public_path,
)
from gq.connection.locate import (
    CONTROLLER_DIR,
    ROOT_USER,
    SYSTEM_CONFIG,
    Location,
    controller_location,
    has_system_cluster,
)
from gq.connection.token import format_token
from gq.errors import Refusal, Unreachable
from gq.host import job_tmp, service
from gq.host.files import make_directory, write_file
from gq.model.node import NodeInfo
from gq.wire.client import CreateToken, ListNodes, Nodes, Ping, TokenCreated
from gqd.admin.state_move import move_state, refuse_running
from gqd.admin.system_user import DEFAULT_USER, acting_as, ensure_user

DEFAULT_CLUSTER = "gq"
DEFAULT_LISTEN = "tcp://*:7133"
STEP_PORT = 7134
TOKEN_FILE = "token"
TOKEN_TTL_S = 3600
_DATABASE = "gq.db"


class InitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `gqd init`; empty: not given."""

    cluster: str = ""
    listen: str = ""
    address: str = ""
    node: str = ""
    """Name of the node that this host also becomes."""
    user: str = ""
    """System user that gqd runs as."""


# ── setting up ────────────────────────────────────────────────────────────────────────────────────────────────────


def set_up(location: Location, wish: InitOptions) -> tuple[Config, bool]:
    """Set up the host; returns the configuration, and whether anything was changed.  Raises `Refusal`."""
    if os.geteuid() != 0:
        hint = (
            f"{SYSTEM_CONFIG} already exists: `gqinfo` shows the cluster"
            if has_system_cluster()
            else ("run it as root; or start a cluster for yourself with `gq up`, without root")
        )
        raise Refusal("needs_root", "`gqd init` sets up this host for all users, as root", hint)
    if Path(location.config_path).exists():
        return _complete(location, wish)
    _check_no_other(location)
    text = config_text(wish, why_shared_tmp(location) if wish.node else "")
    user = parse_config(text, location.config_path).controller.user  # before anything is written
    _make_directories(location)
    own, account = _make_user(location, user)
    with acting_as(account):
        _make_server_keys(own)
    if wish.node:
        _make_node_keys(location, wish.node)
    write_file(Path(location.config_path), text, 0o644)
    return load_config(location), True


def _complete(location: Location, wish: InitOptions) -> tuple[Config, bool]:
    """Check a host that was set up before against the options, and add a node if they ask for one."""
    config = load_config(location)
    _check_is_controller(location, config)
    config, is_moved = _give_user(location, config, wish.user)
    own, account = _make_user(location, config.controller.user)
    with acting_as(account):
        _check_complete(own, config, wish)
    _check_wish(config, wish)
    _make_directories(location)
    if not wish.node or wish.node in {node.name for node in config.nodes}:
        return config, is_moved
    path = Path(location.config_path)
    text = path.read_text("utf-8") + node_text(wish.node, _address(config), _listen(config), why_shared_tmp(location))
    parse_config(text, location.config_path)
    _make_node_keys(location, wish.node)
    write_file(path, text, 0o644)
    return load_config(location), True


def _give_user(location: Location, config: Config, user: str) -> tuple[Config, bool]:
    """Set gqd's user in gq.toml from ``--user``; returns the configuration, and whether gq.toml was changed.

    gq.toml names the user before any file moves, so that gqd starts with all of its state or not at all.
    """
    named = config.controller.user
    if named and user not in ("", named):
        raise Refusal(
            "other_shape",
            f"{config.path} already exists with user {named}, not --user {user}",
            "change the file and restart gqd, or leave out the option",
        )
    if not (named or user):
        return config, False
    if not named:
        text = with_user(Path(config.path).read_text("utf-8"), user, config.path)
        if user != ROOT_USER:
            ensure_user(user, Path(location.state_dir, CONTROLLER_DIR))
            refuse_running(location)
        parse_config(text, config.path)
        write_file(Path(config.path), text, 0o644)
        config = load_config(location)
    _make_directories(location)
    return config, not named


def _make_user(location: Location, user: str) -> tuple[Location, pwd.struct_passwd | None]:
    """Create the account and its directories, and move gqd's state there; account None: gqd runs as root."""
    own = controller_location(location, user)
    if own is location:
        return own, None
    account = ensure_user(user, Path(own.state_dir))
    move_state(location, own, account)
    return own, account


def with_user(text: str, user: str, path: str) -> str:
    """The text of gq.toml with the user in its table ``[controller]``, which is added if missing."""
    line = _user_line(user)
    found = re.search(r"^\s*\[\s*controller\s*\][^\n]*(\n|$)", text, re.MULTILINE)
    if found is None and "controller" in tomllib.loads(text):
        raise Refusal("no_table", f"{path} has no line [controller]", f'add controller.user = "{user}" to it')
    if found is None:
        return f"{text.rstrip()}\n\n[controller]\n{line}\n"
    return f"{text[: found.end()].rstrip()}\n{line}\n{text[found.end() :]}"


def _user_line(user: str) -> str:
    setting = f'user = "{user}"'
    return f"{setting:<32} # gqd runs as this user"


def _check_is_controller(location: Location, config: Config) -> None:
    if config.controller.listen is None and any(node.controller for node in config.nodes):
        raise Refusal(
            "is_node",
            f"this host is a node of another controller, by {location.config_path}",
            f"remove {location.config_path} and {location.keys_dir} to make it a controller instead",
        )


def _check_complete(location: Location, config: Config, wish: InitOptions) -> None:
    path, key = location.config_path, server_key_path(location.keys_dir)
    if config.controller.listen is None:
        if config.controller.user and not wish.node:
            return  # serves this host alone
        raise Refusal(
            "other_config",
            f"{path} already exists without [controller] listen, so no other host could join",
            f'add listen = "{DEFAULT_LISTEN}" to it, or move the file away',
        )
    if not key.exists():
        raise Refusal("incomplete", f"{path} already exists, and {key} does not", "`gqd keygen` creates the key")
    read_keys(key)


def _check_wish(config: Config, wish: InitOptions) -> None:
    for option, wanted, there in (
        ("--cluster", wish.cluster, config.cluster),
        ("--listen", wish.listen, config.controller.listen),
        ("--address", wish.address, _address(config)),
    ):
        if wanted and wanted != there:
            raise Refusal(
                "other_shape",
                f"{config.path} already exists with {option[2:]} {there}, not {wanted}",
                "change the file and run `gqd restart`, or leave out the option",
            )


def _check_no_other(location: Location) -> None:
    """Refuse if there is a queue of a cluster whose gq.toml is missing."""
    directories = (location.state_dir, f"{location.state_dir}/{CONTROLLER_DIR}")
    for database in (path for path in (Path(directory, _DATABASE) for directory in directories) if path.exists()):
        raise Refusal(
            "other_state",
            f"{database}, the queue of a cluster, exists without {location.config_path}",
            f"restore {location.config_path}, or move {database} away",
        )


def _make_directories(location: Location) -> None:
    make_directory(Path(location.config_path).parent, 0o755, is_ours=location.config_path == SYSTEM_CONFIG)
    make_directory(Path(location.state_dir), 0o711)
    make_directory(Path(location.keys_dir), 0o700)


def _make_server_keys(location: Location) -> None:
    """Create the server keys; an existing pair is kept, and a missing public key is made from the secret one."""
    secret, public = server_key_path(location.keys_dir), server_public_path(location.keys_dir)
    if not secret.exists():
        public.unlink(missing_ok=True)
        make_keys(secret, public)
    elif not public.exists() or read_public(public) != read_keys(secret).public:
        write_file(public, f"{read_keys(secret).public.decode()}\n", 0o644)


def _make_node_keys(location: Location, node: str) -> None:
    """Create the node's keys, for its step listener; the node reaches gqd through a local socket."""
    secret, public = node_key_path(location.keys_dir, node), node_public_path(location.keys_dir, node)
    if secret.exists():
        read_keys(secret)
        return
    public.unlink(missing_ok=True)
    make_keys(secret, public)


def why_shared_tmp(location: Location) -> str:
    """Why jobs of this host cannot have a private /tmp; empty: they can."""
    return job_tmp.why_not(location.state_dir)


# ── gq.toml ───────────────────────────────────────────────────────────────────────────────────────────────────────


def config_text(wish: InitOptions, why_shared_tmp: str) -> str:
    listen = wish.listen or DEFAULT_LISTEN
    address = wish.address or _host_of(listen) or socket.gethostname()
    node = node_text(wish.node, address, listen, why_shared_tmp) if wish.node else ""
    return f"""\
# The controller of a gq cluster, written by `gqd init`.  It is yours to change: edit, then `gqd restart`.
# Every setting is described in gq.toml(5); `gqctl config reload` reads it again.  Nothing in it is secret.

cluster = "{wish.cluster or DEFAULT_CLUSTER}"

[controller]
{_user_line(wish.user or DEFAULT_USER)}
{f'listen = "{listen}"':<32} # for the nodes of other hosts, encrypted
{f'address = "{address}"':<32} # how other hosts reach this one
# default_mem_per_cpu = "2G"     # count and limit memory also for jobs that do not ask for any

[access]
# administrators = ["ada"]       # besides root; "%wheel" is a group
# operators = ["%operators"]     # see and steer all jobs, drain and resume nodes

[[partition]]
name = "main"
default = true
# default_time = "1h"            # for jobs that name no time limit
# max_time = "7d"                # reservations (gqresv) need one: what runs has gone when they begin
{node}"""


def _host_of(listen: str) -> str:
    """The host part of a listen address; empty: all addresses."""
    host = listen.removeprefix("tcp://").rpartition(":")[0]
    return "" if host in ("*", "0.0.0.0", "[::]") else host


def node_text(node: str, address: str, listen: str, why_shared_tmp: str) -> str:
    """The ``[[node]]`` table of this host; its step listener uses the addresses of the controller's listener."""
    step_listen = f"tcp://{_host_of(listen) or '*'}:{STEP_PORT}"
    return f"""
[[node]]                         # this host runs jobs, too
name = "{node}"
address = "{address}"
{f'step_listen = "{step_listen}"':<32} # for gqrun and gqlog of other hosts, encrypted
{node_lines(why_shared_tmp)}"""


def own_node(config: Config) -> str:
    """Name of the node on this host; empty: none."""
    return next((node.name for node in config.nodes if node.controller is None), "")


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Started(NamedTuple):
    """Paths of the logs (empty: the daemon ran already), and the file of a new token; None: no other host can join."""

    gqd_log: str
    gqnode_log: str
    token: Path | None


def start(location: Location, node: str) -> Started:
    """Start the daemons that do not run, and create a token if other hosts can join; `node`: of this host, or ''."""
    with Client(location, timeout_s=5.0) as client:
        gqd = service.start(service.CONTROLLER, location, lambda: _answers(client))
        gqnode = service.start(service.NODE, location, lambda: _has_registered(client, node)) if node else ""
        token = Path(location.state_dir, TOKEN_FILE) if load_config(location).controller.listen is not None else None
        if token is not None:
            _make_token(client, token)
        return Started(gqd, gqnode, token)


def _answers(client: Client) -> bool:
    try:
        client.ask(Ping())
    except Unreachable:
        return False
    return True


def _has_registered(client: Client, node: str) -> bool:
    try:
        answer = client.ask(ListNodes(names=(node,)))
    except (Unreachable, Refusal):  # gqd does not answer yet, or does not know the node yet
        return False
    return isinstance(answer, Nodes) and any(_is_up(node) for node in answer.nodes)


def _is_up(node: NodeInfo) -> bool:
    return node.last_heard_at is not None and not node.state.startswith(("UNKNOWN", "DOWN"))


def _make_token(client: Client, path: Path) -> None:
    pair = fresh_keys()
    answer = client.ask(CreateToken(public=pair.public.decode(), ttl_s=TOKEN_TTL_S))
    assert isinstance(answer, TokenCreated), answer
    write_file(path, format_token(answer.server_key.encode(), pair.secret) + "\n", 0o600)


# ── next steps ────────────────────────────────────────────────────────────────────────────────────────────────────


def endpoint(config: Config) -> str:
    """The endpoint at which other hosts reach the controller."""
    return f"tcp://{_address(config)}:{_listen(config).rpartition(':')[2]}"


def _listen(config: Config) -> str:
    assert config.controller.listen is not None, "a complete configuration has one"
    return config.controller.listen


def _address(config: Config) -> str:
    return config.controller.address or socket.gethostname()


def what_next(config: Config, token: Path | None) -> str:
    """The next steps, as commands to copy.  `token`: the file of a new token; None: gqd was not started."""
    steps = _how_to_join(config, token)
    hint = service.manual_hint()
    return f"{steps}\n\n{hint}" if hint else steps


def _how_to_join(config: Config, token: Path | None) -> str:
    join = f"gqnode join {endpoint(config)}"
    if token is None:
        return f"""\
next, here:
  gqd init --start
then, for each host to add as a node, with its own token:
  gqctl token create | ssh root@HOST {join} --start"""
    return f"""\
{token} is a token: one host may join with it, within an hour.
Copy it to that host, and join there as root:
  scp -p {token} root@HOST:token
  {join} --token-file token --start
or both in one line, for each host to add as a node:
  gqctl token create | ssh root@HOST {join} --start"""
