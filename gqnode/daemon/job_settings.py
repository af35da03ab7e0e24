"""Reads and checks the settings of gq.toml that apply to every process of a job on this node.

A setting that this machine or this daemon cannot apply is an error before the daemon starts to serve.
"""

from __future__ import annotations

import os
from pathlib import Path

from gq.config.config import Config, NodeSettings
from gq.errors import UsageError
from gq.host import job_tmp
from gqnode.control.account import UserRule
from gqnode.daemon.rlimits import parse_rlimits
from gqnode.shepherd import pam, seccomp
from gqnode.shepherd.specs import Confinement

DEFAULT_MIN_UID = 1000
LOGIN_DEFS = Path("/etc/login.defs")


def read_user_rule(config: Config, node: NodeSettings) -> UserRule:
    """Read which users' jobs run here; ``min_uid`` defaults to the machine's first uid for people."""
    return UserRule(
        node=node.name,
        min_uid=node.min_uid or system_min_uid(LOGIN_DEFS),
        allowed_users=node.allowed_users,
        root_jobs=config.access.root_jobs,
    )


def system_min_uid(login_defs: Path) -> int:
    """Return ``UID_MIN`` of login.defs(5), or 1000 if the file does not set it."""
    try:
        lines = login_defs.read_text(errors="replace").splitlines()
    except OSError:
        return DEFAULT_MIN_UID
    values = [words[1] for words in map(str.split, lines) if len(words) == 2 and words[0] == "UID_MIN"]
    return max(1, int(values[-1])) if values and values[-1].isdecimal() else DEFAULT_MIN_UID


def read_confinement(node: NodeSettings) -> Confinement:
    """Read the confinement; `UsageError` names the setting, the error, and the way out."""
    if node.pam:
        _check_pam(node)
    if node.seccomp:
        _check_seccomp(node)
    return Confinement(
        rlimits=parse_rlimits(node.rlimits, f"node.{node.name}.rlimits"),
        pam_service=node.pam,
        no_new_privs=node.no_new_privs,
        seccomp=node.seccomp,
    )


def check_private_tmp(node: NodeSettings, spool_root: str) -> None:
    """Raise `UsageError` if ``private_tmp`` is set and this host cannot provide it."""
    if not node.private_tmp:
        return
    key = f"node.{node.name}.private_tmp"
    if why := job_tmp.why_not(spool_root):
        raise UsageError("bad_config", f"{key}: {why}", "with private_tmp = false jobs share the host's directories")


def _check_seccomp(node: NodeSettings) -> None:
    key = f"node.{node.name}.seccomp"
    if not node.no_new_privs:
        why = "the kernel filters system calls only of processes that cannot gain rights"
        raise UsageError("bad_config", f"{key}: {why}", "set no_new_privs = true, too")
    if why := seccomp.why_not():
        raise UsageError("bad_config", f"{key}: {why}", "with seccomp = false jobs may make all system calls")


def _check_pam(node: NodeSettings) -> None:
    key = f"node.{node.name}.pam"
    if os.geteuid() != 0:
        raise UsageError(
            "bad_config", f"{key}: only root can open sessions for other users", "leave it out, and use rlimits"
        )
    try:
        pam.check_service(node.pam)
    except pam.PamError as error:
        raise UsageError(
            "bad_config", f"{key}: {error}", "install the service, or leave out pam and use rlimits"
        ) from None
