"""`gqctl node VERB`: what operators do to nodes, and to single GPUs of them (``n1:2``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import read
from gq.cli.framework.output import local_time, node_json, write_json_list, write_records
from gq.errors import Refusal, UsageError
from gq.model.node import GpuInfo, NodeInfo
from gq.model.nodelist import expand
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import Done, ListNodes, Nodes, RemoveNode, UpdateNodes

UNBUILT = ("reboot",)

REASON = Option(name="reason", letter="r", metavar="TEXT", help="Reason, shown with the node (required).")


class Target(NamedTuple):
    """Nodes, or one GPU of one node."""

    nodes: tuple[str, ...]
    gpu: int | None = None


def parse_target(text: str) -> Target:
    """``n[1-4]``, ``n1:2``; ``ValueError`` with a sentence."""
    nodes, colon, gpu = text.partition(":")
    names = expand(nodes)
    if not names:
        raise ValueError(f"`{text}` does not name a node")
    if not colon:
        return Target(names)
    if len(names) != 1:
        raise ValueError(f"`{text}` is a GPU of several nodes; name one node")
    return Target(names, whole_number(gpu, 0))


def _targets(arguments: Arguments) -> list[Target]:
    """All nodes in one target, each GPU in its own."""
    if not arguments.operands:
        raise UsageError("missing_operand", "NODE is missing", "for example n1, n[1-4] or n1:2 for one GPU")
    found = [read(parse_target, word) for word in arguments.operands]
    nodes = tuple(name for target in found if target.gpu is None for name in target.nodes)
    whole = [Target(nodes)] if nodes else []
    return whole + [target for target in found if target.gpu is not None]


def _update(action: str) -> Callable[[Arguments], int]:
    def run(arguments: Arguments) -> int:
        targets = _targets(arguments)
        reason = arguments.text("reason").strip()
        if action != "resume" and not reason:
            raise UsageError("missing_option", f"`gqctl node {action}` needs a reason", "add --reason='what is wrong'")
        if action == "down" and any(target.gpu is not None for target in targets):
            raise UsageError("contradiction", "a single GPU cannot be set to down", "use `gqctl node drain` for it")
        with controller() as client:
            for target in targets:
                request = UpdateNodes(names=target.nodes, action=action, reason=reason, gpu=target.gpu)
                ask(client, request, Done)
        return 0

    return run


def _remove(arguments: Arguments) -> int:
    targets = _targets(arguments)
    if any(target.gpu is not None for target in targets):
        raise UsageError("contradiction", "a single GPU cannot be removed", "use `gqctl node drain` for it")
    with controller() as client:
        for name in (name for target in targets for name in target.nodes):
            ask(client, RemoveNode(name=name, reason=arguments.text("reason").strip()), Done)
    return 0


def show(arguments: Arguments) -> int:
    names = tuple(name for word in arguments.operands for name in read(expand, word))
    with controller() as client:
        nodes = ask(client, ListNodes(names=names), Nodes).nodes
    missing = [name for name in names if name not in {node.node for node in nodes}]
    if missing:
        raise Refusal("unknown_node", f"node `{missing[0]}` does not exist", "gqinfo -N lists the nodes")
    if arguments.has("json"):
        write_json_list(node_detail(node) for node in nodes)
    else:
        write_records(_record(node) for node in nodes)
    return 0


def node_detail(node: NodeInfo) -> dict[str, object]:
    """The documented keys, then the rest."""
    return {
        **node_json(node),
        "address": node.address,
        "job_ids": node.job_ids,
        "gq_version": node.gq_version,
        "last_heard_at": iso_instant(node.last_heard_at),
        "backed_off_until": iso_instant(node.backed_off_until),
    }


def _record(node: NodeInfo) -> dict[str, object]:
    """Return the fields of `node_detail` with values formatted for people."""
    return {
        **node_detail(node),
        "gpus": [_gpu(gpu) for gpu in node.gpus],
        "isolation": node.isolation.summary(),
        "attributes": [f"{name}={value}" for name, value in node.attributes.items()],
        "resources": [f"{name}:{count}" for name, count in node.resources.items()],
        "resources_free": [f"{name}:{count}" for name, count in node.resources_free.items()],
        "last_heard_at": local_time(node.last_heard_at, "never"),
        "backed_off_until": local_time(node.backed_off_until, ""),
    }


def _gpu(gpu: GpuInfo) -> str:
    holder = f" job {gpu.job_id}" if gpu.job_id else ""
    return f"{gpu.index} {gpu.type} {gpu.memory_mib} MiB {gpu.state}{holder} {gpu.uuid}"


def verbs() -> dict[str, Command]:
    return {
        "show": Command(
            name="gqctl node show",
            summary="Show all details of nodes.",
            operands="[NODES...]",
            options=(JSON,),
            run=show,
        ),
        "drain": Command(
            name="gqctl node drain",
            summary="Drain nodes or single GPUs: no new jobs; running jobs continue.",
            operands="NODE[:GPU]...",
            options=(REASON,),
            run=_update("drain"),
        ),
        "resume": Command(
            name="gqctl node resume",
            summary="Return drained or downed nodes or GPUs to service.",
            operands="NODE[:GPU]...",
            run=_update("resume"),
        ),
        "down": Command(
            name="gqctl node down",
            summary="Take nodes out of service at once; their jobs are requeued or end with NODE_FAIL.",
            operands="NODE...",
            options=(REASON,),
            run=_update("down"),
        ),
        "remove": Command(
            name="gqctl node remove",
            summary="Remove nodes from the cluster: their keys are revoked at once, their jobs end as on a lost node.",
            operands="NODE...",
            options=(Option(name="reason", letter="r", metavar="TEXT", help="Reason, for the audit trail."),),
            run=_remove,
        ),
    }
