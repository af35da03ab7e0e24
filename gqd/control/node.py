"""Nodes: hello, heartbeat, reports, loss, and drain, resume, down and remove by administrators.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from gq.errors import Refusal
from gq.model.job import Usage
from gq.model.key import KeyKind
from gq.near_miss import suggestion
from gq.wire import client
from gq.wire import node as wire
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION
from gqd.control import access, attempt, audit, elastic, key, orders, owed_order, parked, preemption, step, suspend
from gqd.control.access import Caller
from gqd.state.effect import AckReport, AskWhoIsThere, CloseLink, RemoveKeyFile, SendHeartbeatSeen, SendWelcome
from gqd.state.events import event
from gqd.state.input import KeyFileDeleted, NodeHeartbeat, NodeHello, NodeReport, Peer
from gqd.state.phases import PartPhase
from gqd.state.records import Attempt, Node

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_REASON = 1024
MAX_LIVES = 16
"""Incarnations remembered for each node."""

_NOT_BEGUN = ("preparing", "prepared")
"""Phases of an attempt, in a hello, in which no process of it runs yet."""
_LIVING = (
    wire.PrepareReceived, wire.Prepared, wire.GoReceived, wire.Started, wire.TimeLimitSet, wire.SuspendedSet,
)  # fmt: skip
"""Reports that show that the node has something of an attempt."""

# ── the link ──────────────────────────────────────────────────────────────────────────────────────────────────


def on_hello(draft: TurnBuilder, fact: NodeHello) -> None:
    """A node connects for the first time or again: register it, and reconcile its attempts with the controller's."""
    hello = fact.hello
    if fact.key and fact.key not in draft.cluster.keys:
        why = "its key was revoked; join again with a new token"
        draft.enqueue(CloseLink(route=fact.route, why=why, is_removed=True))
        return
    why = _why_unwelcome(draft, hello) or _why_not_trusted(draft, hello) or _why_too_old(draft, hello)
    if why:
        draft.enqueue(CloseLink(route=fact.route, why=why))
        return
    if hello.last_seq < _heard_seq(draft, hello.node, hello.incarnation):
        return  # a newer report overtook this hello, so its list of attempts is out of date
    known = draft.cluster.nodes.get(hello.node)
    is_new_life = known is None or known.incarnation != hello.incarnation
    _remember_life(draft, hello)
    if not hello.is_relay and (known is None or known.is_lost or _is_news(known, hello)):
        draft.emit(_registered(draft, hello))
        draft.volatile.possible_shapes.clear()
    draft.volatile.links[hello.node] = fact.route
    draft.volatile.heard_at[hello.node] = draft.now
    draft.enqueue(SendWelcome(route=fact.route, node=hello.node))
    if hello.is_relay:
        return
    _reconcile(draft, hello, is_new_life)
    owed_order.repeat_for(draft, hello.node)
    draft.volatile.wants_plan = True


def _heard_seq(draft: TurnBuilder, node: str, incarnation: str) -> int:
    """The highest report number received from this incarnation of the node; 0: none."""
    life, seq = draft.volatile.report_seqs.get(node, ("", 0))
    return seq if life == incarnation else 0


def _why_unwelcome(draft: TurnBuilder, hello: wire.Hello) -> str:
    """Why the node may not connect: protocol version, name, node limit or a duplicate; empty: it may."""
    if not OLDEST_WIRE_VERSION <= hello.version <= WIRE_VERSION:
        return f"it speaks version {hello.version}; this controller speaks {OLDEST_WIRE_VERSION} to {WIRE_VERSION}"
    if not hello.node or len(hello.node) > 255 or not hello.node.isprintable() or set(hello.node) & set("[],/ \t"):
        return f"{hello.node!r} is not a node name"
    if len(draft.cluster.nodes) >= draft.policy.limits.nodes and hello.node not in draft.cluster.nodes:
        return f"the cluster already has {draft.policy.limits.nodes} nodes, the maximum"
    link = draft.volatile.links.get(hello.node)
    known = draft.cluster.nodes.get(hello.node)
    heard_s = draft.now - draft.volatile.heard_at.get(hello.node, float("-inf"))
    is_alive = link is not None and heard_s < 3 * draft.policy.timers.heartbeat_s
    if known is not None and is_alive and hello.address != known.address and hello.boot_id != known.boot_id:
        return f"node {hello.node} is already connected from {known.address}"
    return ""


def _why_not_trusted(draft: TurnBuilder, hello: wire.Hello) -> str:
    """Why a login node may not offer to run jobs, whatever its hello says; empty: the node is none, or a relay."""
    if not hello.is_relay and access.is_login_node(hello.node, draft.cluster, draft.policy):
        return "it is a login node, which runs no jobs: set `login = true` in [node] of its gq.toml"
    return ""


def _why_too_old(draft: TurnBuilder, hello: wire.Hello) -> str:
    """Why an older daemon of the same node is refused; empty: it is the newest.

    Two daemons of one node would otherwise register in turn for ever.
    """
    if hello.incarnation not in draft.volatile.lives.get(hello.node, ())[:-1]:
        return ""
    newest = draft.volatile.lives[hello.node][-1]
    return (
        f"two daemons register as node {hello.node}: this one (incarnation {hello.incarnation}) is older than "
        f"the one that registered last (incarnation {newest})"
    )


def _remember_life(draft: TurnBuilder, hello: wire.Hello) -> None:
    lives = draft.volatile.lives.get(hello.node, ())
    if not lives or lives[-1] != hello.incarnation:
        draft.volatile.lives[hello.node] = (*lives[-MAX_LIVES + 1 :], hello.incarnation)


def _is_news(known: Node, hello: wire.Hello) -> bool:
    return (known.incarnation, known.inventory, known.address, known.step_endpoint, known.ticket_key) != (
        hello.incarnation,
        hello.inventory,
        hello.address,
        hello.step_endpoint,
        hello.ticket_key,
    )


def _registered(draft: TurnBuilder, hello: wire.Hello) -> event.NodeRegistered:
    return event.NodeRegistered(
        at=draft.now,
        node=hello.node,
        address=hello.address,
        inventory=hello.inventory,
        incarnation=hello.incarnation,
        boot_id=hello.boot_id,
        step_endpoint=hello.step_endpoint,
        step_public_key=hello.step_public_key,
        ticket_key=hello.ticket_key,
    )


def _reconcile(draft: TurnBuilder, hello: wire.Hello, is_new_life: bool) -> None:
    """Compare the node's attempts with the controller's, and send the orders that each difference needs."""
    theirs = {status.attempt_id: status for status in hello.attempts}
    held = draft.cluster.nodes[hello.node].held
    for attempt_id in list(held):
        ours = draft.cluster.attempts[attempt_id]
        if attempt_id not in theirs:
            _reconcile_missing(draft, ours, hello.node, is_new_life)
            continue
        if theirs[attempt_id].phase not in _NOT_BEGUN or not attempt.give_up_late_launch(draft, ours, hello.node):
            orders.send_owed(draft, ours, hello.node)
        if ours.parts[hello.node].is_stranded and ours.parts[hello.node].phase is not PartPhase.STOPPING:
            orders.stop_orphan(draft, attempt_id, hello.node)  # the job continues without this node
        preemption.repeat_notice(draft, ours, hello.node)
        attempt.reconcile_time_limit(draft, attempt_id, hello.node, theirs[attempt_id].time_limit_s)
        suspend.reconcile(draft, attempt_id, hello.node, theirs[attempt_id].is_suspended)
        elastic.reconcile(draft, ours, hello.node, theirs[attempt_id].generation)
        for running_step in ours.steps.values():
            if any(part.node == hello.node for part in running_step.layout.parts):
                orders.send_step(draft, running_step, hello.node)
    for attempt_id in sorted(theirs):
        if attempt_id not in held:
            orders.stop_orphan(draft, attempt_id, hello.node)


def _reconcile_missing(draft: TurnBuilder, ours: Attempt, node: str, is_new_life: bool) -> None:
    """Handle a part that the controller has on the node and that the node's hello does not name.

    The hello alone frees nothing: it may be outdated (the controller that received later reports has died).  The node
    is ordered to stop what it may have, and reports itself when nothing is left.
    """
    match ours.parts[node].phase:
        case PartPhase.PREPARING | PartPhase.STOPPING:
            orders.send_owed(draft, ours, node)  # the order was lost on the way, or crossed the hello
        case PartPhase.PREPARED | PartPhase.GOING | PartPhase.LIVE:
            # One incarnation forgets no attempt before its end is confirmed: otherwise the hello is outdated.
            if is_new_life:
                attempt.take_node_away(draft, ours, node, "its gqnode restarted and has no record of the job")
        case _ as never:
            assert_never(never)


def on_heartbeat(draft: TurnBuilder, fact: NodeHeartbeat) -> None:
    """Record that the node is alive, and the readings of its GPUs."""
    if not _is_linked(draft, fact.heartbeat.node, fact.heartbeat.incarnation, fact.route):
        draft.enqueue(AskWhoIsThere(route=fact.route))
        return
    draft.volatile.heard_at[fact.heartbeat.node] = draft.now
    draft.volatile.gpu_readings[fact.heartbeat.node] = fact.heartbeat.gpus
    draft.enqueue(SendHeartbeatSeen(route=fact.route, at=draft.now))


def _is_linked(draft: TurnBuilder, node: str, incarnation: str, route: tuple[str, bytes]) -> bool:
    """Whether the node said hello over this link, with this incarnation."""
    known = draft.cluster.nodes.get(node)
    if draft.volatile.links.get(node) != route:
        return False
    return known is None or (known.incarnation == incarnation and not known.is_lost)


def on_report(draft: TurnBuilder, fact: NodeReport) -> None:
    """Act on a report and acknowledge it; stale reports are acknowledged, too, so that they are not repeated."""
    if not _is_linked(draft, fact.node, fact.incarnation, fact.route):
        draft.enqueue(AskWhoIsThere(route=fact.route))
        return
    draft.volatile.heard_at[fact.node] = draft.now
    seq = max(fact.seq, _heard_seq(draft, fact.node, fact.incarnation))
    draft.volatile.report_seqs[fact.node] = (fact.incarnation, seq)
    body, node = fact.body, fact.node
    _stop_if_orphan(draft, node, body)
    match body:
        case wire.PrepareReceived():
            attempt.on_prepare_received(draft, node, body)
        case wire.Prepared():
            attempt.on_prepared(draft, node, body)
        case wire.PrepareRefused():
            attempt.on_prepare_refused(draft, node, body)
        case wire.GoReceived():
            attempt.on_go_received(draft, node, body)
        case wire.Started():
            attempt.on_started(draft, node, body)
        case wire.AttemptEnded():
            attempt.on_attempt_ended(draft, node, body)
        case wire.CellEmptied():
            attempt.on_cell_emptied(draft, node, body)
        case wire.TimeLimitSet():
            attempt.on_time_limit_set(draft, node, body)
        case wire.SuspendedSet():
            if not parked.on_suspended_set(draft, node, body):
                suspend.on_suspended_set(draft, node, body)
        case wire.AttemptResized():
            elastic.on_resized(draft, node, body)
        case wire.StepReceived():
            step.on_received(draft, node, body)
        case wire.StepEnded():
            step.on_ended(draft, node, body)
        case wire.OrderConfirmed():
            owed_order.on_confirmed(draft, node, body)
        case _ as never:
            assert_never(never)
    draft.enqueue(AckReport(route=fact.route, seq=fact.seq))


def _stop_if_orphan(draft: TurnBuilder, node: str, body: wire.ReportBody) -> None:
    """Stop an attempt that the node should not have: its order arrived after the launch was rolled back."""
    if isinstance(body, _LIVING):
        ours = draft.cluster.attempts.get(body.attempt_id)
        if ours is None or node not in ours.parts:
            orders.stop_orphan(draft, body.attempt_id, node)


# ── loss ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """Mark nodes that have been silent for too long as lost."""
    for node in list(draft.cluster.nodes.values()):
        silent_s = draft.now - draft.volatile.heard_at.get(node.name, draft.volatile.started_at)
        if not node.is_lost and silent_s >= draft.policy.timers.node_lost_s:
            lose(draft, node)


def lose(draft: TurnBuilder, node: Node) -> None:
    """Mark the node as lost: its jobs are requeued, failed or continue without it."""
    draft.emit(event.NodeLost(at=draft.now, node=node.name))
    draft.volatile.links.pop(node.name, None)
    silence_s = draft.policy.timers.node_lost_s
    _give_up_parts(draft, node, f"not responding for {silence_s:g} s")


def _give_up_parts(draft: TurnBuilder, node: Node, why: str) -> None:
    """Every attempt with a part on the node fails, is requeued or continues without the node."""
    for attempt_id in sorted(node.held):
        ours = draft.cluster.attempts[attempt_id]
        attempt.fail_on_node(draft, ours, node.name, why)
        if node.name in ours.parts:
            attempt.strand_part(draft, ours, node.name)


# ── administrators ────────────────────────────────────────────────────────────────────────────────────────────


def decide_update(draft: TurnBuilder, caller: Caller, body: client.UpdateNodes) -> client.Done:
    """Drain, resume or set down nodes, or drain and resume one GPU of one node."""
    nodes = [known(draft, name) for name in dict.fromkeys(body.names)]
    if body.action in ("drain", "down") and not body.reason.strip():
        raise Refusal("no_reason", f"`{body.action}` needs a reason", "give one with --reason")
    if body.gpu is not None:
        _check_gpu(nodes, body.gpu, body.action)
    for node in nodes:
        _update(draft, caller.peer, node, body)
    return client.Done()


def _update(draft: TurnBuilder, peer: Peer, node: Node, body: client.UpdateNodes) -> None:
    reason = "".join(character if character.isprintable() else " " for character in body.reason)[:MAX_REASON]
    match body.action:
        case "drain":
            draft.emit(event.NodeDrained(at=draft.now, node=node.name, reason=reason, by=peer.user, gpu=body.gpu))
        case "down":
            draft.emit(event.NodeSetDown(at=draft.now, node=node.name, reason=reason, by=peer.user))
            _end_jobs_on(draft, node, f"set down by {peer.user}: {reason}")
        case "resume":
            draft.emit(event.NodeResumed(at=draft.now, node=node.name, gpu=body.gpu))
        case _:
            raise Refusal("bad_action", f"`{body.action}` is not drain, resume or down")


def _end_jobs_on(draft: TurnBuilder, node: Node, why: str) -> None:
    """End the jobs of a node that is set down, as on a lost node; the node itself empties its cells."""
    for attempt_id in sorted(node.held):
        attempt.take_node_away(draft, draft.cluster.attempts[attempt_id], node.name, why)


def decide_remove(draft: TurnBuilder, caller: Caller, body: client.RemoveNode) -> client.Done:
    """Remove a node for good, reachable or not, without waiting for its jobs."""
    name, reason = body.name, audit.printable(body.reason, MAX_REASON)
    node = draft.cluster.nodes.get(name)
    if node is None and not _has_key(draft, name) and name not in draft.volatile.links:
        known(draft, name)  # raises the refusal
    why = f"removed by {caller.peer.user}" + (f": {reason}" if reason else "")
    if node is not None:
        _give_up_all(draft, node, why)
    draft.emit(event.NodeRemoved(at=draft.now, node=name, reason=reason, by=caller.peer.user))
    key.close_link(draft, name, f"node {name} was {why}")
    draft.volatile.heard_at.pop(name, None)
    draft.volatile.gpu_readings.pop(name, None)
    draft.volatile.report_seqs.pop(name, None)
    draft.volatile.possible_shapes.clear()
    draft.enqueue(RemoveKeyFile(node=name))
    return client.Done(text=f"node {name} was removed from the cluster")


def on_key_file_deleted(draft: TurnBuilder, fact: KeyFileDeleted) -> None:
    """The shell has deleted the key file of a removed node."""
    if fact.node in draft.cluster.void_key_files:
        draft.emit(event.KeyFileGone(at=draft.now, node=fact.node))


def _has_key(draft: TurnBuilder, name: str) -> bool:
    return any(key_.kind is KeyKind.NODE and key_.name == name for key_ in draft.cluster.keys.values())


def _give_up_all(draft: TurnBuilder, node: Node, why: str) -> None:
    """Free all parts on a node that is removed.  The node is ordered to stop them, if it is reachable."""
    for attempt_id in sorted(node.held):
        ours = draft.cluster.attempts[attempt_id]
        attempt.take_node_away(draft, ours, node.name, why)
        attempt.empty_part(draft, ours, node.name, Usage())
    draft.volatile.order_clocks.forget_node(node.name)


def known(draft: TurnBuilder, name: str) -> Node:
    """The node of that name, or a `Refusal` with the nearest name."""
    node = draft.cluster.nodes.get(name)
    if node is not None:
        return node
    hint = suggestion(name, draft.cluster.nodes, "gqinfo -N lists the nodes")
    raise Refusal("unknown_node", f"node `{name}` does not exist", hint)


def _check_gpu(nodes: list[Node], gpu: int, action: str) -> None:
    if len(nodes) != 1 or action == "down":
        raise Refusal("bad_gpu", "GPUs are drained and resumed on one node at a time")
    indices = [gpu_.index for gpu_ in nodes[0].inventory.gpus]
    if gpu not in indices:
        have = f"it has {', '.join(map(str, indices))}" if indices else "it has none"
        raise Refusal("unknown_gpu", f"node `{nodes[0].name}` has no GPU {gpu}", have)
