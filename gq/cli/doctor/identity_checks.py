"""The checks of `gq doctor` on users: which user the controller sees, and which hosts it refused.

A user name must have the same uid on all hosts of a cluster; on a login host, all its users are checked.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from gq.cli.doctor.private_checks import CheckResult, Verdict
from gq.cli.doctor.system import Host
from gq.cli.framework.output import local_time
from gq.errors import Refusal
from gq.host.interpreter import isolated_python

_MAX_USERS = 16
_ASK_S = 4.0
_LOWEST_UID, _HIGHEST_UID = 1000, 60_000
"""Range of uids of people; other uids belong to programs."""
_NO_SHELLS = frozenset({"nologin", "false", "sync"})
_MISMATCH = r"user (\S+) has uid (\d+) .*and uid (\d+) on the controller"
_STRANGER = r"user (\S+) \(uid (\d+) .*\) is not known on the controller"
_ASK = """
import sys
from gq.connection.client import Client
from gq.errors import GqError
from gq.connection.locate import system_location
from gq.wire.client import WhoAmI
try:
    with Client(system_location(sys.argv[1]), timeout_s=3) as client:
        client.ask(WhoAmI())
except GqError as error:
    print(error.code, error.message, sep="\\n")
"""
_SHOWN = 5


def identity(host: Host) -> Iterator[CheckResult]:
    """Name and number of the caller are the same here and at the controller."""
    error = host.answer_error
    if host.identity is not None:
        who = host.identity
        yield CheckResult("identity", Verdict.OK, f"you are {who.user} (uid {who.uid}), {who.role}, to the controller")
    elif isinstance(error, Refusal) and error.code == "not_vouched":
        message = "the controller takes the word of a node that runs jobs only for users who have a job there"
        yield CheckResult("identity", Verdict.OK, message)
    elif isinstance(error, Refusal) and error.code in ("identity_mismatch", "unknown_user"):
        yield _mismatch(error.message)
    elif isinstance(error, Refusal) and error.code not in ("wrong_version", "unknown_request"):
        yield CheckResult("identity", Verdict.WARN, error.message, error.hint)


def vouching(host: Host) -> Iterator[CheckResult]:
    """Where users are who MUNGE says: munged answers here."""
    if host.config is None:
        return
    settings = next((one for one in (host.config.controller, host.config.client) if one.munge), None)
    if settings is None:
        return
    from gq.connection import munge  # only where a site has it

    try:
        munge.encode(munge.payload_of(""), settings.munge_socket)
    except Refusal as error:
        fix = "systemctl start munge" if error.code == "munge_down" else "install the package munge, and the site's key"
        yield CheckResult("munge", Verdict.FAIL, error.message, fix)
    else:
        yield CheckResult("munge", Verdict.OK, "munged answers")


def _mismatch(message: str) -> CheckResult:
    """Return a failed result with the command that gives the user the same uid on both hosts, if it is known."""
    if found := re.search(_MISMATCH, message):
        name, here, there = found.groups()
        fix = f"usermod -u {there} {name} && chown -R --from={here} {there} ~{name}"
        return CheckResult("identity", Verdict.FAIL, message, fix)
    if found := re.search(_STRANGER, message):
        fix = f"on the controller: useradd -u {found[2]} {found[1]}"
        return CheckResult("identity", Verdict.FAIL, message, fix)
    return CheckResult("identity", Verdict.FAIL, message, "give the user one name and one uid on all hosts")


def users(host: Host) -> Iterator[CheckResult]:
    """On a login host, for root: everybody who may log in here, asked as that user and all at once."""
    if not host.is_root or host.node is None or not host.node.login or host.identity is None:
        return
    asked = [(user, _ask_as(user, host.location.config_path)) for user in _people()]
    deadline = time.monotonic() + _ASK_S
    wrong = 0
    for _, process in asked:
        code, message = _answer(process, deadline)
        if code in ("identity_mismatch", "unknown_user"):
            wrong += 1
            yield _mismatch(message)
    if asked and not wrong:
        yield CheckResult("users", Verdict.OK, f"{len(asked)} users of this host are the same at the controller")


def _people() -> list[pwd.struct_passwd]:
    found = [
        user
        for user in pwd.getpwall()
        if _LOWEST_UID <= user.pw_uid < _HIGHEST_UID and Path(user.pw_shell).name not in _NO_SHELLS
    ]
    return found[:_MAX_USERS]


def _ask_as(user: pwd.struct_passwd, config_path: str) -> subprocess.Popen[str]:
    """A process of the user that asks who they are."""
    environ = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return subprocess.Popen(
        [*isolated_python(environ), "-c", _ASK, config_path],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        env=environ,
        user=user.pw_uid,
        group=user.pw_gid,
        extra_groups=[],
    )


def _answer(process: subprocess.Popen[str], deadline: float) -> tuple[str, str]:
    """(code, message) of a refusal; empty where there was none, or no answer in time."""
    try:
        text, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return "", ""
    code, _, message = text.strip().partition("\n")
    return code, message


def turned_away(host: Host) -> Iterator[CheckResult]:
    """On the controller: hosts and tokens that were refused within the last hour."""
    latest = {(entry.origin, entry.action): entry for entry in host.trail}
    for entry in list(latest.values())[-_SHOWN:]:
        detail = f": {entry.detail}" if entry.detail else ""
        message = f"{entry.origin or 'somebody'} was turned away at {local_time(entry.at)} ({entry.action}{detail})"
        fix = "if it belongs to the cluster: gqctl token create, and gqnode join there with the new token"
        yield CheckResult("refused", Verdict.WARN, message, fix)
    if host.trail_is_known and not latest:
        yield CheckResult("refused", Verdict.OK, "nobody was turned away within the last hour")
