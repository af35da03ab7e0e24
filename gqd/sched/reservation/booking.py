"""Slot search for reservations: exact CPUs and GPUs for a time span that nothing else holds or reserves.  Pure.

It uses the same `place` and `Timeline` as for jobs: running jobs end by their limits; other occurrences and planned
starts are windows.  Resources must be free ``clear_s`` before the begin, since a grace time and epilogs lie between a
job's limit and an empty node.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor, inf, nextafter
from typing import NamedTuple

import msgspec

from gq.model.ids import JobId
from gq.model.resource import Grant, ResourceRequest, gpus_in
from gqd.sched.placement.placement import is_possible, place
from gqd.sched.request import Shape
from gqd.sched.snapshot.model import Overlay
from gqd.sched.snapshot.node import NodeFacts
from gqd.sched.timeline.timeline import Timeline, release_of

MAX_TRIES = 300
"""Maximum number of instants at which an offer is searched."""
MAX_LOOKED_AT = 200_000
"""Maximum number of reserved grants examined in one search: with many of them fewer instants are tried, because the
queue waits meanwhile."""
LEFT_PART = 4
"""Divisor of a node's CPUs and memory: this part (a quarter) is not reserved together with GPUs."""
WHOLE_S = 60
"""Offers begin on a multiple of this many seconds where possible."""


class ReservedGrants(NamedTuple):
    """Grants that are reserved from `at` until `until`."""

    at: float
    until: float
    grants: tuple[Grant, ...]


class HeldGrants(NamedTuple):
    """Grants that a job holds until `until` at the latest; infinite: unknown."""

    until: float
    grants: tuple[Grant, ...]
    job_id: JobId | None = None


class Span(NamedTuple):
    begin_at: float
    end_at: float


@dataclass(slots=True)
class AvailabilityProfile:
    """The resources that are free at each time, for the slot search."""

    nodes: tuple[NodeFacts, ...]
    now: float
    clear_s: float
    held: Sequence[HeldGrants]
    kept: list[ReservedGrants]
    places: dict[str, int] = field(init=False)
    _timeline: Timeline = field(init=False)

    def __post_init__(self) -> None:
        self.places = {node.name: one for one, node in enumerate(self.nodes)}
        self.kept = [one._replace(grants=self.known(one.grants)) for one in self.kept]
        still_there = nextafter(self.now, inf)  # also what should be gone by its limit
        self.held = [one._replace(until=max(one.until, still_there)) for one in self.held]
        overlay = Overlay.empty(self.nodes)
        for one in self.held:
            for grant in one.grants:
                if (where := self.places.get(grant.node)) is not None:
                    overlay.take(where, grant)
        endings = (release_of(one.until, self.places, one.grants) for one in self.held)
        self._timeline = Timeline(overlay, self.places, self.now, endings)

    def left(self, span: Span) -> Overlay:
        """The resources that are free during the whole span."""
        clear_at = max(self.now, span.begin_at - self.clear_s)
        met = [one for one in self.kept if one.at < span.end_at and one.until > max(self.now, span.begin_at)]
        return self._timeline.left(clear_at, span.end_at, met)

    def fit(self, shape: Shape, candidates: list[int], span: Span) -> tuple[Grant, ...] | None:
        return place(self.left(span), shape, candidates)

    def has(self, grants: tuple[Grant, ...], span: Span) -> bool:
        """Whether all of the grants exist and are free during the whole span."""
        return is_possible(self.left(span), grants, self.places)

    def keep(self, span: Span, grants: tuple[Grant, ...]) -> None:
        """Mark the grants as reserved during the span."""
        self.kept.append(ReservedGrants(*span, self.known(grants)))

    def known(self, grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
        return tuple(grant for grant in grants if grant.node in self.places)

    def earliest(self, shape: Shape, candidates: list[int], span: Span, until: float) -> Span | None:
        """The first span of the same length that begins later, at `until` at the latest; None if there is none."""
        length_s = span.end_at - span.begin_at
        for at in self._openings(span.begin_at, until):
            for begin_at in dict.fromkeys((float(ceil(at / WHOLE_S) * WHOLE_S), at)):
                moved = Span(begin_at, begin_at + length_s)
                if begin_at <= until and self.fit(shape, candidates, moved) is not None:
                    return moved
        return None

    def _openings(self, after: float, until: float) -> Iterator[float]:
        """The instants at which resources are released, in order, up to a maximum number."""
        ends = {one.until + self.clear_s for one in self.held} | {one.until for one in self.kept}
        most = min(MAX_TRIES, MAX_LOOKED_AT // max(1, 2 * len(self.kept)))
        yield from sorted(at for at in ends if after < at <= until)[:most]

    def longest(self, shape: Shape, candidates: list[int], span: Span, least_s: float) -> Span | None:
        """The longest shorter span with the same begin, at least `least_s` seconds long; None if there is none."""
        ends = sorted({one.at for one in self.kept if span.begin_at + least_s <= one.at < span.end_at})

        def is_too_long(end_at: float) -> bool:
            return self.fit(shape, candidates, Span(span.begin_at, end_at)) is None

        count = bisect_left(ends, True, key=is_too_long)  # what is free for longer is free for less
        return Span(span.begin_at, ends[count - 1]) if count else None


# ── what is asked for ─────────────────────────────────────────────────────────────────────────────────────────


class Share(NamedTuple):
    """The CPUs and the memory that are reserved with one GPU."""

    cpus: Fraction
    memory_mib: int


NO_SHARE = Share(Fraction(0), 0)


def with_shares(request: ResourceRequest, nodes: Iterable[NodeFacts], min_share: Share = NO_SHARE) -> ResourceRequest:
    """The request completed with CPUs and memory for each GPU, or with all memory of whole nodes, where it names none.

    A quarter of each node's CPUs and memory stays for jobs without GPUs.  `min_share`: the default CPUs and memory of a
    job for each GPU; a reservation includes at least this much.
    """
    says_memory = (request.mem_per_node_mib, request.mem_per_cpu_mib, request.mem_per_gpu_mib) != (None, None, None)
    if request.is_exclusive:
        return msgspec.structs.replace(
            request,
            mem_per_node_mib=request.mem_per_node_mib if says_memory else 0,
            gpus_per_node=1 if request.gpu_type and not gpus_asked(request) else request.gpus_per_node,
        )
    if not gpus_asked(request):
        return request
    fitting = [node for node in nodes if node.fitting_mask(request.gpu_type, request.min_gpu_mem_mib or 0)]
    shares = [_share(node, min_share) for node in fitting]
    cpus = min((share.cpus for share in shares), default=Fraction(0))
    memory_mib = min((share.memory_mib for share in shares), default=0)
    if (request.cpus_per_gpu, request.cpus_per_task, request.ntasks) == (None, None, None):
        # Nodes with fewer CPUs than GPUs: so many CPUs in all, as tasks of one CPU.
        ntasks = max(1, floor(cpus * request.gpus)) if cpus < 1 and request.gpus else None
        request = msgspec.structs.replace(request, cpus_per_gpu=floor(cpus) or None, ntasks=ntasks)
    if not says_memory and memory_mib:
        request = msgspec.structs.replace(request, mem_per_gpu_mib=memory_mib)
    return request


def _share(node: NodeFacts, min_share: Share) -> Share:
    """The share of one GPU of the node: at least `min_share`, and never more than its part of the whole node."""
    gpus = node.whole().gpu_mask.bit_count()
    left_cpus, left_mib = max(1, node.cpus // LEFT_PART), node.memory_mib // LEFT_PART
    cpus = max(Fraction(node.cpus - left_cpus, gpus), min_share.cpus)
    memory_mib = max((node.memory_mib - left_mib) // gpus, min_share.memory_mib)
    return Share(min(cpus, Fraction(node.cpus, gpus)), min(memory_mib, node.memory_mib // gpus))


def gpus_asked(request: ResourceRequest) -> int:
    """The number of GPUs requested over all nodes; 0 for whole nodes."""
    nodes = request.nodes_min or max(1, len(request.nodelist))
    return request.gpus or (request.gpus_per_node or 0) * nodes or (request.gpus_per_task or 0) * (request.ntasks or 1)


def most_of(request: ResourceRequest, is_available: Callable[[ResourceRequest], bool]) -> ResourceRequest | None:
    """The request with the most GPUs, or nodes, that is available; None: not even one is.

    Fewer are available wherever more are, so the number is found by halving the range: 12 looks for 4000 GPUs.
    """
    counts = {name: getattr(request, name) or 0 for name in ("gpus", "gpus_per_node", "nodes_min")}
    name = next((one for one, count in counts.items() if count), "")
    if not name or request.nodelist or request.roles:
        return None
    count = bisect_left(range(1, counts[name]), True, key=lambda one: not is_available(_with_count(request, name, one)))
    return _with_count(request, name, count) if count else None


def _with_count(request: ResourceRequest, name: str, count: int) -> ResourceRequest:
    nodes: dict[str, int | None] = {}
    if request.nodes_min and request.nodes_min > count:
        nodes = {"nodes_min": count, "nodes_max": count}
    if name == "nodes_min":
        nodes = {"nodes_min": count, "nodes_max": count if request.nodes_max else None}
    return msgspec.structs.replace(request, **{name: count, **nodes})


def rest_of(request: ResourceRequest, kept: Sequence[Grant]) -> ResourceRequest | None:
    """The part of the request that `kept` does not cover; None if nothing is missing.

    A request for neither GPUs nor whole nodes is missing entirely or not at all.  The caller ensures that the rest is
    placed on named nodes only.
    """
    if request.is_exclusive and request.nodelist:
        missing = tuple(one for one in request.nodelist if one not in {grant.node for grant in kept})
        return _over_nodes(request, len(missing), nodelist=missing) if missing else None
    if request.is_exclusive:
        count = (request.nodes_min or 1) - len(kept)
        others = (*request.exclude, *(one.node for one in kept))
        return _over_nodes(request, count, exclude=others) if count > 0 else None
    if asked := gpus_asked(request):
        return _gpus(request, asked - gpus_in(kept))
    return None if kept else request


def _over_nodes(request: ResourceRequest, count: int, **fields: tuple[str, ...]) -> ResourceRequest:
    return msgspec.structs.replace(request, nodes_min=count, nodes_max=None, **fields)


def _gpus(request: ResourceRequest, count: int) -> ResourceRequest | None:
    """The request reduced to `count` GPUs on any nodes; None for 0."""
    if count <= 0:
        return None
    return msgspec.structs.replace(
        request,
        gpus=count,
        gpus_per_node=None,
        gpus_per_task=None,
        ntasks=None,
        ntasks_per_node=None,
        nodes_min=None,
        nodes_max=None,
        nodelist=(),
    )


def joined(kept: Sequence[Grant], more: Sequence[Grant]) -> tuple[Grant, ...]:
    """Merge the grants into one for each node."""
    by_node = {one.node: one for one in kept}
    for one in more:
        known = by_node.get(one.node)
        by_node[one.node] = one if known is None else _both(known, one)
    return tuple(by_node.values())


def _both(grant: Grant, other: Grant) -> Grant:
    return msgspec.structs.replace(
        grant,
        cpus=tuple(sorted((*grant.cpus, *other.cpus))),
        gpus=tuple(sorted((*grant.gpus, *other.gpus))),
        memory_mib=grant.memory_mib + other.memory_mib,
    )
