"""What could be asked for instead: fewer GPUs, others, less time, a reservation, another partition or QOS.  Pure.

Only what differs from the request is offered, the most promising of each kind first and the kinds in turn; whether
this user may ask for it, and when it would start, others say (`gqd.control.whatif`).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice, zip_longest
from typing import NamedTuple

import msgspec

from gq.model.job import JobSpec
from gq.model.reservation import Flag
from gq.model.resource import ResourceRequest, least_demand
from gq.units import format_duration
from gqd.control.snapshot import booked_of
from gqd.sched.blocked import counted
from gqd.state import event
from gqd.state.cluster import Cluster
from gqd.state.policy import Policy
from gqd.state.tally import account_path

PARTS_OF_TIME = (2, 4, 8, 16, 32)
SHORT_TIMES_S = (3600, 4 * 3600, 900, 12 * 3600, 300)
"""Instead of no limit."""
LEAST_TIME_S = 60
MOST_RESERVED = 3
"""Of time limits that end before something that is reserved."""


class Variant(NamedTuple):
    options: str
    """What to add to the command line."""
    what: str
    spec: JobSpec


def alternatives_to(cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted) -> Iterator[Variant]:
    """All kinds in turn; `asked`: the request with its defaults filled in."""
    resources = asked.spec.resources
    kinds = (
        _before_what_is_reserved(cluster, policy, spec, asked),
        _in_reservations(cluster, policy, spec, asked),
        _fewer_gpus(spec, resources),
        _shorter(spec, asked.time_limit_s),
        _other_types(cluster, spec, resources),
        _other_partitions(policy, spec, asked.partition),
        _other_qos(cluster, spec, asked.qos),
        _spread(spec, resources),
        _less_of_nodes(spec, resources),
    )
    rounds = zip_longest(*kinds)
    return (one for one in chain.from_iterable(rounds) if one is not None)


def _asking(spec: JobSpec, **changes: object) -> JobSpec:
    return msgspec.structs.replace(spec, resources=msgspec.structs.replace(spec.resources, **changes))


def _typed(resources: ResourceRequest, count: int, gpu_type: str | None = None) -> str:
    name = gpu_type or resources.gpu_type
    return f"{name}:{count}" if name else str(count)


def _halves(count: int) -> Iterator[int]:
    while count > 1:
        count //= 2
        yield count


def _fewer_gpus(spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """However they were asked for: in all, for each node, or for each task."""
    before = least_demand(resources).gpus
    if not before or resources.roles:
        return
    if resources.gpus:
        for count in _halves(resources.gpus):
            changed = _asking(spec, gpus=count)
            yield Variant(f"--gpus={_typed(resources, count)}", _instead(changed, before), changed)
    elif (resources.nodes_min or 1) > 1 and resources.gpus_per_node:
        for nodes in _halves(resources.nodes_min or 1):
            ntasks = (
                None if resources.ntasks is None else max(nodes, resources.ntasks * nodes // (resources.nodes_min or 1))
            )
            changed = _asking(spec, nodes_min=nodes, nodes_max=nodes, ntasks=ntasks)
            tasks = "" if ntasks is None else f" --ntasks={ntasks}"
            yield Variant(f"--nodes={nodes}{tasks}", _instead(changed, before), changed)
    elif resources.gpus_per_node:
        for count in _halves(resources.gpus_per_node):
            changed = _asking(spec, gpus_per_node=count)
            yield Variant(f"--gpus-per-node={_typed(resources, count)}", _instead(changed, before), changed)
    elif resources.gpus_per_task and (resources.ntasks or 1) > 1:
        for ntasks in _halves(resources.ntasks or 1):
            changed = _asking(spec, ntasks=ntasks)
            yield Variant(f"--ntasks={ntasks}", _instead(changed, before), changed)


def _instead(changed: JobSpec, before: int) -> str:
    return f"{counted(least_demand(changed.resources).gpus, 'GPUs')} instead of {before}"


def _shorter(spec: JobSpec, limit_s: int | None) -> Iterator[Variant]:
    """A shorter job fits into more holes."""
    times = SHORT_TIMES_S if limit_s is None else tuple(limit_s // part // 60 * 60 for part in PARTS_OF_TIME)
    before = "no time limit" if limit_s is None else format_duration(limit_s)
    for time_s in times:
        if _is_shorter(time_s, limit_s):
            told = format_duration(time_s)
            what = f"{told} instead of {before}"
            yield Variant(f"--time={told}", what, msgspec.structs.replace(spec, time_limit_s=time_s))


def _before_what_is_reserved(
    cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted
) -> Iterator[Variant]:
    """So short that it is over when something is to be clear."""
    booked = booked_of(cluster.reservations.values(), policy.clear_s, asked.at)
    left = dict.fromkeys(_minutes_s(one.clear_at - asked.at) for one in booked)
    before = "no time limit" if asked.time_limit_s is None else format_duration(asked.time_limit_s)
    for time_s in islice((one for one in left if _is_shorter(one, asked.time_limit_s)), MOST_RESERVED):
        told = format_duration(time_s)
        what = f"{told} instead of {before}: over before what is reserved"
        yield Variant(f"--time={told}", what, msgspec.structs.replace(spec, time_limit_s=time_s))


def _in_reservations(cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted) -> Iterator[Variant]:
    """Those that its user may use, and if need be so short that it is over when they are."""
    path = account_path(cluster.accounts, asked.account)
    booked = booked_of(cluster.reservations.values(), policy.clear_s, asked.at)
    for name, known in cluster.reservations.items():
        if not known.may_be_used_by(asked.user, path):
            continue
        rooms = [_minutes_s(one.closes_at - max(asked.at, one.begin_at)) for one in booked if one.name == name]
        changed = msgspec.structs.replace(spec, reservation=name)
        if rooms and (
            Flag.FLEX in known.booking.flags or (asked.time_limit_s is not None and max(rooms) >= asked.time_limit_s)
        ):
            if name != spec.reservation:
                yield Variant(f"--reservation={name}", f"in reservation {name}", changed)
        elif rooms and _is_shorter(max(rooms), asked.time_limit_s):
            told = format_duration(max(rooms))
            shorter = msgspec.structs.replace(changed, time_limit_s=max(rooms))
            options = f"--time={told}" if name == spec.reservation else f"--reservation={name} --time={told}"
            yield Variant(options, f"{told} in reservation {name}", shorter)


def _minutes_s(seconds: float) -> int:
    return int(seconds) // 60 * 60


def _is_shorter(time_s: int, limit_s: int | None) -> bool:
    return time_s >= LEAST_TIME_S and (limit_s is None or time_s < limit_s)


def _other_types(cluster: Cluster, spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """The same number of GPUs of each type that there is."""
    if not least_demand(resources).gpus or resources.roles:
        return
    kinds = sorted({gpu.type for node in cluster.nodes.values() for gpu in node.inventory.gpus})
    option, count = _gpu_option(resources)
    for gpu_type in kinds if len(kinds) > 1 else ():
        if gpu_type != resources.gpu_type:
            before = f"instead of {resources.gpu_type}" if resources.gpu_type else "instead of any"
            changed = _asking(spec, gpu_type=gpu_type)
            yield Variant(f"{option}={gpu_type}:{count}", f"GPUs of type {gpu_type} {before}", changed)
    if resources.gpu_type and len(kinds) > 1:
        what = f"GPUs of any type instead of {resources.gpu_type}"
        yield Variant(f"{option}={count}", what, _asking(spec, gpu_type=None))


def _gpu_option(resources: ResourceRequest) -> tuple[str, int]:
    if resources.gpus_per_node:
        return "--gpus-per-node", resources.gpus_per_node
    if resources.gpus_per_task:
        return "--gpus-per-task", resources.gpus_per_task
    return "--gpus", resources.gpus or 0


def _other_partitions(policy: Policy, spec: JobSpec, partition: str) -> Iterator[Variant]:
    for one in policy.partitions:
        if one.name != partition and one.is_up:
            changed = msgspec.structs.replace(spec, partition=one.name)
            yield Variant(f"--partition={one.name}", f"partition {one.name} instead of {partition}", changed)


def _other_qos(cluster: Cluster, spec: JobSpec, qos: str) -> Iterator[Variant]:
    for name in sorted(cluster.qos):
        if name != qos:
            yield Variant(f"--qos={name}", f"QOS {name} instead of {qos}", msgspec.structs.replace(spec, qos=name))


def _spread(spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """The same over twice as many nodes, or half as many."""
    nodes, per_node = resources.nodes_min or 1, resources.gpus_per_node
    if resources.roles or resources.ntasks_per_node:
        return
    if per_node and per_node % 2 == 0:
        changed = _asking(
            spec,
            nodes_min=2 * nodes,
            nodes_max=2 * nodes,
            gpus_per_node=per_node // 2,
            ntasks=resources.ntasks and max(resources.ntasks, 2 * nodes),
        )
        options = f"--nodes={2 * nodes} --gpus-per-node={_typed(resources, per_node // 2)}"
        yield Variant(options, f"over {2 * nodes} nodes instead of {nodes}", changed)
    elif (resources.gpus or 0) > 1 and resources.nodes_min is None:
        yield Variant("--nodes=2", "over 2 nodes", _asking(spec, nodes_min=2, nodes_max=2))


def _less_of_nodes(spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """Fewer CPUs, and less memory."""
    if resources.roles:
        return
    if (resources.cpus_per_task or 1) > 1:
        for cpus in _halves(resources.cpus_per_task or 1):
            what = f"{counted(cpus, 'CPUs')} a task instead of {resources.cpus_per_task}"
            yield Variant(f"--cpus-per-task={cpus}", what, _asking(spec, cpus_per_task=cpus))
            break
    for name, option in _MEMORY:
        before = getattr(resources, name) or 0
        if before >= 2:
            yield Variant(
                f"{option}={before // 2}M", f"half of the memory ({before // 2}M)", _asking(spec, **{name: before // 2})
            )


_MEMORY = (("mem_per_node_mib", "--mem"), ("mem_per_cpu_mib", "--mem-per-cpu"), ("mem_per_gpu_mib", "--mem-per-gpu"))
