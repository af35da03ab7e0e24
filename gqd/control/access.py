"""The one place that says who may ask what.  Pure.

Until jobs run as their submitter, a controller serves its owner and root, and both administrate it.
"""

from __future__ import annotations

from gq.errors import Refusal
from gqd.state.input import Peer
from gqd.state.policy import Policy

ROOT_UID = 0


def authorise(peer: Peer, policy: Policy) -> None:
    """`Refusal` unless this peer is served."""
    if peer.uid not in (policy.owner_uid, ROOT_UID):
        message = f"user {peer.user} (uid {peer.uid}) is not served: this cluster belongs to uid {policy.owner_uid}"
        raise Refusal("not_served", message, "start your own with `gq up`")
