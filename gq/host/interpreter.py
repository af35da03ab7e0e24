"""The Python interpreter for gq's own child processes: it imports only installed code.

A user who may write into the working directory, or into a directory of another user's `PYTHONPATH`, must not be able to
have code run by root.  `tests/test_tidy.py` enforces this for every child interpreter.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping

_SOURCE_ROOT = os.path.abspath(f"{__file__}/../../..")  # noqa: PTH100 - commands start fast


def isolated_python(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start this interpreter in isolated mode (`-I`), before `-c` or `-m`.

    If gq itself was found by `PYTHONPATH` or in the user's own site directory, isolated mode would not find it: then
    the interpreter only leaves out the working directory (`-P`).  `environ` is the child's.
    """
    chosen = [os.path.realpath(path) for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if site.ENABLE_USER_SITE:
        chosen.append(os.path.realpath(site.getusersitepackages()))
    return (sys.executable, "-P" if os.path.realpath(_SOURCE_ROOT) in chosen else "-I")
