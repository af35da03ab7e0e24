"""The submit hook of a site: its arguments, its results, and how it is loaded.  See gq-hook(7).

A hook is a function in a Python file of the site, which ``submit_hook`` in gq.toml names.  It runs in a process of its
own, never in the controller.  Since the file decides about every job, only root, or the user who runs
the controller, may own or write the file and its directory.

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
    """The user who submits, as the controller has authenticated."""

    user: str
    uid: int
    gid: int
    groups: tuple[str, ...] = ()
    """Names of the user's groups on the controller's host."""
    is_test: bool = False
    """Whether the job is only checked and not queued: ``--test-only``."""


class Reject(Refusal):
    """A hook raises it to refuse the job; the submitter reads `message` and `hint`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(HOOK_REFUSED, message, hint)


class SubmitHook(Protocol):
    """The signature of a hook.  It is called once for each job; for a chain, once for each stage."""

    def __call__(self, job: JobSpec, submitter: Submitter) -> JobSpec | None:
        """Return the job to queue; None: unchanged.  Raise `Reject` to refuse it."""
        ...


def check_hook(hook: str) -> None:
    """Raise `Refusal` unless the file of ``FILE.py:FUNCTION`` exists and only trusted users can write it."""
    _source(_path(hook))


def load_hook(hook: str) -> Callable[[JobSpec, Submitter], object]:
    """Load the hook's function; its results are not checked yet.

    Raises `Refusal` as `check_hook`, or if the file has no such function; and any exception of the file itself.
    """
    path, name = _path(hook), hook.rpartition(":")[2]
    source = _source(path)
    module = ModuleType(_MODULE)
    module.__file__ = str(path)
    sys.modules[_MODULE] = module
    exec(compile(source, path, "exec"), module.__dict__)
    function = getattr(module, name, None)
    if not callable(function):
        raise Refusal("bad_hook", f"{path} has no function `{name}`", "see submit_hook in gq.toml")
    return function  # type: ignore[no-any-return]


def _path(hook: str) -> Path:
    return Path(hook.rpartition(":")[0])


def _source(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            check_written_by_trusted(path, os.fstat(file.fileno()))
            return file.read()
    except OSError as error:
        raise Refusal("bad_hook", f"the submit hook cannot be read: {error}", "see submit_hook in gq.toml") from error
