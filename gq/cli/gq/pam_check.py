"""gq pam-check: what pam_exec asks when somebody logs in to a node: may they, and where does the session belong?

In the account phase a user passes who has a job on this node; root and administrators always do.  In the session phase
the session's process goes into the control groups of the user's newest job here, so that the session is limited as the
job is and ends with it.  It asks the node daemon of this host, and nobody else: a controller that is away locks nobody
out.  See gq-pam(8).
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Iterable
from pathlib import Path

import zmq

from gq.cli.framework.command import Command
from gq.cli.framework.output import write_line
from gq.config.config import load_config
from gq.connection.locate import SYSTEM_CONFIG, Location, system_location
from gq.errors import GqError, ProtocolError, Refusal, UsageError
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire import step as wire

_ANSWER_S = 5.0
ROOT_UID = 0


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq pam-check` takes no operand, not `{arguments.operands[0]}`")
    phase = os.environ.get("PAM_TYPE", "")
    user = _user(os.environ.get("PAM_USER", ""))
    location = system_location(os.environ.get("GQ_CONFIG") or SYSTEM_CONFIG)
    match phase:
        case "account":
            return _admit(location, user, arguments.words("allow"))
        case "open_session":
            return _adopt(location, user, os.getppid())
        case "close_session":
            return 0
        case _:
            raise UsageError(
                "bad_phase",
                f"PAM_TYPE is `{phase}`; only the account and session phases are supported",
                "call gq pam-check from pam_exec.so in /etc/pam.d; see gq-pam(8)",
            )


def _user(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Refusal("unknown_user", f"user `{name}` (PAM_USER) does not exist on this host") from None


# ── may they ──────────────────────────────────────────────────────────────────────────────────────────────────


def _admit(location: Location, user: pwd.struct_passwd, allowed: tuple[str, ...]) -> int:
    if user.pw_uid == ROOT_UID or _is_named(user, (*allowed, *_administrators(location))):
        return 0
    try:
        cells = find_cells(location, user.pw_uid)
    except GqError as error:
        write_line(f"You cannot log in here: {error.message}.")
        return 1
    if not cells:
        write_line(f"You cannot log in here: {user.pw_name} has no job on {os.uname().nodename}.")
        write_line("Use `gqsub` or `gqalloc` to get a node, and `gq ssh JOB` on a login host to enter a job.")
        return 1
    return 0


def _administrators(location: Location) -> tuple[str, ...]:
    """Return the administrators of this host's gq.toml; none if it cannot be read, so nobody gets in by that."""
    try:
        return load_config(location).access.administrators
    except GqError:
        return ()


def _is_named(user: pwd.struct_passwd, names: Iterable[str]) -> bool:
    """Whether the list names the user, or a group of the user as ``%name``."""
    wanted = set(names)
    return user.pw_name in wanted or any(f"%{group}" in wanted for group in _groups(user))


def _groups(user: pwd.struct_passwd) -> list[str]:
    found = []
    for gid in os.getgrouplist(user.pw_name, user.pw_gid):
        try:
            found.append(grp.getgrgid(gid).gr_name)
        except KeyError:  # a number without a name
            continue
    return found


# ── where the session belongs ─────────────────────────────────────────────────────────────────────────────────


def _adopt(location: Location, user: pwd.struct_passwd, pid: int) -> int:
    """Put the process that opens the session, and so all that it will start, into the newest job's cell."""
    if user.pw_uid == ROOT_UID:
        return 0
    try:
        cells = find_cells(location, user.pw_uid)
    except GqError:
        cells = ()  # who was let in without a job (an administrator) has no cell either
    for cell in cells[-1:]:
        for path in cell.procs_files:
            _enter(Path(path), pid)
    return 0


def _enter(procs: Path, pid: int) -> None:
    try:
        procs.write_text(f"{pid}\n")
    except OSError as error:
        message = f"process {pid} cannot be moved into {procs.parent}: {error.strerror}"
        raise Refusal("not_adopted", message, "let pam_exec run it as root, without `seteuid`") from error


# ── the node daemon of this host ──────────────────────────────────────────────────────────────────────────────


def find_cells(location: Location, uid: int) -> tuple[wire.CellPlace, ...]:
    """Return the user's cells of all node daemons of this host, oldest first.

    Raises `Refusal` if there is none, or if a daemon does not answer.
    """
    sockets = sorted(Path(location.run_dir).glob("step-*.sock"))
    if not sockets:
        raise Refusal("no_node", f"no node daemon runs on {os.uname().nodename}", "systemctl start gqnode")
    found = [cell for path in sockets for cell in cells_at(str(path), uid)]
    return tuple(sorted(found, key=lambda cell: cell.attempt_id))


def cells_at(path: str, uid: int) -> tuple[wire.CellPlace, ...]:
    """The cells of user `uid`, by the word of the node daemon that has this socket."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    link = context.socket(zmq.DEALER)
    try:
        link.connect(f"ipc://{path}")
        link.send(wire.TO_DOOR.encode(wire.FindCells(uid=uid)))
        return _answer(link, path)
    finally:
        link.close(linger=0)
        context.destroy(linger=0)


def _answer(link: zmq.Socket[bytes], path: str) -> tuple[wire.CellPlace, ...]:
    deadline = time.monotonic() + _ANSWER_S
    if not link.poll(int((deadline - time.monotonic()) * 1000)):
        raise Refusal("node_silent", f"the node daemon at {path} does not answer", "systemctl status gqnode")
    match wire.FROM_DOOR.decode(link.recv()):
        case wire.Cells(cells=cells):
            return cells
        case wire.StepRefused() as refused:
            raise Refusal(refused.code, refused.message)
        case other:
            raise ProtocolError("unexpected_answer", f"the node daemon answered with {type(other).__name__}")


COMMAND = Command(
    name="gq pam-check",
    summary="For pam_exec: let only users with a job log in, and put their session in the job's cell.",
    options=(
        Option(name="allow", metavar="NAMES", help="Let these users, and groups as %name, log in without a job."),
    ),
    run=run,
    details=(
        "Reads PAM_USER and PAM_TYPE. Account phase: returns 0 if the user has a job on this node; otherwise prints "
        "the reason and returns 1. Session phase: moves the process that opened the session into the control "
        "groups of the user's newest job. See gq-pam(8)."
    ),
)
