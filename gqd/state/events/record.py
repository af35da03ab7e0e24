"""The base class of all events.  Pure."""

from __future__ import annotations

import msgspec


class EventBase(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=True):
    """An event, tagged with its class name.  ``at``: seconds since the epoch by the controller's clock."""

    at: float
