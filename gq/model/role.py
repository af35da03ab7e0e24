"""The names of roles: what they may be, and how they stand in the names of variables.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_ROLES = 64
"""Of one gang."""
MAX_ROLE_NAME = 32
_NAME = r"[A-Za-z][A-Za-z0-9_-]*"


def check_role_name(name: str) -> str:
    """The name, or ``ValueError`` with a sentence."""
    if len(name) > MAX_ROLE_NAME or not re.fullmatch(_NAME, name):
        rule = f"a role has a name of 1 to {MAX_ROLE_NAME} letters, digits, `_` and `-`, a letter first"
        raise ValueError(f"`{name[:40]}` cannot be a role's name; {rule}")
    return name


def role_word(name: str) -> str:
    """How it stands in a variable: ``param-server`` → ``PARAM_SERVER``."""
    return name.upper().replace("-", "_")


def check_roles(names: Iterable[str]) -> None:
    """Of one gang: so many at most, and all different in variables; ``ValueError`` with a sentence."""
    seen: dict[str, str] = {}
    for name in names:
        word = role_word(check_role_name(name))
        if word in seen:
            raise ValueError(f"there are two roles `{name}`; give each a name of its own")
        seen[word] = name
    if len(seen) > MAX_ROLES:
        raise ValueError(f"there are {len(seen)} roles; the most is {MAX_ROLES}")
