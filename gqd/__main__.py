"""``gqd``: the controller, in the foreground; ``gqd keygen``: the keys of its tcp door."""

from __future__ import annotations

import os
from typing import Annotated, NoReturn

import typer

from gq import __version__
from gq.config import load_config
from gq.curve import make_keys, node_key_path, node_public_path, server_key_path, server_public_path
from gq.errors import GqError
from gq.locate import Location, find_cluster, private_location, system_location

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
    context.obj = (directory, config)
    if context.invoked_subcommand is None:
        raise typer.Exit(_serve(directory, config))


@app.command()
def keygen(
    context: typer.Context,
    node: Annotated[str, typer.Option("--node", metavar="NAME", help="Make the keys of this node instead.")] = "",
) -> None:
    """Make CURVE keys: the controller's, or with --node those of a node that may then join.

    The node needs its secret key and the controller's public key in its own keys directory.
    """
    try:
        keys_dir = _location(*context.obj).keys_dir
        if node:
            secret, public = node_key_path(keys_dir, node), node_public_path(keys_dir, node)
        else:
            secret, public = server_key_path(keys_dir), server_public_path(keys_dir)
        make_keys(secret, public)
    except GqError as error:
        _fail(error)
    typer.echo(secret)
    typer.echo(public)


def _serve(directory: str, config_path: str) -> int:
    from gqd.shell.daemon import run  # the heavy part: not for --help
    from gqd.shell.log import set_up_logging

    try:
        location = _location(directory, config_path)
        config = load_config(location)
    except GqError as error:
        _fail(error)
    set_up_logging(config.controller.log_level, config.controller.log_json)
    return run(location, config)


def _location(directory: str, config_path: str) -> Location:
    if directory:
        return private_location(directory, os.environ)
    if config_path:
        return system_location(config_path)
    return find_cluster(os.environ)


def _fail(error: GqError) -> NoReturn:
    typer.echo(f"error: {error}", err=True)
    raise typer.Exit(error.exit_status)


def main() -> None:
    app(prog_name="gqd")


if __name__ == "__main__":
    main()
