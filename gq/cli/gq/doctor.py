"""gq doctor: check a cluster, or this host's part of one, and report what is wrong and how to fix it.

This module selects the cluster and runs the checks; they are in `gq.cli.doctor`: `private_checks` for a private
cluster, and `system_checks`, `identity_checks`, `network_checks` and `machine_checks` for a host of the system's
cluster.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gq.cli.doctor.private_checks import (
    CHECKS,
    CheckContext,
    CheckResult,
    Verdict,
    commands_on_path,
    partitions,
    python_version,
)
from gq.cli.doctor.system import ask_controller
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import chosen_cluster
from gq.cli.framework.output import plural, printable, write_json_list, write_line
from gq.cli.gq.status import SYSTEM
from gq.cli.gq.up import DIR, directory_of
from gq.config.config import Config, load_config
from gq.connection.locate import ROOT_UID, SYSTEM_CONFIG, Location, private_location, system_location
from gq.errors import GqError, Unreachable, UsageError
from gq.host.error_text import folded
from gq.request.getopt import Arguments

if TYPE_CHECKING:
    from gq.cli.doctor.system_checks import Check

NOWHERE = Location("", "", "", is_private=False)
QUESTIONS = 32
"""Number of checks of a host, for the help text, which loads none of them.  A test counts."""


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq doctor` takes no operand, not `{arguments.operands[0]}`")
    location = _location(arguments)
    if location is None:
        results = examine_bare_host()
    else:
        results = examine(location) if location.is_private else examine_host(location)
    if arguments.has("json"):
        write_json_list(
            [{"check": f.check, "verdict": f.verdict.value, "message": f.message, "mend": f.fix} for f in results]
        )
    else:
        _write(results)
    return 1 if any(result.verdict is Verdict.FAIL for result in results) else 0


def _location(arguments: Arguments) -> Location | None:
    """Find the cluster as every command does; None if there is none."""
    if arguments.has("system"):
        if arguments.has("dir"):
            raise UsageError("contradiction", "`--dir` and `--system` exclude each other", "give one of them")
        return system_location(os.environ.get("GQ_CONFIG") or SYSTEM_CONFIG)
    if arguments.has("dir"):
        return private_location(directory_of(arguments), os.environ)
    try:
        return chosen_cluster()
    except Unreachable:
        return None


def examine_bare_host() -> list[CheckResult]:
    """Run the checks that apply to a host without a configured cluster."""
    context = CheckContext(location=NOWHERE, config=None, config_error=None, answer=None, now=time.time())
    fix = "`gqd init --start` sets up a cluster for all users; `gqnode join` joins this host to a cluster"
    message = f"this host belongs to no cluster: {SYSTEM_CONFIG} does not exist"
    if os.geteuid() != ROOT_UID:
        message += ", and you have no private cluster"
        fix = f"`gq up` starts a private cluster; as root, {fix}"
    results = [result for check in (python_version, commands_on_path) for result in check(context)]
    return [*results, CheckResult("cluster", Verdict.FAIL, message, fix)]


# ── a private cluster ─────────────────────────────────────────────────────────────────────────────────────────


def examine(location: Location) -> list[CheckResult]:
    """Run all checks of a private cluster."""
    config, error = _config(location)
    is_there = Path(location.config_path).exists()
    context = CheckContext(
        location=location,
        config=config,
        config_error=error,
        answer=ask_controller(location) if is_there else None,
        now=time.time(),
    )
    return [result for check in CHECKS for result in check(context)]


def _config(location: Location) -> tuple[Config | None, GqError | None]:
    try:
        return load_config(location), None
    except GqError as error:
        return None, error


# ── a host of the system's cluster ────────────────────────────────────────────────────────────────────────────


def examine_host(location: Location) -> list[CheckResult]:
    """Run all checks of this host's part of the system's cluster."""
    from gq.cli.doctor.system import find_host  # not for the many who have a private one

    host = find_host(location)
    context = CheckContext(
        location=location, config=host.config, config_error=None, answer=host.answer, now=time.time()
    )
    results = [result for check in (python_version, commands_on_path, partitions) for result in check(context)]
    return results + [result for check in host_checks() for result in check(host)]


def host_checks() -> list[Check]:
    """Return the checks, basic checks first, because their results often explain later results."""
    from gq.cli.doctor import identity_checks as people
    from gq.cli.doctor import machine_checks as machine
    from gq.cli.doctor import network_checks as network
    from gq.cli.doctor import system_checks as system

    return [
        system.configuration,
        system.configuration_is_safe,
        system.role,
        system.directories,
        system.controller_user,
        system.mail,
        system.secrets,
        system.keys,
        system.privileged_names,
        machine.disk,
        machine.shared_memory,
        machine.home,
        system.running,
        system.unit,
        network.own_name,
        network.controller_listens,
        network.controller_port,
        network.step_door,
        system.answering,
        people.vouching,
        people.identity,
        people.users,
        system.clock,
        system.versions,
        network.nodes_answer,
        people.turned_away,
        machine.isolation,
        machine.leftovers,
        machine.gpus,
        system.logs,
    ]


def _write(results: list[CheckResult]) -> None:
    width = max(len(result.check) for result in results)
    for result in results:
        indent = len("warn") + 2 + width + 2
        lines = folded(printable(result.message), sys.stdout, indent)
        write_line(f"{result.verdict.value:<4}  {result.check:<{width}}  {lines[0]}")
        fix = result.fix if result.verdict is not Verdict.OK else ""
        lines += folded(printable(f"mend: {fix}"), sys.stdout, indent) if fix else []
        for line in lines[1:]:
            write_line(f"{'':{indent}}{line}")
    failed = sum(result.verdict is Verdict.FAIL for result in results)
    warned = sum(result.verdict is Verdict.WARN for result in results)
    write_line(f"{plural(failed, 'failure')}, {plural(warned, 'warning')}" if failed or warned else "all is well")


COMMAND = Command(
    name="gq doctor",
    summary="Check a cluster, or this host's part of one, and show what is wrong and how to fix it.",
    options=(DIR, SYSTEM, JSON),
    run=run,
    details=(
        f"Runs {len(CHECKS)} checks of a private cluster, or {QUESTIONS} of a host of the system's cluster. Returns 1 "
        "if a check failed."
    ),
)
