"""What can go wrong, and whose fault it is.

    GqError                    code, message, hint, exit_status
    ├── Refusal                the user's: asked for something that cannot be done        exit 1
    │   └── UsageError         the user's: the command line or a header cannot be read    exit 2
    ├── Unreachable            nobody's: the controller does not answer                   exit 3
    └── ProtocolError          a peer's: what came over the wire is not ours; that link is closed

A broken invariant of our own is none of these: it is an ``AssertionError`` and ends the daemon.
A message names the value, the rule and the way out; the way out goes into ``hint``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gq.model.reservation import Offer


class GqError(Exception):
    """Base of everything that gq raises on purpose.

    ``code`` is a stable word in snake_case for programs (``unknown_partition``), ``message`` one sentence
    for people, ``hint`` the way out (may be empty).
    """

    exit_status: ClassVar[int] = 1

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}" if self.hint else self.message


class Refusal(GqError):
    """The request is understood and refused; nothing changed."""

    offers: tuple[Offer, ...] = ()
    """Of a reservation: what could be had instead."""


class UsageError(Refusal):
    """The command line, an input variable or a script header cannot be read."""

    exit_status = 2


class Unreachable(GqError):
    """The controller did not answer in time; what was sent may or may not have been done."""

    exit_status = 3


class ProtocolError(GqError):
    """A peer sent what is not a message of this protocol."""
