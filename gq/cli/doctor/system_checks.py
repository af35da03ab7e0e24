"""The checks of `gq doctor` on a host of the system's cluster: its files, its daemons, and the caller's identity.

Checks change nothing.  A fix is a command where possible; a command for another host begins with ``on HOST:``.
"""

from __future__ import annotations

import grp
import os
import pwd
import resource
import shlex
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from gq.cli.doctor.private_checks import CheckResult, Verdict, last_error, recent_errors
from gq.cli.doctor.system import Host, join_command, restart_command, start_command, unit_of
from gq.cli.framework.output import local_time, plural
from gq.connection.curve import node_key_path, server_key_path, server_public_path
from gq.connection.locate import ROOT_USER
from gq.errors import ProtocolError, Refusal, UsageError
from gq.host.sendmail import WAY_OUT, rights_needed
from gq.host.service import CONTROLLER, LOG_DIR, NODE
from gq.version import VERSION

Check = Callable[[Host], Iterator[CheckResult]]

_SKEW_WARN_S = 2.0
_SKEW_FAIL_S = 30.0
_OPEN_FILES = 4096
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOG_SHOWN = 3


def role(host: Host) -> Iterator[CheckResult]:
    """Report the role of this host and, for a caller without root's rights, that some checks are skipped."""
    if host.config is None:
        return
    if host.is_outside:
        message = f"{host.name} is outside the cluster, and reaches {host.config.client.controller} with a user's key"
        yield CheckResult("role", Verdict.OK, message)
        return
    if not host.is_controller and host.node is None:
        message = f"{host.name} is neither the controller nor a node that has joined"
        yield CheckResult("role", Verdict.FAIL, message, join_command(host))
        return
    yield CheckResult("role", Verdict.OK, f"{host.name} is {host.roles} of cluster {host.config.cluster}")
    if not host.is_root:
        yield CheckResult(
            "role", Verdict.WARN, "keys, and what only root may see, were not looked at", "sudo gq doctor"
        )


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def configuration(host: Host) -> Iterator[CheckResult]:
    path = host.location.config_path
    if isinstance(host.config_error, UsageError):
        yield CheckResult("config", Verdict.FAIL, host.config_error.message, host.config_error.hint or f"edit {path}")
    elif host.config_error is not None:
        is_there = Path(path).exists()
        fix = f"chmod 644 {path}" if is_there else "gqd init --start, or on a node: gqnode join"
        yield CheckResult("config", Verdict.FAIL, host.config_error.message, fix)
    elif host.config is not None:
        yield CheckResult("config", Verdict.OK, f"{path}: {plural(len(host.config.nodes), 'node')}")


def configuration_is_safe(host: Host) -> Iterator[CheckResult]:
    """Check that only root can write the configuration, as the daemons require."""
    path = Path(host.location.config_path)
    for one in (path, path.parent):
        if not one.exists():
            continue
        found = one.stat()
        if found.st_uid != 0:
            yield CheckResult(
                "config", Verdict.FAIL, f"{one} belongs to {_user(found.st_uid)}", f"chown root:root {one}"
            )
        if found.st_mode & _OTHERS_WRITE:
            fix = f"chmod {'755' if one.is_dir() else '644'} {one}"
            yield CheckResult("config", Verdict.FAIL, f"others than root may write to {one}", fix)


def directories(host: Host) -> Iterator[CheckResult]:
    """Users' processes pass through the state and reach the sockets; only root writes there."""
    location = host.location
    wrong = 0
    for path, mode in ((location.state_dir, 0o711), (location.run_dir, 0o755), (f"{location.state_dir}/nodes", 0o711)):
        if not _may_see(path):
            continue
        found = Path(path).stat()
        if found.st_uid != 0:
            wrong += 1
            yield CheckResult(
                "files", Verdict.FAIL, f"{path} belongs to {_user(found.st_uid)}", f"chown root:root {path}"
            )
        if found.st_mode & _OTHERS_WRITE:
            wrong += 1
            yield CheckResult("files", Verdict.FAIL, f"others than root may write to {path}", f"chmod {mode:o} {path}")
        elif not found.st_mode & stat.S_IXOTH:
            wrong += 1
            yield CheckResult("files", Verdict.FAIL, f"users cannot pass through {path}", f"chmod {mode:o} {path}")
    if not wrong:
        yield CheckResult(
            "files", Verdict.OK, f"{location.state_dir} and {location.run_dir} have the modes that they need"
        )


def controller_user(host: Host) -> Iterator[CheckResult]:
    """gqd has a user of its own, which owns its state."""
    if not host.is_controller or host.config is None:
        return
    user, path = host.config.controller.user, Path(host.controller.state_dir)
    if not user:
        fix = "gqd stop && gqd init --user=gq --start"
        yield CheckResult("user", Verdict.WARN, "gqd runs as root: gq.toml gives it no user", fix)
    elif user != ROOT_USER and not _is_known(user):
        yield CheckResult("user", Verdict.FAIL, f"this host has no user {user}, which gqd is to run as", "gqd init")
    elif user != ROOT_USER and path.exists() and path.stat().st_uid != pwd.getpwnam(user).pw_uid:
        message = f"{path} belongs to {_user(path.stat().st_uid)}, and gqd runs as {user}"
        yield CheckResult("user", Verdict.FAIL, message, f"gqd stop; chown -Rh {user}: {path}; gqd start")
    else:
        yield CheckResult("user", Verdict.OK, f"gqd runs as {user}")


def mail(host: Host) -> Iterator[CheckResult]:
    """The mail program works for gqd, which may not gain rights under its unit, nor as its user."""
    if not host.is_controller or host.config is None or not host.config.notify.mail.startswith("/"):
        return
    program, is_shut_in = host.config.notify.mail, host.controller.is_of_controller or unit_of(CONTROLLER) is not None
    if not os.access(program, os.X_OK):
        yield CheckResult("mail", Verdict.FAIL, f"`notify.mail`: {program} is no program", "install one, or change it")
    elif is_shut_in and (why := rights_needed(program)):
        yield CheckResult("mail", Verdict.FAIL, f"`notify.mail`: {program} cannot be used: {why}", WAY_OUT)
    else:
        yield CheckResult("mail", Verdict.OK, f"by {program}")


def secrets(host: Host) -> Iterator[CheckResult]:
    """Scripts, environments and keys are nobody's but root's, and those of the controller its user's."""
    found: list[Path] = []
    for location in dict.fromkeys((host.location, host.controller)):
        state_dir, keys_dir = Path(location.state_dir), Path(location.keys_dir)
        if location.is_of_controller and not host.is_root:
            continue  # nobody else may look
        if host.is_root and keys_dir.exists() and keys_dir.stat().st_mode & 0o077:
            yield CheckResult("secrets", Verdict.FAIL, f"others may enter {keys_dir}", f"chmod 700 {keys_dir}")
        found += [state_dir / "gq.db", state_dir / "blobs.db", *state_dir.glob("*.db-wal")]
        found += sorted(keys_dir.glob("**/*.key")) if host.is_root else []
    for path in found:
        if _may_see(str(path)) and path.stat().st_mode & 0o077:
            yield CheckResult("secrets", Verdict.FAIL, f"others may read {path}", f"chmod 600 {path}")


def keys(host: Host) -> Iterator[CheckResult]:
    """Check that a daemon that uses the network has its own keys and the controller's public key."""
    if not host.is_root or host.config is None:
        return
    keys_dir = host.location.keys_dir
    wanted: list[tuple[Path, str]] = []
    if host.is_controller and host.config.controller.listen is not None:
        keys_dir = host.controller.keys_dir
        wanted.append((server_key_path(keys_dir), "gqd keygen"))
    if host.node is not None and host.is_remote_node:
        again = join_command(host)
        own_dir = host.location.keys_dir
        wanted += [(node_key_path(own_dir, host.node.name), again), (server_public_path(own_dir), again)]
    missing = [(path, fix) for path, fix in wanted if not path.exists()]
    for path, fix in missing:
        yield CheckResult("keys", Verdict.FAIL, f"{path} is missing: the other side cannot be spoken to", fix)
    if wanted and not missing:
        yield CheckResult("keys", Verdict.OK, f"in {keys_dir}")


def _may_see(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:
        return False


def _user(uid: int) -> str:
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"uid {uid}"


# ── daemons ───────────────────────────────────────────────────────────────────────────────────────────────────


def running(host: Host) -> Iterator[CheckResult]:
    wanted = [CONTROLLER] if host.is_controller else []
    wanted += [NODE] if host.node is not None else []
    for program in wanted:
        found = host.process(program)
        if found is None and (error := last_error(Path(LOG_DIR, f"{program}.log"))):
            fix = f"{error[1] or f'see {LOG_DIR}/{program}.log'}; then {start_command(host, program)}"
            yield CheckResult(program, Verdict.FAIL, f"{error[0]} ({program} does not run)", fix)
        elif found is None:
            yield CheckResult(program, Verdict.FAIL, f"{program} does not run", start_command(host, program))
        else:
            since = local_time(found.since)
            yield CheckResult(program, Verdict.OK, f"runs as process {found.pid} since {since}")
            yield from _open_files(host, program, found.pid)


def _open_files(host: Host, program: str, pid: int) -> Iterator[CheckResult]:
    try:
        limit, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    except OSError:  # not ours to ask
        return
    if limit < _OPEN_FILES:
        message = f"{program} may open only {limit} files; each client, node and job needs some"
        yield CheckResult(program, Verdict.WARN, message, f"prlimit --pid {pid} --nofile=65536:65536")


def unit(host: Host) -> Iterator[CheckResult]:
    """A node's unit must leave the control groups of jobs to it."""
    path = unit_of(NODE) if host.node is not None else None
    if path is None:
        return
    text = path.read_text(errors="replace")
    for setting, without in (("Delegate=yes", "systemd takes the jobs' control groups away"),
                             ("KillMode=process", "a restart of gqnode ends all jobs")):  # fmt: skip
        if setting not in text.splitlines():
            again = "systemctl daemon-reload && gqnode restart"
            fix = f"sed -i 's/^\\[Service\\]$/[Service]\\n{setting}/' {path} && {again}"
            yield CheckResult("unit", Verdict.FAIL, f"{path} has no {setting}: {without}", fix)


def answering(host: Host) -> Iterator[CheckResult]:
    """A command of this host gets an answer from the controller."""
    if host.identity is not None:
        took = f"{host.answer_took_s * 1000:.0f} ms"
        yield CheckResult("answer", Verdict.OK, f"the controller of {host.identity.cluster} answers in {took}")
        return
    error = host.answer_error
    if isinstance(error, Refusal) and error.code not in ("not_served", "wrong_version", "unknown_request"):
        yield CheckResult("answer", Verdict.OK, "the controller answers")  # and `identity` tells what
        return
    program = CONTROLLER if host.is_controller else NODE
    if isinstance(error, ProtocolError) or (isinstance(error, Refusal) and error.code != "not_served"):
        fix = restart_command(host, program)
        yield CheckResult(
            "answer", Verdict.FAIL, f"daemon and commands are of different releases: {error.message}", fix
        )
    elif host.is_outside:
        message = error.message if error is not None else "no answer"
        yield CheckResult("answer", Verdict.FAIL, message, "on the controller: gq doctor")
    elif host.process(program) is None:
        has_told = last_error(Path(LOG_DIR, f"{program}.log")) is not None
        fix = f"see the finding {program}" if has_told else start_command(host, program)
        yield CheckResult("answer", Verdict.FAIL, f"no command gets an answer: {program} does not run", fix)
    elif not _may_see(host.location.client_socket):
        message = f"{program} runs, but its socket {host.location.client_socket} is gone"
        yield CheckResult("answer", Verdict.FAIL, message, restart_command(host, program))
    else:
        message = error.message if error is not None else "no answer"
        fix = "see the findings about the network" if host.is_remote_node else restart_command(host, program)
        yield CheckResult("answer", Verdict.FAIL, message, fix)


def versions(host: Host) -> Iterator[CheckResult]:
    """All of a cluster is of one release."""
    if host.answer is None:
        return
    of_controller = host.answer.info.gq_version
    odd = False
    if of_controller != VERSION:
        odd = True
        where = restart_command(host, CONTROLLER) if host.is_controller else "install the release of the controller"
        yield CheckResult("version", Verdict.FAIL, f"gqd is {of_controller}, the commands here are {VERSION}", where)
    for node in host.answer.nodes.values():
        is_own = host.node is not None and node.node == host.node.name
        if node.gq_version not in ("", of_controller) and (is_own or host.is_controller):
            odd = True
            elsewhere = f"on {node.node}: install gq {of_controller}, then gqnode restart"
            fix = restart_command(host, NODE) if is_own else elsewhere
            message = f"gqnode of {node.node} is {node.gq_version}, gqd is {of_controller}"
            yield CheckResult("version", Verdict.FAIL, message, fix)
    if not odd:
        yield CheckResult("version", Verdict.OK, f"all of release {VERSION}")


def clock(host: Host) -> Iterator[CheckResult]:
    """The controller's against ours, as it was in the middle of the question."""
    if host.identity is None:
        return
    ahead_s = host.asked_at - host.identity.now
    uncertain_s = host.answer_took_s / 2
    if abs(ahead_s) - uncertain_s <= _SKEW_WARN_S:
        yield CheckResult("clock", Verdict.OK, time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(host.asked_at)))
        return
    verdict = Verdict.FAIL if abs(ahead_s) > _SKEW_FAIL_S else Verdict.WARN
    direction = "ahead of" if ahead_s > 0 else "behind"
    message = f"this clock is {abs(ahead_s):.0f} s {direction} the controller's"
    yield CheckResult("clock", verdict, message, f"date -s @{host.identity.now + time.time() - host.asked_at:.0f}")


def privileged_names(host: Host) -> Iterator[CheckResult]:
    """Check that all users and groups named in [access] exist, so that a misspelt name is found."""
    if host.config is None or not host.is_controller:
        return
    for setting in ("administrators", "operators"):
        for name in getattr(host.config.access, setting):
            if not _is_known(name):
                kind = "group" if name.startswith("%") else "user"
                message = f"`{name}` in [access] {setting} is no {kind} of this host"
                fix = f"sed -i {shlex.quote(_without(name, setting))} {host.location.config_path}"
                yield CheckResult("access", Verdict.FAIL, message, f"{fix} && {restart_command(host, CONTROLLER)}")


def _is_known(name: str) -> bool:
    try:
        grp.getgrnam(name[1:]) if name.startswith("%") else pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _without(name: str, setting: str) -> str:
    """A program of sed that takes a name out of a list on one line."""
    quoted = f'"{name}"'
    line = f"/^ *{setting} *=/"
    return f"{line}s/{quoted} *, *//; {line}s/, *{quoted}//; {line}s/{quoted}//"


def logs(host: Host) -> Iterator[CheckResult]:
    """Errors that daemons wrote lately, where they log into files."""
    wanted = [CONTROLLER] if host.is_controller else []
    wanted += [NODE] if host.node is not None else []
    for program in wanted:
        path = Path(LOG_DIR, f"{program}.log")
        process = host.process(program)
        error = last_error(path) if process is None else None
        told = f"error: {error[0]}" if error is not None else None  # by `running`
        lines = recent_errors(path, process.pid if process is not None else None)
        for line in [line for line in lines if line != told][-_LOG_SHOWN:]:
            yield CheckResult("logs", Verdict.WARN, f"{program}: {line}", f"see {path}")
