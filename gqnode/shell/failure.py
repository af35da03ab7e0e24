"""Why a process of a job could not be started, as a value that crosses a pipe.  Slim."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126


class Failure(NamedTuple):
    """Why a program does not run.  ``is_exec``: all was ready, but the program itself cannot be executed."""

    why: str
    errno: int = 0
    is_exec: bool = False

    @property
    def exit_code(self) -> int:
        """What a shell would say."""
        return EXIT_NOT_FOUND if self.errno in (2, 20) else EXIT_NOT_EXECUTABLE  # ENOENT, ENOTDIR


def printable(text: str) -> str:
    """On one line, without what a terminal would obey: a path in it is named as somebody likes."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class CannotLaunch(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


@contextmanager
def doing(what: str) -> Iterator[None]:
    """Turn an `OSError` inside into the sentence “cannot <what>: <reason>”."""
    try:
        yield
    except OSError as error:
        raise CannotLaunch(Failure(f"cannot {what}: {error.strerror}", error.errno or 0)) from error
