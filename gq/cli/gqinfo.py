"""`gqinfo`: what the cluster has and what is free.

First line: the GPUs free by type and the largest gang that could start now.  A line of what is reserved, if anything is
within a day.  Then partitions, or with ``-N`` nodes
with what each enforces; with ``--isolation`` that alone, function by function.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.filter import refuse_unknown_partitions
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import Column, node_json, plural, write_json_list, write_line, write_sentence, write_table
from gq.cli.views.reserved import reserved_line
from gq.connection.client import Client
from gq.model.node import ClusterInfo, GangSize, GpuInfo, GpuSummary, IsolationLevels, NodeInfo, PartitionInfo
from gq.model.nodelist import compress, expand
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import format_duration, format_memory
from gq.wire.client import Cluster, GetCluster, ListNodes, Nodes

PARTITION_COLUMNS = (
    Column("PARTITION"),
    Column("AVAIL"),
    Column("TIMELIMIT", is_number=True),
    Column("NODES", is_number=True),
    Column("CPUS", is_number=True),
    Column("GPUS", is_number=True),
    Column("NODELIST", is_wide=True),
)
NODE_COLUMNS = (
    Column("NODE"),
    Column("STATE"),
    Column("PARTITIONS", is_wide=True),
    Column("CPUS", is_number=True),
    Column("MEMORY", is_number=True),
    Column("GPUS", is_wide=True),
    Column("ISOLATION", is_wide=True, is_wrapped=True),
)
MORE_COLUMNS = tuple(Column(name, is_wide=True) for name in ("FEATURES", "RESOURCES", "DATA", "SWITCH"))
"""Columns that are shown if any node has a value for them."""
REASON_COLUMN = Column("REASON", is_wide=True)
FUNCTIONS = IsolationLevels.__struct_fields__
ISOLATION_COLUMNS = (Column("NODE"), *(Column(function.upper()) for function in FUNCTIONS))


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -n for nodes and -p for partitions")
    with controller() as client:
        is_list = arguments.has("json") or arguments.has("isolation")
        if is_list and arguments.has("partition"):
            _partitions(ask(client, GetCluster(), Cluster).info, arguments)
        if arguments.has("json"):
            write_json_list(node_json(node) for node in _nodes(client, arguments))
            return 0
        if arguments.has("isolation"):
            rows = map(_isolation_row, _nodes(client, arguments))
            write_table(ISOLATION_COLUMNS, [rows], not arguments.has("noheader"))
            return 0
        info = ask(client, GetCluster(), Cluster).info
        partitions = _partitions(info, arguments)
        nodes = _nodes(client, arguments) if arguments.has("Node") or arguments.has("nodes") else None
        with_header = not arguments.has("noheader")
        if with_header:
            _write_summary(client, info)
        if nodes is not None:
            more = [column for column in MORE_COLUMNS if any(_more(node, column) for node in nodes)]
            lines = [_node_row(node, more) for node in nodes]
            write_table((*NODE_COLUMNS, *more, REASON_COLUMN), [lines], with_header)
        else:
            write_table(PARTITION_COLUMNS, [map(_partition_row, partitions)], with_header)
    return 0


def _write_summary(client: Client, info: ClusterInfo) -> None:
    """The line of free GPUs, and one of what is reserved soon."""
    write_line(headline(info))
    if told := reserved_line(client, time.time()):
        write_sentence(told)


def _nodes(client: Client, arguments: Arguments) -> list[NodeInfo]:
    names = arguments.gather("nodes", expand)
    partitions = set(arguments.words("partition"))
    nodes = ask(client, ListNodes(names=names), Nodes).nodes
    return [node for node in nodes if not partitions or partitions & set(node.partitions)]


def _partitions(info: ClusterInfo, arguments: Arguments) -> list[PartitionInfo]:
    wanted = arguments.words("partition")
    refuse_unknown_partitions(wanted, [partition.partition for partition in info.partitions])
    return [partition for partition in info.partitions if not wanted or partition.partition in wanted]


# ── the first line ────────────────────────────────────────────────────────────────────────────────────────────


def headline(info: ClusterInfo) -> str:
    """``GPUs 41/64 free: 12×h100 29×a100; largest gang startable now: 8 on 1 node, 24 on 3``"""
    total, free = sum(kind.total for kind in info.gpus), sum(kind.free for kind in info.gpus)
    if not total:
        return "no GPUs"
    kinds = " ".join(f"{kind.free}×{kind.type}" for kind in info.gpus if kind.free)
    gangs = _gangs(info.largest_gangs) or "none"
    return f"GPUs {free}/{total} free{': ' if kinds else ''}{kinds}; largest gang startable now: {gangs}"


def _gangs(gangs: Sequence[GangSize]) -> str:
    """Only the first says what it counts: ``8 on 1 node, 24 on 3``."""
    words = [f"{gang.gpus} on {plural(gang.nodes, 'node')}" for gang in gangs[:1]]
    words += [f"{gang.gpus} on {gang.nodes}" for gang in gangs[1:]]
    return ", ".join(words)


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _partition_row(partition: PartitionInfo) -> tuple[str, ...]:
    return (
        f"{partition.partition}*" if partition.is_default else partition.partition,
        partition.state.lower(),
        format_duration(partition.max_time_s, "infinite"),
        str(len(partition.nodes)),
        f"{partition.cpus_free}/{partition.cpus}",
        _gpu_counts(partition.gpus),
        compress(partition.nodes),
    )


def _gpu_counts(kinds: Sequence[GpuSummary]) -> str:
    return " ".join(f"{kind.free}/{kind.total}×{kind.type}" for kind in kinds) or "0"


def _more(node: NodeInfo, column: Column) -> str:
    match column.header:
        case "FEATURES":
            return ",".join(node.features)
        case "RESOURCES":
            return " ".join(_resource(node, name) for name in node.resources)
        case "DATA":
            return ",".join(node.data)
        case _:
            return node.switch


def _resource(node: NodeInfo, name: str) -> str:
    """``fpga:1/2``, ``tmp:200G/800G``: free of all."""
    counts = (node.resources_free.get(name, 0), node.resources[name])
    free, total = map(format_memory, counts) if name == "tmp" else map(str, counts)
    return f"{name}:{free}/{total}"


def _node_row(node: NodeInfo, more: Sequence[Column]) -> tuple[str, ...]:
    return (
        node.node,
        node.state.lower(),
        ",".join(node.partitions),
        f"{node.cpus_free}/{node.cpus}",
        f"{format_memory(node.memory_free_mib)}/{format_memory(node.memory_mib)}",
        _gpu_states(node.gpus),
        node.isolation.summary(),
        *(_more(node, column) or "none" for column in more),
        node.reason or "none",
    )


def _isolation_row(node: NodeInfo) -> tuple[str, ...]:
    return (node.node, *(str(getattr(node.isolation, function)) for function in FUNCTIONS))


def _gpu_states(gpus: Sequence[GpuInfo]) -> str:
    """``3/4×a100`` free by type, then what is drained: ``drained:2``."""
    kinds = dict.fromkeys(gpu.type for gpu in gpus)
    words = [_gpu_counts([_summary(kind, gpus)]) for kind in kinds]
    drained = [str(gpu.index) for gpu in gpus if gpu.state == "DRAINED"]
    if drained:
        words.append(f"drained:{','.join(drained)}")
    return " ".join(words) or "0"


def _summary(kind: str, gpus: Sequence[GpuInfo]) -> GpuSummary:
    alike = [gpu for gpu in gpus if gpu.type == kind]
    return GpuSummary(type=kind, total=len(alike), free=sum(gpu.state == "IDLE" for gpu in alike))


COMMAND = Command(
    name="gqinfo",
    summary="Show the cluster's resources and how many are free.",
    details=(
        "The first line shows the free GPUs by type and the largest gang that could start now. CPUS and GPUS are "
        "free/total. --Node shows each node with the limits that it enforces."
    ),
    options=(
        Option(name="Node", letter="N", help="One line per node, with the limits that it enforces."),
        Option(name="isolation", help="Show which limits each node enforces, by function."),
        Option(name="nodes", letter="n", metavar="NODES", help="Only these nodes (implies --Node)."),
        Option(name="partition", letter="p", metavar="NAMES", help="Only these partitions."),
        Option(name="noheader", letter="h", help="Omit the header line and the line of free GPUs."),
        JSON,
    ),
    run=run,
)
