"""What gq.toml wants of every process of a job on this node, checked before the daemon serves anybody.

A setting that this machine or this daemon cannot fulfil is an error then: no job is less bound than its site believes.
"""

from __future__ import annotations

import os
from pathlib import Path

from gq.config import NodeSettings
from gq.errors import UsageError
from gqnode.shell import pam, private_tmp
from gqnode.shell.failure import CannotLaunch
from gqnode.shell.rlimits import parse_rlimits
from gqnode.shell.specs import Confinement


def read_confinement(node: NodeSettings) -> Confinement:
    """`UsageError` names the setting, what is wrong with it, and the way out."""
    if node.pam:
        _check_pam(node)
    return Confinement(
        rlimits=parse_rlimits(node.rlimits, f"node.{node.name}.rlimits"),
        pam_service=node.pam,
        no_new_privs=node.no_new_privs,
    )


def check_private_tmp(node: NodeSettings, spool_root: str) -> None:
    """Nothing to check where it is not wanted."""
    if not node.private_tmp:
        return
    key = f"node.{node.name}.private_tmp"
    if os.geteuid() != 0:
        raise UsageError("bad_config", f"{key}: only root can give jobs a /tmp of their own", "leave it out")
    for place in private_tmp.PLACES:
        if Path(spool_root).resolve().is_relative_to(place):
            raise UsageError(
                "bad_config", f"{key}: the spool {spool_root} is below {place}, where jobs would not see it",
                "leave it out, or keep the cluster's directory elsewhere",
            )  # fmt: skip
    try:
        private_tmp.try_out()
    except CannotLaunch as error:
        raise UsageError("bad_config", f"{key}: {error}", "leave it out where gqnode may not mount") from None


def _check_pam(node: NodeSettings) -> None:
    key = f"node.{node.name}.pam"
    if os.geteuid() != 0:
        raise UsageError("bad_config", f"{key}: only root can open sessions for others", "leave it out; use rlimits")
    try:
        pam.check_service(node.pam)
    except pam.PamError as error:
        raise UsageError("bad_config", f"{key}: {error}", "leave it out and use rlimits, or install it") from None
