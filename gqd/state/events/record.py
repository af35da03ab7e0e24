"""What all events have.  Pure."""

from __future__ import annotations

import msgspec


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """Tagged with the class name.  ``at``: seconds since the epoch, the controller's clock."""

    at: float
