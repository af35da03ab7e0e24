"""Sends effects as messages; called only when their events are on disk.

Owns the routes to nodes and the grouping of orders and acknowledgements.  A message that cannot be delivered is counted
and dropped: clients repeat requests, the controller repeats orders, and nodes repeat reports.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

import msgspec

from gq.connection.loop_socket import LoopSocket
from gq.wire import client, node
from gq.wire.codec import WIRE_VERSION
from gqd.shell.listeners.nodes import relay_target
from gqd.shell.log import LOG
from gqd.shell.metrics import Counters
from gqd.shell.requests.history import Question
from gqd.state import effect
from gqd.state.input import ClientRequest, Route
from gqd.state.policy import Policy

MAX_BLOB_BYTES = 16 * 1024 * 1024
"""Size of the scripts and environments in one `Orders`; further orders go into the next."""

NodeOrders = list[node.Order]


def blob_names(order: node.Order) -> tuple[str, ...]:
    """Names of the blobs that are sent with an order."""
    if not isinstance(order, node.Prepare):
        return ()
    return tuple(name for name in (order.launch.script_digest, order.launch.environment_digest) if name)


def wanted_blobs(effects: tuple[effect.Effect, ...]) -> tuple[str, ...]:
    """Names of the blobs that these effects send."""
    names: dict[str, None] = {}
    for one in effects:
        if isinstance(one, effect.SendOrder):
            names.update(dict.fromkeys(blob_names(one.order)))
        elif isinstance(one, effect.ReplyScript) and one.digest:
            names[one.digest] = None
    return tuple(names)


class EffectDispatcher:
    """Sends effects through `listeners` (by name).  After a change of `policy`, call `welcome_again`."""

    def __init__(
        self,
        listeners: Mapping[str, LoopSocket],
        policy: Policy,
        counters: Counters,
        ask_history: Callable[[Question], None],
        remove_key_file: Callable[[str], None] = lambda node: None,
        read_config: Callable[[ClientRequest], None] = lambda request: None,
        fire_cron: Callable[[effect.FireCron], None] = lambda one: None,
        send_notice: Callable[[effect.SendNotice], None] = lambda one: None,
        ask_events: Callable[[effect.ReplyEvents], None] = lambda one: None,
    ) -> None:
        self._listeners = listeners
        self.policy = policy
        self._counters = counters
        self._ask_history = ask_history
        self._remove_key_file = remove_key_file
        self._read_config = read_config
        self._fire_cron = fire_cron
        self._send_notice = send_notice
        self._ask_events = ask_events
        self._links: dict[str, Route] = {}

    def release(self, effects: tuple[effect.Effect, ...], blobs: Mapping[str, bytes]) -> None:
        """Send all effects now, those to nodes before replies to clients, so that jobs start early."""
        acks: dict[Route, list[int]] = {}
        orders: dict[str, NodeOrders] = {}
        replies: list[effect.Reply] = []
        closing: list[effect.CloseLink] = []
        for one in effects:
            match one:
                case effect.Reply():
                    replies.append(one)
                case effect.ReplyScript():
                    script = client.Script(data=blobs.get(one.digest, b""))
                    replies.append(effect.Reply(route=one.route, request_id=one.request_id, body=script))
                case effect.AckReport():
                    acks.setdefault(one.route, []).append(one.seq)
                case effect.SendOrder():
                    orders.setdefault(one.node, []).append(one.order)
                case effect.CloseLink():
                    closing.append(one)
                case _:
                    self._do(one)
        for name, owed in orders.items():
            self._send_orders(name, owed, blobs)
        for route, seqs in acks.items():
            self._tell(route, node.Ack(seqs=tuple(seqs)))
        for last in closing:  # a removed node must first receive its orders to stop
            self._close(last)
        for reply in replies:
            self.reply(reply)

    def reply(self, reply: effect.Reply) -> None:
        """Send a reply to a client, directly or through the node that relayed the request."""
        data = client.reply(reply.request_id, self._with_counters(reply.body))
        relayed = relay_target(reply.route)
        if relayed is None:
            is_sent = self._send(reply.route, data)
        else:
            link, relay_id = relayed
            is_sent = self._tell(link, node.RelayReply(relay_id=relay_id, payload=data))
        self._counters.replies += is_sent
        self._counters.replies_dropped += not is_sent

    def _do(
        self,
        history: effect.ReplyHistory
        | effect.SendWelcome
        | effect.SendHeartbeatSeen
        | effect.AskWhoIsThere
        | effect.SendJoined
        | effect.ReplyAudit
        | effect.ReplyAccuracy
        | effect.ReplyReservations
        | effect.ReplyBookings
        | effect.RemoveKeyFile
        | effect.ReadConfig
        | effect.FireCron
        | effect.SendNotice
        | effect.ReplyNotices
        | effect.ReplyEvents,
    ) -> None:
        match history:
            case effect.ReadConfig():
                self._read_config(history.request)
            case effect.FireCron():
                self._fire_cron(history)
            case effect.SendNotice():
                self._send_notice(history)
            case effect.ReplyEvents():
                self._ask_events(history)
            case effect.RemoveKeyFile():
                self._remove_key_file(history.node)
            case effect.SendJoined():
                self._tell(
                    history.route,
                    node.Joined(cluster=self.policy.cluster, node=history.node, is_login=history.is_login),
                )
            case (
                effect.ReplyHistory()
                | effect.ReplyAudit()
                | effect.ReplyAccuracy()
                | effect.ReplyReservations()
                | effect.ReplyBookings()
                | effect.ReplyNotices()
            ):
                self._ask_history(history)
            case effect.SendWelcome():
                self._links[history.node] = history.route
                self._tell(history.route, self._welcome())
            case effect.SendHeartbeatSeen():
                self._tell(history.route, node.HeartbeatSeen(at=history.at))
            case effect.AskWhoIsThere():
                self._tell(history.route, node.WhoIsThere())
            case _:
                assert_never(history)

    def _close(self, link: effect.CloseLink) -> None:
        self._links = {name: route for name, route in self._links.items() if route != link.route}
        LOG.warning("a node was rejected: %s", link.why)
        self._tell(link.route, node.Unwelcome(why=link.why, is_removed=link.is_removed))

    def welcome_again(self) -> None:
        """Send `Welcome` to every node, which tells it the heartbeat interval."""
        for route in self._links.values():
            self._tell(route, self._welcome())

    def _welcome(self) -> node.Welcome:
        return node.Welcome(
            cluster=self.policy.cluster,
            version=WIRE_VERSION,
            heartbeat_s=self.policy.timers.heartbeat_s,
            owner_uid=self.policy.owner_uid,
            is_shared=self.policy.is_shared,
        )

    def _with_counters(self, body: client.ReplyBody) -> client.ReplyBody:
        """The body of a reply; the shell's counters are added to `ClusterInfo`."""
        if not isinstance(body, client.Cluster):
            return body
        counters = {**body.info.counters, **self._counters.as_dict()}
        return client.Cluster(info=msgspec.structs.replace(body.info, counters=counters))

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_orders(self, name: str, owed: NodeOrders, blobs: Mapping[str, bytes]) -> None:
        link = self._links.get(name)
        for orders in _bunches(owed, blobs):
            named = {digest for order in orders for digest in blob_names(order)}
            beside = {digest: blobs[digest] for digest in sorted(named) if digest in blobs}
            is_sent = link is not None and self._tell(link, node.Orders(orders=tuple(orders), blobs=beside))
            if is_sent:
                self._counters.orders += len(orders)
            else:
                self._counters.orders_dropped += len(orders)

    def _tell(self, route: Route, message: node.ControllerMessage) -> bool:
        return self._send(route, node.CONTROLLER_MESSAGES.encode(message))

    def _send(self, route: Route, data: bytes) -> bool:
        listener = self._listeners.get(route[0])
        return listener is not None and listener.send(data, route[1])


def _bunches(orders: NodeOrders, blobs: Mapping[str, bytes]) -> list[NodeOrders]:
    """The orders in sequence, in groups with at most `MAX_BLOB_BYTES` of blobs (or a single order that has more)."""
    bunches: list[NodeOrders] = []
    room = 0
    for order in orders:
        size = sum(len(blobs.get(name, b"")) for name in blob_names(order))
        if not bunches or size > room:
            bunches.append([])
            room = MAX_BLOB_BYTES
        bunches[-1].append(order)
        room -= size
    return bunches
