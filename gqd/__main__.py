"""``gqd``: the controller, in the foreground; ``gqd start``, ``stop``, ``restart``: the same in the background, or as a
service of systemd; ``gqd init``: a fresh host; ``gqd keygen``: the keys of its tcp door.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from gq import __version__
from gq.config.config import load_config
from gq.connection.curve import make_keys, node_key_path, node_public_path, server_key_path, server_public_path
from gq.connection.locate import (
    ROOT_UID,
    SYSTEM_CONFIG,
    Location,
    controller_location,
    find_cluster,
    private_location,
    system_location,
)
from gq.errors import UsageError
from gq.host.error_text import run_command_line

if TYPE_CHECKING:
    from gqd.admin.init import InitOptions

app = typer.Typer(add_completion=False, no_args_is_help=False, rich_markup_mode=None)

Directory = Annotated[str, typer.Option("--dir", metavar="DIR", help="Directory of a private cluster.")]
ConfigFile = Annotated[str, typer.Option("--config", metavar="FILE", help="Configuration of the system's cluster.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gqd {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def serve(
    context: typer.Context,
    directory: Directory = "",
    config: ConfigFile = "",
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """The controller of a cluster: keeps the queue, decides what runs where, and answers the commands.

    Runs in the foreground until SIGTERM or SIGINT, and logs to standard error.
    """
    if directory and config:
        raise UsageError("contradiction", "`--dir` and `--config` exclude each other", "give one of them")
    context.obj = (directory, config)
    if context.invoked_subcommand is None:
        raise typer.Exit(_serve(directory, config))


@app.command()
def init(
    context: typer.Context,
    start: Annotated[
        bool, typer.Option("--start", help="Start gqd, now and at every boot, and create a token.")
    ] = False,
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAME", help="Name of the cluster (gq).")] = "",
    listen: Annotated[
        str,
        typer.Option(
            "--listen", metavar="tcp://ADDRESS:PORT", help="Where nodes of other hosts connect (tcp://*:7133)."
        ),
    ] = "",
    address: Annotated[
        str, typer.Option("--address", metavar="HOST", help="How other hosts reach this one (its name).")
    ] = "",
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="Run jobs on this host, too, as this node.")] = "",
    user: Annotated[
        str, typer.Option("--user", metavar="NAME", help="System user that gqd runs as, created if missing (gq).")
    ] = "",
) -> None:
    """Set up this host as the controller of a cluster for all users, as root: gq.toml, keys, state directory.

    Replaces nothing.  Prints how other hosts join.
    """
    from gqd.admin.init import InitOptions

    _init(context, InitOptions(cluster=cluster, listen=listen, address=address, node=node, user=user), start)


def _init(context: typer.Context, options: InitOptions, is_start: bool) -> None:
    from gq.host import job_tmp
    from gqd.admin import init as host

    directory, config_path = context.obj
    if directory:
        raise UsageError(
            "contradiction", "`gqd init` does not create a private cluster", "use `gq up`, or leave out --dir"
        )
    location = system_location(config_path or SYSTEM_CONFIG)
    config, is_new = host.set_up(location, options)
    done = "is set up" if is_new else "was set up already"
    own = controller_location(location, config.controller.user)
    typer.echo(f"cluster {config.cluster} {done}: {location.config_path}, {own.state_dir}")
    if is_new and any(not node.private_tmp for node in config.nodes if node.name == options.node):
        typer.echo(f"warning: {job_tmp.shared(location.state_dir)}", err=True)
    token = None
    if is_start:
        started = host.start(location, host.own_node(config))
        token = started.token
        for name, log in (("gqd", started.gqd_log), ("gqnode", started.gqnode_log)):
            if log:
                typer.echo(f"{name} runs; its log: {log}")
    if config.controller.listen is not None:
        typer.echo(f"\n{host.what_next(config, token)}")


@app.command()
def keygen(
    context: typer.Context,
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="Create the keys of this node instead.")] = "",
) -> None:
    """Make CURVE keys: the controller's, or with --node those of a node that may then join.

    The node needs its secret key and the controller's public key in its own keys directory.
    """
    from gqd.admin.system_user import account_of, acting_as, make_directories

    location = _location(*context.obj)
    user = "" if location.is_private else load_config(location).controller.user
    own = controller_location(location, user)
    account = account_of(user) if own is not location and os.geteuid() == ROOT_UID else None
    if account is not None:
        make_directories(location, own, account)
    keys_dir = own.keys_dir
    if node:
        secret, public = node_key_path(keys_dir, node), node_public_path(keys_dir, node)
    else:
        secret, public = server_key_path(keys_dir), server_public_path(keys_dir)
    with acting_as(account):
        make_keys(secret, public)
    typer.echo(secret)
    typer.echo(public)


@app.command()
def start(context: typer.Context) -> None:
    """Start gqd in the background, or as a service where systemd runs, and wait until it answers."""
    _control(context, "start")


@app.command()
def stop(context: typer.Context) -> None:
    """Stop gqd; jobs go on."""
    _control(context, "stop")


@app.command()
def restart(context: typer.Context) -> None:
    """Stop gqd and start it again; jobs go on."""
    _control(context, "restart")


def _control(context: typer.Context, verb: str) -> None:
    from gq.host import service

    location = _location(*context.obj)
    if verb != "stop":
        load_config(location)  # one that is wrong is told before gqd is stopped
    for line in service.control(verb, service.CONTROLLER, location, ()):
        typer.echo(line)


def _serve(directory: str, config_path: str) -> int:
    from gqd.shell.daemon import run  # the heavy part: not for --help
    from gqd.shell.log import set_up_logging

    location = _location(directory, config_path)
    config = load_config(location)
    set_up_logging(config.controller.log_level, config.controller.log_json)
    return run(location, config)


def _location(directory: str, config_path: str) -> Location:
    if directory:
        return private_location(directory, os.environ)
    if config_path:
        return system_location(config_path)
    return find_cluster(os.environ)


def main() -> None:
    sys.exit(run_command_line(app, "gqd"))


if __name__ == "__main__":
    main()
