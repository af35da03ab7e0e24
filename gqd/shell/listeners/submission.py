"""Separates script and environment from a submission.

Owns their encoding, their names (SHA-256) and their size limits.  The deciding code sees only the names.
"""

from __future__ import annotations

import hashlib

import msgspec

from gq.errors import Refusal
from gq.wire.client import CronJob, SetCrontab, Submit, SubmitChain

_ENVIRONMENTS = msgspec.msgpack.Encoder(order="deterministic")
"""Deterministic, so that equal environments are stored once."""


def take_blobs(submit: Submit, script_limit: int, environment_limit: int) -> tuple[Submit, dict[str, bytes]]:
    """The submission with names instead of bytes, and the bytes by name (none for ``--test-only``).

    Raises `Refusal` if one of them is over its limit.
    """
    environment = _ENVIRONMENTS.encode(submit.environment) if submit.environment else b""
    _check_size("script", len(submit.script), script_limit, "keep data in files that the script reads")
    _check_size("environment", len(environment), environment_limit, "pass less of it with --export")
    named = {digest(data): data for data in (submit.script, environment) if data}
    spec = msgspec.structs.replace(
        submit.spec, script_digest=digest(submit.script), environment_digest=digest(environment), cron=""
    )
    bare = msgspec.structs.replace(submit, spec=spec, script=b"", environment={})
    return bare, {} if submit.test_only else named


def take_chain_blobs(
    chain: SubmitChain, script_limit: int, environment_limit: int
) -> tuple[SubmitChain, dict[str, bytes]]:
    """`take_blobs` for every stage of a chain."""
    taken = [take_blobs(stage, script_limit, environment_limit) for stage in chain.stages]
    blobs = {name: data for _, named in taken for name, data in named.items()}
    return msgspec.structs.replace(chain, stages=tuple([stage for stage, _ in taken])), blobs


def take_crontab_blobs(
    crontab: SetCrontab, script_limit: int, environment_limit: int
) -> tuple[SetCrontab, dict[str, bytes]]:
    """`take_blobs` for every entry of a crontab."""
    jobs: list[CronJob] = []
    blobs: dict[str, bytes] = {}
    for job in crontab.jobs:
        asked = Submit(spec=job.entry.spec, script=job.script, environment=job.environment)
        bare, named = take_blobs(asked, script_limit, environment_limit)
        jobs.append(CronJob(entry=msgspec.structs.replace(job.entry, spec=bare.spec)))
        blobs |= named
    return msgspec.structs.replace(crontab, jobs=tuple(jobs)), blobs


def digest(data: bytes) -> str:
    """The name of a blob; empty for an empty blob."""
    return hashlib.sha256(data).hexdigest() if data else ""


def _check_size(what: str, size: int, limit: int, hint: str) -> None:
    if size > limit:
        raise Refusal(f"{what}_too_large", f"the {what} is {size} bytes long, the limit is {limit}", hint)
