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
    from collections.abc import Iterable

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


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that `word` is a misspelling of, or '' (used for "did you mean" hints).

    A misspelling has at most one edit for each three letters (at least one); an edit inserts, deletes or replaces a
    letter, or swaps two neighbours.  Letter case and the dashes before an option do not count.  Of several known
    words the closest wins, then the first.  Example: `nodse` means `nodes`; `gpus-each` means neither `gpus` nor
    `gpus-per-node`.
    """
    meant = word.lstrip("-").casefold()
    best, fewest = "", max(len(meant) // 3, 1) + 1
    for candidate in known:
        edits = _edit_distance(meant, candidate.lstrip("-").casefold(), fewest)
        if edits < fewest:
            best, fewest = candidate, edits
    return best


def suggestion(word: str, known: Iterable[str], otherwise: str = "") -> str:
    """The hint for a word that is none of `known`: the known word that is meant, else `otherwise`."""
    close = nearest(word, known)
    return f"did you mean `{close}`?" if close else otherwise


def none_of(word: str, known: Iterable[str]) -> str:
    """The complaint about a word that is none of `known`, with the known word that is meant behind a semicolon."""
    words = list(known)
    close = nearest(word, words)
    return f"`{word[:40]}` is none of {', '.join(words)}" + (f"; did you mean `{close}`?" if close else "")


def _edit_distance(word: str, other: str, limit: int) -> int:
    """Optimal string alignment distance (Damerau 1964, without overlapping edits); `limit` if it is not below."""
    if abs(len(word) - len(other)) >= limit:
        return limit
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        above, before, row = before, row, [i]
        for j, wanted in enumerate(other, 1):
            edits = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == wanted:
                edits = min(edits, above[j - 2] + 1)
            row.append(edits)
        if min(row) >= limit:
            return limit
    return row[-1]
