"""Apply the events of nodes to the cluster.  Pure; decides nothing (see `gqd.control.apply.table`)."""

from __future__ import annotations

from gq.model.key import KeyKind
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.records import Node


def apply_registered(cluster: Cluster, fact: event.NodeRegistered) -> None:
    node = cluster.nodes.get(fact.node)
    if node is None:
        node = cluster.nodes[fact.node] = Node(
            name=fact.node,
            address=fact.address,
            inventory=fact.inventory,
            incarnation=fact.incarnation,
            boot_id=fact.boot_id,
            step_endpoint=fact.step_endpoint,
            step_public_key=fact.step_public_key,
            ticket_key=fact.ticket_key,
            registered_at=fact.at,
        )
        cluster.ordered_nodes = None
    node.address, node.inventory = fact.address, fact.inventory
    node.incarnation, node.boot_id = fact.incarnation, fact.boot_id
    node.step_endpoint, node.step_public_key, node.ticket_key = (
        fact.step_endpoint,
        fact.step_public_key,
        fact.ticket_key,
    )
    node.registered_at = fact.at
    node.is_lost = False
    indices = {gpu.index for gpu in fact.inventory.gpus}
    node.drained_gpus = {index: why for index, why in node.drained_gpus.items() if index in indices}
    node.recount()
    for held in node.held:
        cluster.attempts[held].view = None  # the node's abilities, which its view depends on, may have changed
    _touch(cluster, fact.node)


def apply_lost(cluster: Cluster, fact: event.NodeLost) -> None:
    cluster.nodes[fact.node].is_lost = True
    _touch(cluster, fact.node)


def apply_drained(cluster: Cluster, fact: event.NodeDrained) -> None:
    node = cluster.nodes[fact.node]
    if fact.gpu is not None:
        node.drained_gpus[fact.gpu] = fact.reason
    else:
        node.is_drained = True
        node.reason, node.reason_by, node.reason_at = fact.reason, fact.by, fact.at
    _touch(cluster, fact.node)


def apply_set_down(cluster: Cluster, fact: event.NodeSetDown) -> None:
    node = cluster.nodes[fact.node]
    node.is_down = True
    node.reason, node.reason_by, node.reason_at = fact.reason, fact.by, fact.at
    _touch(cluster, fact.node)


def apply_resumed(cluster: Cluster, fact: event.NodeResumed) -> None:
    node = cluster.nodes[fact.node]
    if fact.gpu is not None:
        node.drained_gpus.pop(fact.gpu, None)
    else:
        node.is_drained = node.is_down = False
        node.reason, node.reason_by, node.reason_at = "", "", None
        node.backoff_until, node.backoff_failures = 0.0, 0
    _touch(cluster, fact.node)


def apply_removed(cluster: Cluster, fact: event.NodeRemoved) -> None:
    """Remove the node with all its keys; a login node has only its key."""
    node = cluster.nodes.pop(fact.node, None)
    cluster.ordered_nodes = None
    assert node is None or not node.held, f"{fact.node} still holds {node.held} and was to be removed"
    _touch(cluster, fact.node)
    for public in [key.public for key in cluster.keys.values() if key.kind is KeyKind.NODE and key.name == fact.node]:
        cluster.drop_key(public)
        cluster.changes.keys[public] = None
    cluster.void_key_files[fact.node] = None
    cluster.changes.void_key_files = True


def apply_key_file_gone(cluster: Cluster, fact: event.KeyFileGone) -> None:
    del cluster.void_key_files[fact.node]
    cluster.changes.void_key_files = True


def apply_backed_off(cluster: Cluster, fact: event.NodeBackedOff) -> None:
    node = cluster.nodes[fact.node]
    node.backoff_until, node.backoff_failures = fact.until, fact.failures
    _touch(cluster, fact.node)


def apply_backoff_cleared(cluster: Cluster, fact: event.NodeBackoffCleared) -> None:
    node = cluster.nodes[fact.node]
    node.backoff_until, node.backoff_failures = 0.0, 0
    _touch(cluster, fact.node)


def _touch(cluster: Cluster, name: str) -> None:
    cluster.changes.nodes[name] = None
    if (node := cluster.nodes.get(name)) is not None:
        node.view = None
