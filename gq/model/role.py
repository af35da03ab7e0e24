"""The names of het job roles and their form in names of variables.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_ROLES = 64
"""Maximum number of roles of one job."""
MAX_ROLE_NAME = 32
_NAME = r"[A-Za-z][A-Za-z0-9_-]*"


def check_role_name(name: str) -> str:
    """Return the name, or raise ``ValueError`` with a sentence."""
    if len(name) > MAX_ROLE_NAME or not re.fullmatch(_NAME, name):
        rule = f"a role name has 1 to {MAX_ROLE_NAME} letters, digits, `_` and `-`, and begins with a letter"
        raise ValueError(f"`{name[:40]}` cannot be a role's name; {rule}")
    return name


def role_word(name: str) -> str:
    """Return the role's part of a variable's name: ``param-server`` → ``PARAM_SERVER``."""
    return name.upper().replace("-", "_")


def check_roles(names: Iterable[str]) -> None:
    """Raise ``ValueError`` if a job has too many roles, or two roles with the same form in variables."""
    seen: dict[str, str] = {}
    for name in names:
        word = role_word(check_role_name(name))
        if word in seen:
            raise ValueError(f"two roles are named `{name}`; give each role a different name")
        seen[word] = name
    if len(seen) > MAX_ROLES:
        raise ValueError(f"there are {len(seen)} roles; the maximum is {MAX_ROLES}")
