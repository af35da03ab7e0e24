"""The reason why a process of a job could not be started, as a value that crosses a pipe."""

from __future__ import annotations

from typing import NamedTuple

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126


class LaunchFailure(NamedTuple):
    """Why a program does not run; ``is_exec``: everything was ready, but the program cannot be executed."""

    why: str
    errno: int = 0
    is_exec: bool = False
    cause: str = ""
    """A value of `gq.wire.node.AttemptEnded.launch_failure`."""

    @property
    def exit_code(self) -> int:
        """The exit code that a shell would return."""
        return EXIT_NOT_FOUND if self.errno in (2, 20) else EXIT_NOT_EXECUTABLE  # ENOENT, ENOTDIR


def printable(text: str) -> str:
    """Return the text as one line without control characters, since a path in it may have any name."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


class CannotLaunch(Exception):
    def __init__(self, failure: LaunchFailure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class doing:
    """Turn an `OSError` inside into the sentence “cannot <what>: <reason>”."""

    __slots__ = ("_cause", "_what")

    def __init__(self, what: str, cause: str = "") -> None:
        self._what = what
        self._cause = cause

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            why = f"cannot {self._what}: {error.strerror}"
            raise CannotLaunch(LaunchFailure(why, error.errno or 0, cause=self._cause)) from error
