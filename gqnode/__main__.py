"""``gqnode``: the daemon of one node, in the foreground; ``gqnode start``, ``stop``, ``restart``: the same in the
background, or as a service of systemd; ``gqnode join``: this host becomes a node.

SIGTERM and SIGINT end the daemon and not the jobs: the next one finds them again.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gqnode.daemon.spawn import Spawner

if TYPE_CHECKING:
    from gq.config.config import Config, NodeSettings
    from gq.connection.locate import Location
    from gqnode.admin.join import Wish
    from gqnode.daemon.loop import Equipment

LOCK_FILE = ".lock"
GARBAGE_LOOK = 10_000
"""New objects between two looks of the collector; next to nothing here is in cycles."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def main() -> None:
    from gq.host.error_text import run_command_line

    sys.exit(run_command_line(app, "gqnode"))


def _show_version(wanted: bool) -> None:
    if wanted:
        from gq import __version__

        typer.echo(f"gqnode {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def gqnode(
    context: typer.Context,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Which [[node]] of gq.toml this is (the only one).")
    ] = "",
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="Directory of a private cluster.")] = "",
    config: Annotated[
        str, typer.Option("--config", metavar="FILE", help="Configuration of the system's cluster.")
    ] = "",
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The daemon of one node: runs the node's share of every job, and goes on when the controller is away.

    Runs in the foreground until SIGTERM or SIGINT, and logs to standard error.  Jobs go on without it.
    """
    if directory and config:
        from gq.errors import UsageError

        raise UsageError("contradiction", "`--dir` and `--config` exclude each other", "give one of them")
    context.obj = (name, directory, config)
    if context.invoked_subcommand is None:
        raise typer.Exit(_serve_node(name, directory, config))


@app.command()
def join(
    context: typer.Context,
    endpoint: Annotated[str, typer.Argument(metavar="tcp://HOST:PORT", help="Where the controller listens.")],
    token_file: Annotated[
        str, typer.Option("--token-file", metavar="FILE", help="Holds the token (else standard input).")
    ] = "",
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the node (this host's).")] = "",
    address: Annotated[
        str, typer.Option("--address", metavar="HOST", help="How other nodes reach this one (as the controller does).")
    ] = "",
    login: Annotated[bool, typer.Option("--login", help="Refuse a token that is not for a login node.")] = False,
    step_listen: Annotated[
        str,
        typer.Option("--step-listen", metavar="tcp://ADDRESS:PORT", help="For gqrun of other hosts (tcp://*:7134)."),
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Join even if this host is already a node.")] = False,
    start: Annotated[bool, typer.Option("--start", help="Start gqnode, now and at every boot.")] = False,
) -> None:
    """This host becomes a node of a cluster, as root, with a token of `gqctl token create`.

    The token is read from a file or from standard input.  Writes gq.toml and the node's keys.
    """
    from gqnode.admin.join import Wish

    wish = Wish(
        endpoint=endpoint,
        name=name or context.obj[0],
        address=address,
        step_listen=step_listen,
        is_login=login,
        is_anew=force,
    )
    _join(context, wish, token_file, start)


def _join(context: typer.Context, wish: Wish, token_file: str, is_start: bool) -> None:
    from gq.connection.locate import SYSTEM_CONFIG, system_location
    from gq.errors import UsageError
    from gq.host import job_tmp, service
    from gqnode.admin import join as host

    _, directory, config = context.obj
    if directory:
        raise UsageError("contradiction", "no other host can join a private cluster", "leave out --dir")
    host.check_root()
    location = system_location(config or SYSTEM_CONFIG)
    token, warning = host.read_token(token_file)
    if warning:
        typer.echo(f"warning: {warning}", err=True)
    had_settings = Path(location.config_path).exists()
    joined, written = host.join(location, wish, token)
    node = written.node
    if not node.login and not node.private_tmp:
        typer.echo(f"warning: {job_tmp.shared(location.state_dir)}", err=True)
    kind = "login node" if node.login else "node"
    if had_settings:
        typer.echo(f"the old {location.config_path} is saved as {location.config_path}.old", err=True)
    if written.dropped:
        typer.echo(f"warning: the new file lacks: {', '.join(written.dropped)}", err=True)
    typer.echo(f"{kind} {joined.node} of cluster {joined.cluster}: {location.config_path}, {location.keys_dir}")
    if is_start:
        log = service.start(
            service.NODE, location, lambda: host.is_part_of_cluster(location, joined.node), wish.is_anew
        )
        typer.echo(f"gqnode runs; its log: {log}" if log else "gqnode is already running")
    else:
        typer.echo("next:\n  gqnode start")
        typer.echo("or, where systemd runs, now and at every boot:\n  gq install-service --node --start")


@app.command()
def leave(
    context: typer.Context,
    force: Annotated[bool, typer.Option("--force", help="End the jobs that run on this node.")] = False,
) -> None:
    """This host is no node any more: the counterpart of join, as root.

    Ends gqnode, and removes the node's keys and its table of gq.toml.  Where the controller does not hear root of this
    host, prints what its administrator has to do.
    """
    from gq.connection.locate import SYSTEM_CONFIG, system_location
    from gq.errors import UsageError
    from gqnode.admin import leave as host

    name, directory, config = context.obj
    if directory:
        raise UsageError("contradiction", "`gq down` stops a private cluster", "leave out --dir")
    for line in host.leave(system_location(config or SYSTEM_CONFIG), lambda config: _own_node(config, name), force):
        typer.echo(line)


@app.command()
def start(context: typer.Context) -> None:
    """Start gqnode in the background, or as a service where systemd runs."""
    _control(context, "start")


@app.command()
def stop(context: typer.Context) -> None:
    """Stop gqnode; its jobs go on, and the next one finds them again."""
    _control(context, "stop")


@app.command()
def restart(context: typer.Context) -> None:
    """Stop gqnode and start it again; its jobs go on."""
    _control(context, "restart")


def _control(context: typer.Context, verb: str) -> None:
    """In a private cluster without --name: all of its nodes."""
    from gq.config.config import load_config
    from gq.host import service

    name, directory, config_path = context.obj
    location = _location(directory, config_path)
    config = load_config(location)
    nodes = [node.name for node in config.nodes] if location.is_private and not name else [_own_node(config, name).name]
    for line in service.control(verb, service.NODE, location, nodes):
        typer.echo(line)


def _serve_node(name: str, directory: str, config: str) -> int:
    spawner = Spawner()
    try:
        spawner.start()  # by the time that the first job comes it is ready
        return _run(name, _location(directory, config), spawner)
    finally:
        spawner.close()


def _location(directory: str, config: str) -> Location:
    from gq.connection.locate import find_cluster, private_location, system_location

    if directory:
        return private_location(directory, os.environ)
    if config:
        return system_location(config)
    return find_cluster(os.environ)


def _run(name: str, location: Location, spawner: Spawner) -> int:
    from gq.config.config import load_config
    from gq.host.fd_limit import raise_descriptor_limit
    from gqnode.daemon.log import set_up_logging

    config = load_config(location)
    node = _own_node(config, name)
    set_up_logging(config.controller.log_level, config.controller.log_json)
    spool_root = _make_spool_root(location, node.name)
    locks = _hold_locks(location, spool_root, node.name)
    raise_descriptor_limit()  # jobs come from the spawner, which keeps the limit that it was started with
    try:
        return asyncio.run(_serve(_equip(location, config, node, str(spool_root), spawner)))
    finally:
        logging.getLogger("gqnode").info("node %s stops; its jobs continue", node.name)
        Path(location.lock_path(f"gqnode-{node.name}")).unlink(missing_ok=True)
        for lock in locks:
            os.close(lock)


def _own_node(config: Config, name: str) -> NodeSettings:
    """The node of this name; without one the only node, or the one that is called as this host is."""
    import socket

    from gq.errors import Refusal

    if name:
        return config.node(name)
    host = socket.gethostname().partition(".")[0]
    found = [node for node in config.nodes if len(config.nodes) == 1 or node.name == host]
    if len(found) == 1:
        return found[0]
    if not config.nodes:
        raise Refusal("no_node", f"{config.path} has no [[node]]", "`gqnode join` makes this host a node")
    names = ", ".join(node.name for node in config.nodes)
    raise Refusal("which_node", f"{config.path} has several nodes ({names}), none named `{host}`", "give --name")


def _make_spool_root(location: Location, name: str) -> Path:
    """In a shared cluster users may go through it to their script, and not look around."""
    from gq.connection.locate import is_run_for_all, make_own_directory, make_state_dir

    spool_root = Path(location.state_dir, "nodes", name)
    make_state_dir(location)
    for directory in (spool_root.parent, spool_root):
        make_own_directory(directory, 0o711 if is_run_for_all(location) else 0o700)
    return spool_root


def _hold_locks(location: Location, spool_root: Path, name: str) -> tuple[int, int]:
    """Held while this process lives: two daemons would start every job twice.

    One lock is beside the sockets, for where the state directory was removed, and made again, under a daemon.
    """
    from gq.connection.locate import make_run_dir
    from gq.errors import Refusal
    from gq.host.files import hold_lock

    def refusal(pid: str) -> Refusal:
        hint = "`gqnode stop` stops it" if not location.is_private else "`gq down` stops it and its jobs"
        return Refusal("node_runs", f"a gqnode for {name} is already running (process {pid})", hint)

    make_run_dir(location)
    return (
        hold_lock(location.lock_path(f"gqnode-{name}"), refusal),
        hold_lock(str(spool_root / LOCK_FILE), refusal),
    )


def _equip(location: Location, config: Config, node: NodeSettings, spool_root: str, spawner: Spawner) -> Equipment:
    """Find out what the machine offers; the notes say why it is not more."""
    from gqnode.accel.find import control_devices, guarded_devices, open_accelerators
    from gqnode.daemon.job_settings import check_private_tmp, read_confinement, read_user_rule
    from gqnode.daemon.loop import Equipment
    from gqnode.daemon.machine import cpus_to_pin
    from gqnode.isolation.choose import choose_isolation

    confinement = read_confinement(node)
    check_private_tmp(node, spool_root)
    accelerators = open_accelerators(node)
    gpus = accelerators.discover()
    isolation = choose_isolation(
        cluster=config.cluster,
        node=node.name,
        state_dir=location.state_dir,
        cpu_ids=cpus_to_pin(config, node),
        guarded=guarded_devices(gpus),
        control=control_devices(),
        asked=node.isolation,
        max_processes=node.max_processes,
    )
    for note in (*accelerators.notes, *isolation.notes):
        logging.getLogger("gqnode").info("%s", note)
    return Equipment(
        location=location,
        config=config,
        node=node,
        spool_root=spool_root,
        gpus=gpus,
        accelerators=accelerators,
        isolation=isolation,
        spawner=spawner,
        confinement=confinement,
        user_rule=read_user_rule(config, node),
    )


async def _serve(equipment: Equipment) -> int:
    from gq.host.daemons import END_JOBS_SIGNAL
    from gq.host.log import log_reopener
    from gqnode.daemon.loop import NodeDaemon

    daemon = NodeDaemon(equipment)
    gc.freeze()  # what is there stays, and is not looked through for garbage again and again
    gc.set_threshold(GARBAGE_LOOK)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.end)
    asyncio.get_running_loop().add_signal_handler(END_JOBS_SIGNAL, daemon.leave)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, log_reopener())
    return await daemon.run()


if __name__ == "__main__":
    main()
