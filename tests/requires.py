"""What a test needs of the machine it runs on.

A test without what it needs is skipped, with the reason.  With ``GQ_TEST_REQUIRE=all`` (as CI runs) the test fails
instead, so that nothing is skipped unnoticed.  Programs are demanded of every user.  What only root can have is
demanded of root alone: CI runs the tests as root and as an ordinary user.  A GPU is never demanded.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from ctypes.util import find_library
from pathlib import Path
from typing import NoReturn

import pytest


def _is_root() -> bool:
    return os.geteuid() == 0


def _has_cgroup1() -> bool:
    return _is_root() and _mounted("cgroup") >= {"cpu", "cpuset", "memory", "devices", "freezer", "pids"}


def _has_cgroup2() -> bool:
    return _is_root() and bool(_mounted("cgroup2"))


def _has_gpu() -> bool:
    return Path("/dev/nvidia0").exists()


def _has_munge() -> bool:
    """The daemon, which Debian has where only root's PATH leads, and the library."""
    has_daemon = shutil.which("munged", path=f"/usr/sbin:/usr/local/sbin:{os.environ.get('PATH', '')}") is not None
    return has_daemon and find_library("munge") is not None


def _mounted(kind: str) -> set[str]:
    """The options of all mounts of this type: for v1 they name the controllers."""
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return {option for _, _, found, options, *_ in mounts if found == kind for option in options.split(",")}


_CHECKS: dict[str, tuple[Callable[[], bool], str]] = {
    "root": (_is_root, "needs root"),
    "user": (lambda: not _is_root(), "needs an ordinary user"),
    "cgroup1": (_has_cgroup1, "needs root and the cgroup v1 controllers"),
    "cgroup2": (_has_cgroup2, "needs root and a cgroup v2 mount"),
    "munge": (_has_munge, "needs munged and libmunge"),
    "gpu": (_has_gpu, "needs an NVIDIA GPU"),
}
_NEVER_DEMANDED = frozenset({"gpu", "user", "cgroup1"})
"""A GPU is rare, root is no ordinary user, and a current machine has no cgroup v1."""
_DEMANDED_OF_ROOT = frozenset({"root", "cgroup2"})
"""What no installed program gives to an ordinary user."""


def is_missing(what: str) -> bool:
    """Whether the test is to be skipped; where skipping is not allowed the test fails here."""
    has, reason = _check(what)
    if has():
        return False
    if _is_demanded(what):
        pytest.fail(f"{reason}, and GQ_TEST_REQUIRE=all allows no skip", pytrace=False)
    return True


def _is_demanded(what: str) -> bool:
    if os.environ.get("GQ_TEST_REQUIRE") != "all" or what in _NEVER_DEMANDED:
        return False
    return _is_root() or what not in _DEMANDED_OF_ROOT


def skip_or_fail(reason: str) -> NoReturn:
    """For what shows only when it is tried."""
    if os.environ.get("GQ_TEST_REQUIRE") == "all":
        pytest.fail(f"{reason}, and GQ_TEST_REQUIRE=all allows no skip", pytrace=False)
    pytest.skip(reason)


def _check(what: str) -> tuple[Callable[[], bool], str]:
    return _CHECKS.get(what) or (lambda: shutil.which(what) is not None, f"needs `{what}`")


def _needs(what: str) -> pytest.MarkDecorator:
    # A condition in a string is evaluated when the test is about to run, so it may also fail it.
    return pytest.mark.skipif(f"__import__('tests.requires').requires.is_missing({what!r})", reason=_check(what)[1])


def needs_program(name: str) -> pytest.MarkDecorator:
    """A program on the PATH."""
    return _needs(name)


needs_root = _needs("root")
needs_user = _needs("user")
needs_cgroup1 = _needs("cgroup1")
needs_cgroup2 = _needs("cgroup2")
needs_gpu = _needs("gpu")
needs_munge = _needs("munge")
