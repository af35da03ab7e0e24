"""The exception classes, and which side is at fault.

    GqError                    code, message, hint, exit_status
    ├── Refusal                the user's: the request cannot be carried out              exit 1
    │   └── UsageError         the user's: the command line or a header cannot be read    exit 2
    ├── Unreachable            no one's: the controller does not answer                   exit 3
    └── ProtocolError          a peer's: bytes that are no message of gq; the link is closed

A broken invariant of gq itself is an ``AssertionError`` instead and ends the daemon.  A message names the value, the
rule and the way out; the way out is in ``hint``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from gq.model.reservation import Offer


class GqError(Exception):
    """Base of everything that gq raises on purpose.

    ``code`` is a stable word in snake_case for programs (``unknown_partition``), ``message`` one sentence for users,
    ``hint`` the way out (may be empty).
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
    """For a reservation request: reservations that are possible instead."""


class UsageError(Refusal):
    """The command line, an input variable or a script header cannot be read."""

    exit_status = 2


class Unreachable(GqError):
    """The controller did not answer in time; the request may or may not have been carried out."""

    exit_status = 3


class ProtocolError(GqError):
    """A peer sent bytes that are not a message of this protocol."""
