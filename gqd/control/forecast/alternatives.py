"""Requests that a user could make instead: fewer GPUs, less time, other types, QOS, partitions, reservations.  Pure.

Each kind of change is a *search*: a generator that yields requests and is sent the estimated start of each.  A number
(of GPUs, minutes, CPUs) is found by bisection; everything else is tried one after the other.
`gqd.control.forecast.whatif` checks whether the user may make a request, and when it would start.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeAlias

import msgspec

from gq.model.account import with_built_in
from gq.model.job import JobSpec
from gq.model.reservation import Flag
from gq.model.resource import ResourceRequest, min_demand
from gq.units import counted, format_duration
from gqd.control.snapshot import booked_of
from gqd.sched.forecast import ForecastStart
from gqd.state.cluster import Cluster
from gqd.state.events import event
from gqd.state.index.tally import account_path
from gqd.state.policy import Policy

MIN_TIME_S = 60
MAX_TIME_S = 7 * 86400
"""The longest time limit that is tried for a job without one."""
SHORTEST_PART = 64
"""The shortest time limit that is tried is the requested one divided by this."""
MAX_RESERVED = 3
"""Time limits tried that end before a reservation begins."""
MEMORY_PARTS = 16
"""Memory is tried in steps of the requested amount divided by this."""


class Variant(NamedTuple):
    options: str
    """Options to add to the command line."""
    what: str
    spec: JobSpec
    family: str = ""
    """Variants of one family differ in one number; only the largest of those that start together is shown."""
    size: int = 0
    """The number in which the family differs."""


Search: TypeAlias = Generator[Variant, ForecastStart | None, None]
"""Yields requests; is sent the estimated start of each, or None: the request is refused, or its start is unknown."""


def searches(
    cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted, entry: ForecastStart | None
) -> list[Search]:
    """All searches, those with few forecasts first.  `asked`: the request with its defaults; `entry`: its start."""
    resources = asked.spec.resources
    each = (
        _other_qos(cluster, spec, asked.qos),
        _in_reservations(cluster, policy, spec, asked),
        _before_what_is_reserved(cluster, policy, spec, asked),
        _other_partitions(policy, spec, asked.partition),
        _other_types(cluster, spec, resources),
        _spread(spec, resources),
    )
    ranges = (*_fewer_gpus(spec, resources), _shorter(spec, asked.time_limit_s), *_less_of_nodes(spec, resources))
    return [
        *map(_one_by_one, each),
        *(_halving(range_, entry) for range_ in ranges if range_.max_number >= range_.min_number),
    ]


def is_sooner(entry: ForecastStart | None, asked: ForecastStart | None) -> bool:
    return entry is not None and (asked is None or entry.starts_at < asked.starts_at)


# ── ways to search ────────────────────────────────────────────────────────────────────────────────────────────────


class Range(NamedTuple):
    """Requests that differ in one number, each smaller than the original request."""

    min_number: int
    max_number: int
    variant: Callable[[int], Variant]


def _one_by_one(variants: Iterable[Variant]) -> Search:
    yield from variants


def _halving(numbers: Range, asked: ForecastStart | None) -> Search:
    """Find the largest number that starts as early as the smallest, and the largest that starts before `asked`.

    If the smallest starts no earlier, none does, and one forecast is enough.
    """
    soonest = yield numbers.variant(numbers.min_number)
    if soonest is None or not is_sooner(soonest, asked):
        return
    at = soonest.starts_at
    low = yield from _largest(numbers, numbers.min_number, lambda entry: entry is not None and entry.starts_at <= at)
    yield from _largest(numbers, low, lambda entry: is_sooner(entry, asked))


def _largest(
    numbers: Range, low: int, suits: Callable[[ForecastStart | None], bool]
) -> Generator[Variant, ForecastStart | None, int]:
    """Bisect: the largest number that suits, given that `low` suits and larger numbers suit less."""
    high = numbers.max_number + 1
    while high - low > 1:
        middle = (low + high) // 2
        if suits((yield numbers.variant(middle))):
            low = middle
        else:
            high = middle
    return low


# ── the kinds of change ───────────────────────────────────────────────────────────────────────────────────────────


def _asking(spec: JobSpec, **changes: object) -> JobSpec:
    return msgspec.structs.replace(spec, resources=msgspec.structs.replace(spec.resources, **changes))


def _typed(resources: ResourceRequest, count: int, gpu_type: str | None = None) -> str:
    name = gpu_type or resources.gpu_type
    return f"{name}:{count}" if name else str(count)


def _fewer_gpus(spec: JobSpec, resources: ResourceRequest) -> Iterator[Range]:
    """All smaller numbers of GPUs: in total, by nodes, for each node, or by tasks."""
    before = min_demand(resources).gpus
    if not before or resources.roles:
        return

    def variant(options: str, family: str, size: int, changed: JobSpec) -> Variant:
        return Variant(options, _instead(changed, before), changed, family, size)

    def in_all(count: int) -> Variant:
        return variant(f"--gpus={_typed(resources, count)}", "gpus", count, _asking(spec, gpus=count))

    def over_nodes(nodes: int) -> Variant:
        asked = resources.nodes_min or 1
        ntasks = None if resources.ntasks is None else max(nodes, resources.ntasks * nodes // asked)
        changed = _asking(spec, nodes_min=nodes, nodes_max=nodes, ntasks=ntasks)
        return variant(f"--nodes={nodes}" + (f" --ntasks={ntasks}" if ntasks else ""), "nodes", nodes, changed)

    def per_node(count: int) -> Variant:
        changed = _asking(spec, gpus_per_node=count)
        return variant(f"--gpus-per-node={_typed(resources, count)}", "gpus", count, changed)

    def by_tasks(ntasks: int) -> Variant:
        return variant(f"--ntasks={ntasks}", "gpus", ntasks, _asking(spec, ntasks=ntasks))

    if resources.gpus:
        yield Range(max(1, resources.nodes_min or 1), resources.gpus - 1, in_all)
    elif resources.gpus_per_node:
        yield Range(1, (resources.nodes_min or 1) - 1, over_nodes)
        yield Range(1, resources.gpus_per_node - 1, per_node)
    elif resources.gpus_per_task:
        yield Range(1, (resources.ntasks or 1) - 1, by_tasks)


def _instead(changed: JobSpec, before: int) -> str:
    return f"{counted(min_demand(changed.resources).gpus, 'GPUs')} instead of {before}"


def _shorter(spec: JobSpec, limit_s: int | None) -> Range:
    """All shorter time limits, in minutes: a shorter job fits into more gaps of the schedule."""
    before = "no time limit" if limit_s is None else format_duration(limit_s)
    longest_s = MAX_TIME_S if limit_s is None else limit_s - 1

    def variant(minutes: int) -> Variant:
        limit = format_duration(minutes * 60)
        changed = msgspec.structs.replace(spec, time_limit_s=minutes * 60)
        return Variant(f"--time={limit}", f"{limit} instead of {before}", changed, "time", minutes)

    return Range(max(1, longest_s // 60 // SHORTEST_PART), longest_s // 60, variant)


def _before_what_is_reserved(
    cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted
) -> Iterator[Variant]:
    """Time limits so short that the job ends before nodes must be empty for a reservation."""
    windows = booked_of(cluster.reservations.values(), policy.clear_s, asked.at)
    left = dict.fromkeys(_minutes_s(window.clear_at - asked.at) for window in windows)
    before = "no time limit" if asked.time_limit_s is None else format_duration(asked.time_limit_s)
    for time_s in islice((one for one in left if _is_shorter(one, asked.time_limit_s)), MAX_RESERVED):
        limit = format_duration(time_s)
        what = f"{limit} instead of {before}: ends before the reservation"
        yield Variant(f"--time={limit}", what, msgspec.structs.replace(spec, time_limit_s=time_s), "time", time_s // 60)


def _in_reservations(cluster: Cluster, policy: Policy, spec: JobSpec, asked: event.JobSubmitted) -> Iterator[Variant]:
    """Reservations that the user may use, with a shorter time limit if the job would outlast them."""
    path = account_path(cluster.accounts, asked.account)
    windows = booked_of(cluster.reservations.values(), policy.clear_s, asked.at)
    for name, known in cluster.reservations.items():
        if not known.may_be_used_by(asked.user, path):
            continue
        rooms = [
            _minutes_s(window.closes_at - max(asked.at, window.begin_at)) for window in windows if window.name == name
        ]
        changed = msgspec.structs.replace(spec, reservation=name)
        if rooms and (
            Flag.FLEX in known.booking.flags or (asked.time_limit_s is not None and max(rooms) >= asked.time_limit_s)
        ):
            if name != spec.reservation:
                yield Variant(f"--reservation={name}", f"in reservation {name}", changed)
        elif rooms and _is_shorter(max(rooms), asked.time_limit_s):
            limit = format_duration(max(rooms))
            shorter = msgspec.structs.replace(changed, time_limit_s=max(rooms))
            options = f"--time={limit}" if name == spec.reservation else f"--reservation={name} --time={limit}"
            yield Variant(options, f"{limit} in reservation {name}", shorter)


def _minutes_s(seconds: float) -> int:
    return int(seconds) // 60 * 60


def _is_shorter(time_s: int, limit_s: int | None) -> bool:
    return time_s >= MIN_TIME_S and (limit_s is None or time_s < limit_s)


def _other_types(cluster: Cluster, spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """The same number of GPUs of each other type in the cluster."""
    if not min_demand(resources).gpus or resources.roles:
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
    for other in policy.partitions:
        if other.name != partition and other.is_up:
            changed = msgspec.structs.replace(spec, partition=other.name)
            yield Variant(f"--partition={other.name}", f"partition {other.name} instead of {partition}", changed)


def _other_qos(cluster: Cluster, spec: JobSpec, qos: str) -> Iterator[Variant]:
    for name in sorted(with_built_in(cluster.qos)):
        if name != qos:
            yield Variant(f"--qos={name}", f"QOS {name} instead of {qos}", msgspec.structs.replace(spec, qos=name))


def _spread(spec: JobSpec, resources: ResourceRequest) -> Iterator[Variant]:
    """The same GPUs over twice as many nodes."""
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


def _less_of_nodes(spec: JobSpec, resources: ResourceRequest) -> Iterator[Range]:
    """Fewer CPUs, or less memory."""
    if resources.roles:
        return
    cpus_before = resources.cpus_per_task or 1

    def fewer_cpus(cpus: int) -> Variant:
        what = f"{counted(cpus, 'CPUs')} a task instead of {cpus_before}"
        return Variant(f"--cpus-per-task={cpus}", what, _asking(spec, cpus_per_task=cpus), "cpus", cpus)

    yield Range(1, cpus_before - 1, fewer_cpus)
    for name, option in _MEMORY:
        if before := getattr(resources, name):
            yield _less_memory(spec, name, option, before)


def _less_memory(spec: JobSpec, name: str, option: str, before: int) -> Range:
    def variant(part: int) -> Variant:
        mib = before * part // MEMORY_PARTS
        what = f"{mib}M of memory instead of {before}M"
        return Variant(f"{option}={mib}M", what, _asking(spec, **{name: mib}), "memory", mib)

    return Range(-(-MEMORY_PARTS // before), MEMORY_PARTS - 1, variant)


_MEMORY = (("mem_per_node_mib", "--mem"), ("mem_per_cpu_mib", "--mem-per-cpu"), ("mem_per_gpu_mib", "--mem-per-gpu"))
