"""The submit hook of a site: what it is given, what it may answer, and how it is found.  See gq-hook(7).

A hook is a function of a Python file of the site, which ``submit_hook`` in gq.toml names.  It runs in a process of
its own, never in the controller.  Who can write the file can decide about every job, so the file and its directory
must belong to root, or to whoever runs the controller, and nobody else may be able to write to them.

::

    from msgspec.structs import replace
    from gq.config.submit_hook import JobSpec, Reject, Submitter

    def submit(job: JobSpec, submitter: Submitter) -> JobSpec | None:
        if job.time_limit_s is None:
            return replace(job, time_limit_s=3600)
        if job.time_limit_s > 86400 and "staff" not in submitter.groups:
            raise Reject("jobs of more than a day are for staff", "ask for at most --time=1-0")
        return None
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Protocol

import msgspec

from gq.config.config import check_written_by_trusted
from gq.errors import Refusal
from gq.model.job import JobSpec

__all__ = ["HOOK_REFUSED", "JobSpec", "Reject", "SubmitHook", "Submitter", "load_hook"]

HOOK_REFUSED = "hook_refused"
"""The code of a refusal that comes from the hook."""
_MODULE = "gq_site_hook"


class Submitter(msgspec.Struct, frozen=True, kw_only=True):
    """Who submits, as the controller has established."""

    user: str
    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    """Names of the user's groups on the controller's host."""
    is_test: bool = False
    """Nothing will be queued: ``--test-only``."""


class Reject(Refusal):
    """Raised by a hook: the job is refused, and the submitter reads `message` and `hint`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(HOOK_REFUSED, message, hint)


class SubmitHook(Protocol):
    """What the function must be.  Called once for each job; of a chain once for each stage."""

    def __call__(self, job: JobSpec, submitter: Submitter) -> JobSpec | None:
        """The job as it shall be queued; None: as it is.  Raise `Reject` to refuse it."""
        ...


def check_hook(place: str) -> None:
    """Raises `Refusal` unless the file of ``FILE.py:FUNCTION`` is there and only those who are trusted can write it."""
    _source(_path(place))


def load_hook(place: str) -> Callable[[JobSpec, Submitter], object]:
    """The function, ready to be called; what it returns is yet to be looked at.

    Raises `Refusal` as `check_hook`, or if the file has no such function; and whatever the file itself raises.
    """
    path, name = _path(place), place.rpartition(":")[2]
    source = _source(path)
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module
    exec(compile(source, path, "exec"), module.__dict__)
    hook = getattr(module, name, None)
    if not callable(hook):
        raise Refusal("bad_hook", f"{path} has no function `{name}`", "see submit_hook in gq.toml")
    return hook  # type: ignore[no-any-return]


def _path(place: str) -> Path:
    return Path(place.rpartition(":")[0])


def _source(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            check_written_by_trusted(path, os.fstat(file.fileno()))
            return file.read()
    except OSError as error:
        raise Refusal("bad_hook", f"the submit hook cannot be read: {error}", "see submit_hook in gq.toml") from error
