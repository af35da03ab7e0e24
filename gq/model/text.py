"""Control characters in untrusted text, which a terminal, a log or a log reader would interpret instead of show."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""C0 and C1 control characters, line and paragraph separators, and controls of the writing direction."""


def has_controls(text: str) -> bool:
    return _CONTROLS.search(text) is not None


def escape_controls(text: str, kept: str = "") -> str:
    r"""Return `text` with each control character as ``\uXXXX``, as in JSON; characters in `exempt` stay."""
    return _CONTROLS.sub(lambda found: found[0] if found[0] in kept else f"\\u{ord(found[0]):04x}", text)
