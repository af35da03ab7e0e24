"""``gqnode --name n1``: the daemon of one node.  Runs in the foreground and logs to standard error.

SIGTERM and SIGINT end the daemon and not the jobs: the next one finds them again.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gqnode.shell.spawn import Spawner

if TYPE_CHECKING:
    from gq.config import Config, NodeSettings
    from gq.locate import Location
    from gqnode.shell.loop import Equipment

LOCK_FILE = ".lock"

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def main() -> None:
    app(prog_name="gqnode")


def _show_version(wanted: bool) -> None:
    if wanted:
        from gq import __version__

        typer.echo(f"gqnode {__version__}")
        raise typer.Exit


@app.command()
def gqnode(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Which [[node]] of gq.toml this is.")],
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
        raise typer.BadParameter("give --dir or --config, not both")
    from gq.errors import GqError

    spawner = Spawner()
    try:
        spawner.start()  # by the time that the first job comes it is ready
        status = _run(name, _location(directory, config), spawner)
    except GqError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        status = error.exit_status
    finally:
        spawner.close()
    raise typer.Exit(status)


def _location(directory: str, config: str) -> Location:
    from gq.locate import find_cluster, private_location, system_location

    if directory:
        return private_location(directory, os.environ)
    if config:
        return system_location(config)
    return find_cluster(os.environ)


def _run(name: str, location: Location, spawner: Spawner) -> int:
    from gq.config import load_config
    from gqnode.shell.log import set_up_logging

    config = load_config(location)
    node = config.node(name)
    set_up_logging(config.controller.log_level, config.controller.log_json)
    spool_root = Path(location.state_dir, "nodes", name)
    lock = _lock(spool_root, name)
    try:
        return asyncio.run(_serve(_equip(location, config, node, str(spool_root), spawner)))
    finally:
        logging.getLogger("gqnode").info("node %s ends; its jobs go on", name)
        os.close(lock)


def _lock(spool_root: Path, name: str) -> int:
    """Held while this process lives: two daemons would start every job twice."""
    from gq.errors import Refusal

    spool_root.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(spool_root / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Refusal("node_runs", f"a gqnode for {name} runs already", "`gq status` shows what runs") from None
    return lock


def _equip(location: Location, config: Config, node: NodeSettings, spool_root: str, spawner: Spawner) -> Equipment:
    """Find out what the machine offers; the notes say why it is not more."""
    from gqnode.accel.find import guarded_devices, open_accelerators
    from gqnode.isolation.choose import choose_isolation
    from gqnode.shell.loop import Equipment
    from gqnode.shell.machine import cpus_to_pin

    accelerators = open_accelerators(node)
    gpus = accelerators.discover()
    isolation = choose_isolation(
        cluster=config.cluster,
        node=node.name,
        state_dir=location.state_dir,
        cpu_ids=cpus_to_pin(config, node),
        guarded=guarded_devices(gpus),
        asked=node.isolation,
    )
    for note in (*accelerators.notes, *isolation.notes):
        logging.getLogger("gqnode").info("%s", note)
    accelerators.close()
    return Equipment(
        location=location,
        config=config,
        node=node,
        spool_root=spool_root,
        gpus=gpus,
        isolation=isolation,
        spawner=spawner,
    )


async def _serve(equipment: Equipment) -> int:
    from gqnode.shell.loop import NodeDaemon

    daemon = NodeDaemon(equipment)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, daemon.end)
    return await daemon.run()


if __name__ == "__main__":
    main()
