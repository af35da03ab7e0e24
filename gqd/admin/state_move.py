"""Moves a controller's databases and keys from root's directory to that of `[controller] user`.

Every file moves by one rename, and gqd refuses to start while a database is left behind, so that an interrupted move
can simply be repeated.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from gq.connection.curve import server_key_path, server_public_path
from gq.connection.locate import Location
from gq.errors import Refusal
from gq.host.files import lock_holder, make_directory, sync_directory
from gqd.admin.system_user import acting_as, make_directories, state_files

_NODE_KEYS = "nodes"


def move_state(location: Location, own: Location, account: pwd.struct_passwd) -> None:
    """Move the state that gqd kept as root, if there is any.  `Refusal` while gqd runs.

    The keys of this host's nodes and a copy of the controller's public key stay, since gqnode uses them.
    """
    databases = state_files(location.state_dir)
    secret = server_key_path(location.keys_dir)
    make_directories(location, own, account)
    with acting_as(account):
        make_directory(Path(own.keys_dir), 0o700)
    if not databases and not secret.exists():
        return
    refuse_running(location)
    for path in databases:
        _refuse_second(path, Path(own.state_dir))
    _move_keys(location, own, account)
    for path in databases:
        _give(path, Path(own.state_dir), account)
    Path(location.state_dir, "gqd.pid").unlink(missing_ok=True)
    for directory in (own.state_dir, location.state_dir):
        sync_directory(Path(directory))


def refuse_running(location: Location) -> None:
    """`Refusal` while a gqd of this host runs."""
    locks = (location.lock_path("gqd"), f"{location.state_dir}/gq.db.lock")
    pid = next((pid for lock in locks if (pid := lock_holder(lock)) is not None), None)
    if pid is not None:
        hint = "run `gqd stop`, then this command again; jobs continue meanwhile"
        raise Refusal("gqd_runs", f"gqd runs (process {pid}), and its state cannot be moved", hint)


def _refuse_second(path: Path, directory: Path) -> None:
    """Refuse if both directories have this database; an interrupted move leaves no such pair."""
    if Path(directory, path.name).exists():
        raise Refusal(
            "other_state", f"{path} and {directory / path.name} both exist", f"move one of them away, with {path}-*"
        )


def _move_keys(location: Location, own: Location, account: pwd.struct_passwd) -> None:
    """Move the keys, the secret one last: while it is in the old place, the move is not complete."""
    public, secret = server_public_path(location.keys_dir), server_key_path(location.keys_dir)
    pinned = Path(location.keys_dir, _NODE_KEYS)
    if pinned.is_dir():
        with acting_as(account):
            make_directory(Path(own.keys_dir, _NODE_KEYS), 0o700)
        for path in sorted(pinned.glob("*.pub")):
            _give(path, Path(own.keys_dir, _NODE_KEYS), account)
    if public.exists():
        text = public.read_bytes()
        with acting_as(account):
            Path(own.keys_dir, public.name).write_bytes(text)
    if secret.exists():
        _give(secret, Path(own.keys_dir), account)


def _give(path: Path, directory: Path, account: pwd.struct_passwd) -> None:
    """Give a file to the user and move it; only root can write to its directory, so no other user can replace it."""
    os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)
    path.replace(directory / path.name)
