"""Keys: tokens that let nodes join, keys of nodes, keys of users on machines outside the cluster.  Pure.

Nothing here is secret: the controller only ever gets public halves.  The listeners look up the key of every message, so
a removed key is refused from the next message on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gq.errors import Refusal
from gq.model.ids import NAME
from gq.model.key import PUBLIC_KEY_CHARACTERS, KeyInfo, KeyKind, is_key
from gq.wire import client
from gq.wire import node as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.control import audit
from gqd.control.access import ROOT_UID, Caller, Denied, Role
from gqd.state.cluster import Cluster
from gqd.state.effect import CloseLink, SendJoined
from gqd.state.events import event
from gqd.state.input import ClientRequest, NamedUser, NodeJoin
from gqd.state.job_view import is_of
from gqd.state.records import Key

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_TTL_S = 30 * 86400
MAX_NOTE = 200
MAX_KEYS_OF_USER = 100
MIN_PREFIX = 6
"""Minimum length of a prefix that names a key."""
MAX_CANDIDATES = 5


def short(public: str) -> str:
    """The prefix under which messages show a key."""
    return public[:8]


# ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────────


def decide_create_token(draft: TurnBuilder, caller: Caller, body: client.CreateToken) -> client.TokenCreated:
    policy = draft.policy
    if not policy.endpoint or not policy.server_key:
        hint = "set `listen` in [controller] of gq.toml, then start gqd again"
        raise Refusal("no_endpoint", "this controller does not listen for nodes of other hosts", hint)
    if not 1 <= body.ttl_s <= MAX_TTL_S:
        raise Refusal(
            "bad_number", f"a token cannot be valid for {body.ttl_s} s: the range is 1 s to {MAX_TTL_S // 86400} days"
        )
    if body.node and not NAME.fullmatch(body.node):
        raise _bad_node_name(body.node)
    _refuse_bad_key(draft, body.public)
    expires_at = draft.now + body.ttl_s
    draft.emit(
        event.KeyAdded(
            at=draft.now,
            public=body.public,
            kind=KeyKind.JOIN,
            name=body.node,
            by=caller.peer.user,
            is_login=body.is_login,
            expires_at=expires_at,
        )
    )
    return client.TokenCreated(endpoint=policy.endpoint, server_key=policy.server_key, expires_at=expires_at)


def _bad_node_name(name: str) -> Refusal:
    hint = "use letters, digits, `.`, `_` and `-`, at most 63, a letter or a digit first"
    return Refusal("bad_node_name", f"{name[:80]!r} is not a name for a node", hint)


def _refuse_bad_key(draft: TurnBuilder, public: str) -> None:
    if not is_key(public):
        message = f"{public[:60]!r} is not a public key, which has {PUBLIC_KEY_CHARACTERS} characters of Z85"
        raise Refusal("bad_key", message, "`gq key new` creates a key pair")
    if public in draft.cluster.keys:
        raise Refusal(
            "known_key", f"the key that begins with {short(public)} is already enrolled", "create another key pair"
        )
    limit = draft.policy.limits.keys
    if len(draft.cluster.keys) >= limit:
        message = f"the cluster already has {limit} keys, the maximum"
        raise Refusal("too_many_keys", message, "revoke keys, or raise limits.keys in gq.toml")


# ── keys of users ─────────────────────────────────────────────────────────────────────────────────────────────


def decide_add_key(draft: TurnBuilder, caller: Caller, request: ClientRequest, body: client.AddKey) -> client.Done:
    user = _user_of(draft, caller, request.named_user, body.user)
    _refuse_bad_key(draft, body.public)
    theirs = sum(1 for key in draft.cluster.keys.values() if _is_key_of(key, user))
    if theirs >= MAX_KEYS_OF_USER:
        raise Refusal(
            "too_many_keys", f"user {user.user} has {theirs} keys, the maximum per user", "revoke some of these keys"
        )
    draft.emit(
        event.KeyAdded(
            at=draft.now,
            public=body.public,
            kind=KeyKind.USER,
            name=user.user,
            by=caller.peer.user,
            uid=user.uid,
            gid=user.gid,
            note=audit.printable(body.note, MAX_NOTE),
        )
    )
    return client.Done(text=f"user {user.user} may connect with the key that begins with {short(body.public)}")


def _user_of(draft: TurnBuilder, caller: Caller, named: NamedUser | None, name: str) -> NamedUser:
    """The user that the key is for; the listener has looked up another user's account (`named`)."""
    peer, policy = caller.peer, draft.policy
    is_self = name == peer.user and (named is None or named.uid == peer.uid)
    if not name or is_self:
        return NamedUser(user=peer.user, uid=peer.uid, gid=peer.gid)
    if caller.role < Role.ADMINISTRATOR:
        raise Denied("not_owner", f"a key for {name} can be added by {name} or an administrator only")
    if named is None or named.user != name:
        raise Refusal("unknown_user", f"there is no user `{name}` on the controller's host", "create the account first")
    if not policy.is_shared and named.uid not in (policy.owner_uid, ROOT_UID):
        raise Refusal("not_served", f"this private cluster does not serve {name}", "it serves its owner and root")
    return named


def _is_key_of(key: Key, user: NamedUser) -> bool:
    return key.kind is KeyKind.USER and key.uid == user.uid and key.name == user.user


def list_keys(draft: TurnBuilder, caller: Caller, body: client.ListKeys) -> client.Keys:
    """The caller's keys; for operators the keys of all users and nodes."""
    if caller.role < Role.OPERATOR and body.user not in ("", caller.peer.user):
        raise Denied(
            "not_owner", f"the keys of {body.user} are not yours", "`gqctl key show` without a name shows yours"
        )
    cluster = draft.cluster
    seen = [key for key in cluster.keys.values() if caller.role >= Role.OPERATOR or _is_own(caller, key)]
    if body.user:
        seen = [key for key in seen if key.kind is KeyKind.USER and key.name == body.user]
    return client.Keys(keys=tuple([_key_info(cluster, key) for key in seen]))


def _is_own(caller: Caller, key: Key) -> bool:
    return key.kind is KeyKind.USER and key.uid is not None and is_of(caller.peer, key.name, key.uid)


def _key_info(cluster: Cluster, key: Key) -> KeyInfo:
    joined = cluster.keys.get(key.joined)
    return KeyInfo(
        public=key.public,
        kind=key.kind,
        name=key.name,
        uid=key.uid,
        is_login=key.is_login,
        added_at=key.added_at,
        added_by=key.added_by,
        expires_at=key.expires_at,
        joined=joined.name if joined is not None else short(key.joined),
        note=key.note,
    )


# ── revoke, expire ────────────────────────────────────────────────────────────────────────────────────────────


def decide_revoke_key(draft: TurnBuilder, caller: Caller, body: client.RevokeKey) -> client.Done:
    key = _named(draft, caller, body.public)
    draft.emit(event.KeyRevoked(at=draft.now, public=key.public, by=caller.peer.user))
    if key.kind is KeyKind.NODE:
        close_link(draft, key.name, f"the key of node {key.name} was revoked by {caller.peer.user}")
    return client.Done(text=f"the {key.kind.value} key that begins with {short(key.public)} is no longer valid")


def _named(draft: TurnBuilder, caller: Caller, prefix: str) -> Key:
    """The only key with this prefix among the keys that the caller may revoke, or `Refusal`."""
    if len(prefix) < MIN_PREFIX:
        message = f"{prefix!r} is too short to name a key"
        raise Refusal(
            "short_key", message, f"give at least its first {MIN_PREFIX} characters; `gqctl key show` prints them"
        )
    found = [key for public, key in draft.cluster.keys.items() if public.startswith(prefix)]
    if not found:
        raise Refusal("unknown_key", f"no key begins with {prefix[:60]!r}", "`gqctl key show` lists them")
    own = [key for key in found if caller.role >= Role.ADMINISTRATOR or _is_own(caller, key)]
    if not own:
        raise Denied(
            "not_owner",
            f"the key that begins with {prefix!r} is not yours",
            "only its owner and administrators may revoke it",
        )
    if len(own) > 1:
        named = ", ".join(key.public for key in own[:MAX_CANDIDATES])
        raise Refusal("ambiguous_key", f"{len(own)} keys begin with {prefix!r}", f"give more characters: {named}")
    return own[0]


def close_link(draft: TurnBuilder, node: str, why: str) -> None:
    """Close the node's link and tell the node why; later messages over it are ignored."""
    route = draft.volatile.links.pop(node, None)
    if route is not None:
        draft.enqueue(CloseLink(route=route, why=why, is_removed=True))


def tick(draft: TurnBuilder) -> None:
    """Remove expired tokens, used or not."""
    cluster = draft.cluster
    over = tuple([public for public in cluster.join_keys if _is_expired(cluster.keys[public], draft.now)])
    if over:
        draft.emit(event.KeysExpired(at=draft.now, publics=over))


def _is_expired(key: Key, now: float) -> bool:
    return key.expires_at is not None and key.expires_at <= now


# ── nodes that join ───────────────────────────────────────────────────────────────────────────────────────────


def decide_join(draft: TurnBuilder, fact: NodeJoin) -> None:
    """Let the node join and record its key, or refuse it with the reason."""
    join = fact.join
    token = draft.cluster.keys.get(fact.token)
    if token is not None and token.joined == join.public_key and _is_key_of_node(draft.cluster, join):
        key = draft.cluster.keys[join.public_key]
        draft.enqueue(SendJoined(route=fact.route, node=join.node, is_login=key.is_login))
        return
    try:
        token = _open_token(draft, fact.token)
        _refuse_join(draft, token, join)
    except Refusal as refusal:
        _refuse(draft, fact, refusal)
        return
    for old in [key for key in draft.cluster.keys.values() if key.kind is KeyKind.NODE and key.name == join.node]:
        draft.emit(event.KeyRevoked(at=draft.now, public=old.public, by=token.added_by))
    draft.emit(
        event.NodeJoined(
            at=draft.now,
            token=fact.token,
            node=join.node,
            public=join.public_key,
            is_login=token.is_login,
            address=fact.address,
        )
    )
    draft.emit(
        audit.audit_event(
            draft.now,
            origin=fact.address,
            action="Join",
            object=f"node {join.node}",
            detail=f"key {short(join.public_key)}, token {short(fact.token)} of {token.added_by}",
        )
    )
    draft.enqueue(SendJoined(route=fact.route, node=join.node, is_login=token.is_login))


def _is_key_of_node(cluster: Cluster, join: wire.Join) -> bool:
    """Whether the key that joined is still the node's key, that is, was not revoked meanwhile."""
    key = cluster.keys.get(join.public_key)
    return key is not None and key.kind is KeyKind.NODE and key.name == join.node


def _open_token(draft: TurnBuilder, public: str) -> Key:
    token = draft.cluster.keys.get(public)
    if token is None or token.kind is not KeyKind.JOIN:
        raise Refusal("unknown_token", "this token is unknown: it has expired or was revoked", "ask for another token")
    if _is_expired(token, draft.now):
        raise Refusal("token_expired", "this token has expired", "ask for another token")
    if token.joined:
        raise Refusal("token_reused", "this token was already used by a node", "ask for one token for each node")
    return token


def _refuse_join(draft: TurnBuilder, token: Key, join: wire.Join) -> None:
    if not OLDEST_WIRE_VERSION <= join.version <= WIRE_VERSION:
        spoken = f"{OLDEST_WIRE_VERSION} to {WIRE_VERSION}"
        raise Refusal("bad_version", f"the node speaks protocol version {join.version}; the controller speaks {spoken}")
    if not NAME.fullmatch(join.node):
        raise _bad_node_name(join.node)
    if token.name not in ("", join.node):
        raise Refusal(
            "other_node", f"this token is for node {token.name}, not for {join.node}", "ask for another token"
        )
    _refuse_bad_key(draft, join.public_key)
    if _is_member(draft, join.node):
        if not token.name or _is_up(draft, join.node):
            why = f"node {join.node} is already a member of the cluster"
            raise Refusal("member_already", why, f"`gqctl node remove {join.node}` first, or choose another name")
    elif len(draft.cluster.nodes) >= draft.policy.limits.nodes:
        raise Refusal("too_many_nodes", f"the cluster already has {draft.policy.limits.nodes} nodes, the maximum")


def _is_member(draft: TurnBuilder, node: str) -> bool:
    cluster = draft.cluster
    has_key = any(key.kind is KeyKind.NODE and key.name == node for key in cluster.keys.values())
    return has_key or node in cluster.nodes or node in draft.volatile.links


def _is_up(draft: TurnBuilder, node: str) -> bool:
    """Whether the node is up; a login node or relay counts as up if it was heard a moment ago."""
    known = draft.cluster.nodes.get(node)
    if known is not None:
        return not (known.is_lost or known.is_down)
    heard_at = draft.volatile.heard_at.get(node, float("-inf"))
    return node in draft.volatile.links and draft.now - heard_at < draft.policy.timers.node_lost_s


def _refuse(draft: TurnBuilder, fact: NodeJoin, refusal: Refusal) -> None:
    """Close the link of a node that may not join, and audit the attempt."""
    draft.emit(
        audit.audit_event(
            draft.now,
            origin=fact.address,
            action="TokenReused" if refusal.code == "token_reused" else "Join",
            object=f"node {fact.join.node}",
            outcome=refusal.code,
            detail=f"{refusal.message}; token {short(fact.token)}",
        )
    )
    why = f"{refusal.message}; {refusal.hint}" if refusal.hint else refusal.message
    draft.enqueue(CloseLink(route=fact.route, why=why))
