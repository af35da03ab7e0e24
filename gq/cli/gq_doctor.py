"""gq doctor: look over a private cluster and say what is wrong and how to mend it.

Owns what is looked at; the questions are in `_checks`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from gq.cli._checks import CHECKS, Finding, Patient, Verdict
from gq.cli._command import JSON, Command
from gq.cli._output import plural, write_json_list, write_line
from gq.cli.gq_status import asked
from gq.cli.gq_up import DIR, directory_of
from gq.config import Config, load_config
from gq.errors import GqError, UsageError
from gq.getopt import Arguments
from gq.locate import Location, private_location


def run(arguments: Arguments) -> int:
    if arguments.operands:
        raise UsageError("operands", f"`gq doctor` takes no operand, not `{arguments.operands[0]}`")
    location = private_location(directory_of(arguments), os.environ)
    findings = examine(location)
    if arguments.has("json"):
        write_json_list(
            [{"check": f.check, "verdict": f.verdict.value, "message": f.message, "mend": f.mend} for f in findings]
        )
    else:
        _write(findings)
    return 1 if any(finding.verdict is Verdict.FAIL for finding in findings) else 0


def examine(location: Location) -> list[Finding]:
    """Ask every question."""
    config, error = _config(location)
    is_there = Path(location.config_path).exists()
    patient = Patient(
        location=location,
        config=config,
        config_error=error,
        answer=asked(location) if is_there else None,
        now=time.time(),
    )
    return [finding for check in CHECKS for finding in check(patient)]


def _config(location: Location) -> tuple[Config | None, GqError | None]:
    try:
        return load_config(location), None
    except GqError as error:
        return None, error


def _write(findings: list[Finding]) -> None:
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        write_line(f"{finding.verdict.value:<4}  {finding.check:<{width}}  {finding.message}")
        if finding.mend and finding.verdict is not Verdict.OK:
            write_line(f"{'':<4}  {'':<{width}}  mend: {finding.mend}")
    failed = sum(finding.verdict is Verdict.FAIL for finding in findings)
    warned = sum(finding.verdict is Verdict.WARN for finding in findings)
    write_line(f"{plural(failed, 'failure')}, {plural(warned, 'warning')}" if failed or warned else "all is well")


COMMAND = Command(
    name="gq doctor",
    summary="Look over a private cluster, and say what is wrong and how to mend it.",
    options=(DIR, JSON),
    run=run,
    details=f"Asks {len(CHECKS)} questions. Returns 1 if something failed.",
)
