"""Counters of the shell, shown in `ClusterInfo.counters`; no decision depends on them."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(slots=True)
class Counters:
    requests: int = 0
    """Client requests accepted, including relayed ones."""
    reports: int = 0
    heartbeats: int = 0
    hellos: int = 0
    joins: int = 0
    """Requests of nodes to join with a valid token."""
    refused_at_door: int = 0
    """Requests refused by a listener: too large, unknown, or of another version."""
    not_served: int = 0
    """Messages of users whom this controller does not serve."""
    malformed: int = 0
    """Messages dropped because they are not of this protocol."""
    impostors: int = 0
    """Messages dropped because their key belongs to another node, or is no longer valid."""
    handshakes_refused: int = 0
    """Handshakes with CURVE keys that are unknown, or not for that listener."""
    introductions: int = 0
    """Keys accepted because of a MUNGE credential."""
    introductions_refused: int = 0
    links_unproven: int = 0
    """Tcp links that ended without the proof of a key; counted at intervals for each host."""
    incidents: int = 0
    """Rejections recorded in the audit trail."""
    incidents_untold: int = 0
    """Rejections that were not recorded, since there were too many in one minute."""
    links_cut: int = 0
    """Links cut because one host or user had too many, or sent too much."""
    replies: int = 0
    replies_dropped: int = 0
    """Replies dropped because the client was gone or did not read; the client repeats its request."""
    orders: int = 0
    orders_dropped: int = 0
    """Orders dropped because there was no link to the node; the controller repeats orders."""
    turns: int = 0
    inputs: int = 0
    batches: int = 0
    plans: int = 0
    inbox_full: int = 0
    """How often the inbox was full and the listeners had to wait."""

    def as_dict(self) -> dict[str, int]:
        return asdict(self)
