"""`gqctl partition VERB`: what is known of partitions.  They are settings of gq.toml, and are changed there."""

from __future__ import annotations

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.filter import refuse_unknown_partitions
from gq.cli.framework.operands import listed
from gq.cli.framework.output import write_json_list, write_records
from gq.model.node import GpuSummary, PartitionInfo
from gq.request.getopt import Arguments
from gq.units import format_duration
from gq.wire.client import Cluster, GetCluster


def show(arguments: Arguments) -> int:
    names = tuple(name for word in arguments.operands for name in listed(word))
    with controller() as client:
        partitions = ask(client, GetCluster(), Cluster).info.partitions
    known = {partition.partition: partition for partition in partitions}
    refuse_unknown_partitions(names, known)
    chosen = [known[name] for name in names or known]
    if arguments.has("json"):
        write_json_list(partition_detail(partition) for partition in chosen)
    else:
        write_records(_record(partition) for partition in chosen)
    return 0


def partition_detail(partition: PartitionInfo) -> dict[str, object]:
    """The JSON of a partition: its settings, its nodes and what they have."""
    return {
        "partition": partition.partition,
        "is_default": partition.is_default,
        "state": partition.state,
        "default_time_s": partition.default_time_s,
        "max_time_s": partition.max_time_s,
        "nodes": partition.nodes,
        "cpus": partition.cpus,
        "cpus_free": partition.cpus_free,
        "gpus": [{"type": kind.type, "total": kind.total, "free": kind.free} for kind in partition.gpus],
    }


def _record(partition: PartitionInfo) -> dict[str, object]:
    """Times and GPUs as people write them."""
    shown = partition_detail(partition)
    shown["default_time_s"] = format_duration(partition.default_time_s, "none")
    shown["max_time_s"] = format_duration(partition.max_time_s, "none")
    shown["gpus"] = [_gpus(kind) for kind in partition.gpus]
    return {name.removesuffix("_s"): value for name, value in shown.items()}


def _gpus(kind: GpuSummary) -> str:
    return f"{kind.type}: {kind.free} of {kind.total} free"


def verbs() -> dict[str, Command]:
    return {
        "show": Command(
            name="gqctl partition show",
            summary="Show partitions: settings, nodes and free resources.",
            operands="[PARTITION...]",
            options=(JSON,),
            run=show,
        ),
    }
