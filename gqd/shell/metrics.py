"""What the shell counts.  Plain ints, shown in `ClusterInfo.counters`; nothing decides by them."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    requests: int = 0
    """Client requests taken in, relayed ones included."""
    reports: int = 0
    heartbeats: int = 0
    hellos: int = 0
    joins: int = 0
    """Nodes that wanted to join with a token that was open."""
    refused_at_door: int = 0
    """Answered with a refusal before they were an input: too large, unknown, another version."""
    not_served: int = 0
    """Came from a user whom this controller does not serve."""
    malformed: int = 0
    """Dropped: not a message of this protocol."""
    impostors: int = 0
    """Dropped: a node that spoke for another, or without a key that is valid now."""
    handshakes_refused: int = 0
    """CURVE keys that are not known, or not for that door."""
    introductions: int = 0
    """Keys that MUNGE vouched for."""
    introductions_refused: int = 0
    links_unproven: int = 0
    """Links over tcp that ended without the proof of a key, of one host counted once in a while."""
    incidents: int = 0
    """Of what the doors turned away: told to the audit trail."""
    incidents_untold: int = 0
    """Too many in one minute to be told."""
    links_cut: int = 0
    """Links that one host, or one user of this host, opened beyond its part, or that brought what had no end."""
    replies: int = 0
    replies_dropped: int = 0
    """The client had gone, or did not read; it asks again."""
    orders: int = 0
    orders_dropped: int = 0
    """No link to the node; orders repeat."""
    turns: int = 0
    inputs: int = 0
    batches: int = 0
    plans: int = 0
    inbox_full: int = 0
    """How often the doors had to wait."""

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
