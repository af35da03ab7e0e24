"""The system user of gqd: creates the account, and changes to it before gqd opens anything.

Owns the change of identity.  gqd is started as root, by systemd or by hand; `prepare` creates the two directories that
belong to the user, and links to its sockets where commands look for them; `become` gives up root for good.  With
``[controller] user = "root"`` gqd stays root.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gq.config.config import Config
from gq.connection.locate import (
    CLIENT_SOCKET,
    NODE_SOCKET,
    ROOT_USER,
    Location,
    controller_location,
    is_run_for_all,
    make_own_directory,
    make_run_dir,
    make_state_dir,
    point_link,
)
from gq.errors import Refusal, UsageError
from gq.host.service import LOG_DIR
from gqd.shell.log import LOG

DEFAULT_USER = "gq"
_MAX_SYSTEM_UID = 999
_PR_SET_NO_NEW_PRIVS = 38


def prepare(location: Location, config: Config) -> Location:
    """Create gqd's directories of state and sockets; returns their location.

    They belong to the user in gq.toml; without one, and in a private cluster, to this process's user.
    """
    user = config.controller.user
    if location.is_private and user:
        hint = "leave `user` out of [controller]"
        raise UsageError("bad_config", f"{config.path}: a private cluster runs as its owner, not as {user}", hint)
    own = controller_location(location, user)
    if own is location:
        if not user and is_run_for_all(location):
            LOG.warning("gqd runs as root: `gqd stop && gqd init --user=gq --start` gives it a user of its own")
    else:
        account = account_of(user)
        _refuse_other_user(config, account)
        _refuse_old_state(location)
        if os.geteuid() == 0:
            try:
                make_directories(location, own, account)
                _give_log(account)
            except PermissionError as error:
                raise _cannot_become(account, error) from error
            return own
    make_state_dir(own)
    make_run_dir(own)
    return own


def become(user: str) -> None:
    """Change from root to this user, for good; programs that gqd runs later cannot gain privileges either."""
    account = account_of(user)
    if os.geteuid() == 0:
        _give_up_root(account)
    if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise Refusal("no_new_privs", "this kernel does not let gqd drop its privileges (PR_SET_NO_NEW_PRIVS)")


def _refuse_other_user(config: Config, account: pwd.struct_passwd) -> None:
    if os.geteuid() not in (0, account.pw_uid):
        raise Refusal(
            "other_user",
            f"gqd of {config.path} runs as {account.pw_name}, and this is uid {os.geteuid()}",
            "start it as root (it becomes that user), or as that user",
        )


def account_of(user: str) -> pwd.struct_passwd:
    """The account of `[controller] user`; `Refusal` if it does not exist or has uid 0."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        hint = "`gqd init` creates it; or name an account that exists"
        raise Refusal("unknown_user", f"[controller] user: this host has no user `{user}`", hint) from None
    if account.pw_uid == 0:
        hint = f'write user = "{ROOT_USER}" to run gqd as root'
        raise UsageError("bad_config", f"[controller] user: `{user}` has uid 0", hint)
    return account


def _refuse_old_state(location: Location) -> None:
    """Refuse to start while a queue is left in root's directory, since a new, empty one would replace it."""
    left = next(iter(state_files(location.state_dir)), None)
    if left is not None:
        hint = "`gqd init` moves it to the user of [controller] and keeps all jobs"
        raise Refusal("state_of_root", f"{left} is still in the directory that gqd used as root", hint)


def state_files(state_dir: str) -> list[Path]:
    """The database files in a directory, including SQLite's auxiliary files."""
    return sorted(path for path in Path(state_dir).glob("*.db*") if path.name.startswith(("gq.db", "blobs.db")))


def make_directories(location: Location, own: Location, account: pwd.struct_passwd) -> None:
    """Create, as root, the user's directories of state and sockets below root's, and links where commands look."""
    make_own_directory(Path(location.state_dir), 0o711)
    make_own_directory(Path(location.run_dir), 0o755)
    give_directory(Path(own.state_dir), account, 0o700)
    give_directory(Path(own.run_dir), account, 0o755)
    for name in (CLIENT_SOCKET, NODE_SOCKET):
        point_link(Path(location.run_dir, name), f"{Path(own.run_dir).name}/{name}")


def give_directory(path: Path, account: pwd.struct_passwd, mode: int) -> None:
    """Create a directory of the user below one that only root can write to."""
    path.mkdir(mode=mode, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid not in (0, account.pw_uid):
        raise Refusal("unsafe_directory", f"{path} is not a directory of {account.pw_name}", "move it away")
    if stat.S_IMODE(found.st_mode) != mode:
        path.chmod(mode)
    if found.st_uid != account.pw_uid:
        os.chown(path, account.pw_uid, account.pw_gid, follow_symlinks=False)


def _give_log(account: pwd.struct_passwd) -> None:
    """Give the user gqd's log file, if standard error is one, so that it can be reopened after a rotation."""
    found = os.fstat(2)
    path = Path("/proc/self/fd/2").resolve()
    if not stat.S_ISREG(found.st_mode) or str(path.parent) != LOG_DIR or found.st_uid == account.pw_uid:
        return
    os.fchown(2, account.pw_uid, account.pw_gid)
    os.chown(path.parent, 0, account.pw_gid)
    path.parent.chmod(0o710)


def _give_up_root(account: pwd.struct_passwd) -> None:
    try:
        os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
        os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
        os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    except OSError as error:
        raise _cannot_become(account, error) from error
    os.environ.update(USER=account.pw_name, LOGNAME=account.pw_name, HOME=account.pw_dir)


def _cannot_become(account: pwd.struct_passwd, error: OSError) -> Refusal:
    hint = "its unit must leave it CAP_SETUID, CAP_SETGID and CAP_CHOWN: `gq install-service --controller` writes it"
    return Refusal("cannot_become", f"gqd cannot become user {account.pw_name}: {error.strerror}", hint)


@contextmanager
def acting_as(account: pwd.struct_passwd | None) -> Iterator[None]:
    """Act as the user within the block, as root and with a single thread; account None: act as root."""
    if account is None:
        yield
        return
    groups = os.getgroups()
    os.setgroups([account.pw_gid])
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


# ── creating the user ─────────────────────────────────────────────────────────────────────────────────────────────


def ensure_user(user: str, home: Path) -> pwd.struct_passwd:
    """The account of this name, created as a system account if missing."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        _add_user(user, home)
        return account_of(user)
    if user == DEFAULT_USER and account.pw_uid > _MAX_SYSTEM_UID:
        raise Refusal(
            "not_system_user",
            f"user {user} exists and is not a system account (uid {account.pw_uid})",
            "name another user for gqd with --user",
        )
    return account_of(user)


def _add_user(user: str, home: Path) -> None:
    """Add the user by useradd(8), or by adduser of BusyBox."""
    names = f"a system user `{user}` for gqd"
    if program := shutil.which("useradd"):
        words = [
            program,
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            str(home),
            "--shell",
            _no_shell(),
        ]
    elif program := shutil.which("adduser"):
        words = [program, "-S", "-D", "-H", "-h", str(home), "-s", _no_shell()]
    else:
        hint = "create one with the tools of this host, and name it with --user"
        raise Refusal("no_useradd", f"{names} cannot be created: this host has no useradd", hint)
    done = subprocess.run([*words, user], capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise Refusal(
            "no_user_made",
            f"{names} cannot be created: {Path(program).name} failed: {said[:200]}",
            "create one with the tools of this host, and name it with --user; --user=root runs gqd as root",
        )


def _no_shell() -> str:
    return next((path for path in ("/usr/sbin/nologin", "/sbin/nologin") if Path(path).exists()), "/bin/false")
