"""The definition of a command's option, and an option as a user gave it.  Pure."""

from __future__ import annotations

import msgspec

from gq.errors import Refusal, UsageError


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An option's definition.  An empty `metavar` makes it a flag."""

    name: str
    """Long name, without dashes."""
    letter: str = ""
    aliases: tuple[str, ...] = ()
    """Other long names."""
    metavar: str = ""
    if_bare: str | None = None
    """Value of an option written without its (optional) argument; None: the argument is required."""
    help: str = ""
    group: str = ""
    """Heading of the help text under which the option is listed; empty: `Options`."""
    is_hidden: bool = False
    """Left out of help and completion."""

    @property
    def takes_value(self) -> bool:
        return bool(self.metavar)


class ParsedOption(msgspec.Struct, frozen=True):
    """An option as it was given, with its value and place."""

    name: str
    """Long name, even if the letter or an alias was written."""
    value: str
    """Empty for a flag."""
    written: str
    """``-N``, ``--nodes``, ``GQSUB_NODES``."""
    source: str = ""
    """``job.sh:3`` for a header line; empty for the command line and for variables."""

    @property
    def place(self) -> str:
        """Beginning of a message about the option: ``job.sh:3: `--nodes```."""
        return f"{self.source}: `{self.written}`" if self.source else f"`{self.written}`"


def bad_value(given: ParsedOption, rule: str, way_out: str = "") -> UsageError:
    """Return the error about a value.  `rule` may have the hint after a semicolon, as in `gq.units`."""
    sentence, _, rest = rule.partition("; ")
    return UsageError("bad_value", f"{given.place}: {sentence}", way_out or rest)


def not_available(what: str) -> Refusal:
    """Return the refusal of a documented feature that this version does not have."""
    return Refusal("not_available", f"{what} is not available in this version")
