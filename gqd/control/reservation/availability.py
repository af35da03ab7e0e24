"""Availability for reservations: usable nodes, and their free resources over time.  Pure; changes nothing.

Resources that a running job without a time limit holds are never free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from gq.errors import Refusal
from gq.model.reservation import NEVER_LENT, Booking, Flag, OccurrenceState
from gq.model.resource import Grant, ResourceRequest
from gq.near_miss import nearest
from gqd.control import snapshot
from gqd.control.reservation import overlap
from gqd.sched.placement.feasible import eligible_places
from gqd.sched.placement.placement import place
from gqd.sched.reasons.infeasible import infeasible, unmet_constraint
from gqd.sched.request import Shape, named_nodes, shape_in
from gqd.sched.reservation.booking import AvailabilityProfile, HeldGrants, ReservedGrants, Share, with_shares
from gqd.sched.snapshot.model import Overlay, whole_nodes
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.cluster import Cluster
from gqd.state.index.bookings import occurrence_of
from gqd.state.policy import Partition, Policy
from gqd.state.records import Attempt, Node, mask_of
from gqd.state.reservation import Occurrence, Reservation

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder


class Availability(NamedTuple):
    """The nodes that a booking may use, and their free resources over time."""

    request: ResourceRequest
    """The request, with CPUs and memory for each GPU."""
    shape: Shape
    candidates: list[int]
    """Indices of nodes that are up."""
    book: AvailabilityProfile


def ignores_jobs(booking: Booking) -> bool:
    """Whether it is created regardless of running jobs."""
    return Flag.IGNORE_JOBS in booking.flags or Flag.MAINT in booking.flags


def known_partition(policy: Policy, booking: Booking) -> Partition | None:
    """The booking's partition; None: it does not exist, or no longer."""
    return policy.partition(booking.partition) if booking.partition else policy.default_partition


def partition_of(policy: Policy, booking: Booking) -> Partition:
    known = known_partition(policy, booking)
    if known is not None:
        return known
    names = [partition.name for partition in policy.partitions]
    close = nearest(booking.partition, names)
    listed = ", ".join(f"`{name}`" for name in names)
    hint = f"did you mean `{close}`? there are {listed}" if close else f"there are {listed}"
    raise Refusal("unknown_partition", f"partition `{booking.partition[:80]}` does not exist", hint)


def availability_of(draft: TurnBuilder, booking: Booking, own: Reservation | None = None) -> Availability:
    """Where the booking could go, counting `own` as free.  `Refusal` if even an empty cluster has no room."""
    partition = partition_of(draft.policy, booking)
    nodes = snapshot.nodes_of(draft.cluster, draft.volatile, draft.now)
    rough = shape_in(draft.policy, booking.resources, partition.name)
    if unknown := sorted(named_nodes(rough) - draft.cluster.nodes.keys()):
        close = nearest(unknown[0], [node.name for node in nodes])
        hint = f"did you mean `{close}`?" if close else "gqinfo -N lists the nodes"
        raise Refusal("unknown_node", f"node `{unknown[0]}` does not exist", hint)
    usable = eligible_places(nodes, rough, partition).tolist()
    if not usable:
        raise _no_node(nodes, rough, partition, booking)
    in_partition = {nodes[one].name for one in usable}
    places = [one for one, node in enumerate(nodes) if node.name in in_partition]
    request = shared_request(booking.resources, partition, [nodes[one] for one in places])
    shape = shape_in(draft.policy, request, partition.name)
    whole = whole_nodes(nodes)
    if place(Overlay.empty(whole), shape, places) is None:
        if unnamed := sorted(named_nodes(shape) - in_partition):
            message = f"node `{unnamed[0]}` is not in partition `{partition.name}`"
            raise Refusal("impossible", message, "see gqinfo -N")
        reason = infeasible(whole, shape, places)
        raise Refusal("impossible", f"reservation `{booking.name}` cannot be created: {reason.why}", reason.hint)
    able = [one for one in places if Flag.MAINT in booking.flags or is_up(draft.cluster.nodes[nodes[one].name])]
    held, kept = list[HeldGrants](), [*_kept(draft.cluster, own)]
    if not ignores_jobs(booking):
        held += _held(draft, own, is_lent=NEVER_LENT.isdisjoint(booking.flags))
        kept += [*_promised(draft), *_claimed(draft, own)]
    return Availability(request, shape, able, AvailabilityProfile(nodes, draft.now, draft.policy.clear_s, held, kept))


def shared_request(request: ResourceRequest, partition: Partition, nodes: list[NodeFacts]) -> ResourceRequest:
    """The request with CPUs and memory for each GPU: enough for jobs inside that ask for neither."""
    min_cpus, min_mib = partition.default_cpus_per_gpu or 0, partition.default_mem_per_gpu_mib or 0
    return with_shares(request, nodes, Share(Fraction(min_cpus), min_mib))


def is_up(node: Node) -> bool:
    """Whether the node is neither down, lost nor drained; a node that is briefly unreachable counts as up."""
    return not (node.is_down or node.is_lost or node.is_drained)


# ── nodes that cannot be reserved ─────────────────────────────────────────────────────────────────────────────────


def _no_node(nodes: tuple[NodeFacts, ...], shape: Shape, partition: Partition, booking: Booking) -> Refusal:
    unmet = unmet_constraint(nodes, shape, partition)
    why = f"it may use no node of partition `{partition.name}`" if unmet is None else unmet.why
    hint = "gqinfo -N lists the nodes" if unmet is None else unmet.hint
    return Refusal("impossible", f"reservation `{booking.name}` cannot be created: {why}", hint)


# ── what is taken ─────────────────────────────────────────────────────────────────────────────────────────────────


def _kept(cluster: Cluster, own: Reservation | None) -> Iterator[ReservedGrants]:
    for reservation in cluster.reservations.values():
        if reservation is not own:
            yield from (
                ReservedGrants(occurrence.begin_at, occurrence.end_at, occurrence.grants)
                for occurrence in reservation.occurrences.values()
            )


def _promised(draft: TurnBuilder) -> Iterator[ReservedGrants]:
    plan = draft.volatile.plan
    for one in () if plan is None else plan.protected:
        job = draft.cluster.jobs.get(one.job_id)
        if one.is_promise and job is not None and job.is_waiting:
            yield ReservedGrants(one.starts_at, one.until, one.grants)


def _claimed(draft: TurnBuilder, own: Reservation | None) -> Iterator[ReservedGrants]:
    """Resources nominated for preemptors: taken from now on, until their time limit after the victims' end.

    A preemptor inside a reservation takes nothing more, if it ends before the occurrence does.
    """
    reservations = draft.cluster.reservations
    for claim in snapshot.claims_of(draft.cluster, draft.now):
        known = reservations.get(claim.reservation)
        inside = None if known is None else known.occurrences.get(claim.occurrence)
        until = inf if claim.time_limit_s is None else claim.until + claim.time_limit_s
        if inside is None or (known is not own and until > inside.end_at):
            yield ReservedGrants(draft.now, until + draft.policy.clear_s, claim.grants)


def _held(draft: TurnBuilder, own: Reservation | None, is_lent: bool) -> Iterator[HeldGrants]:
    """Resources of running jobs, except jobs within an active reservation, whose resources count as reserved.

    With `is_lent`, borrowing jobs take nothing: they are preempted when the reservation begins.
    """
    cluster = draft.cluster
    for attempt, told in zip(cluster.holding.values(), snapshot.all_running(cluster), strict=True):
        if is_lent and attempt.borrows:
            continue
        late_s = overlap.held_up_s(draft, attempt)
        until = inf if told.ends_at is None or told.is_stranded else told.ends_at + late_s
        reservation, inside = occurrence_of(cluster, attempt) or (None, None)
        if inside is None or not _is_within(attempt, inside) or (reservation is not own and until > inside.end_at):
            yield HeldGrants(until, told.grants, told.job_id)
        elif reservation is not own and until + draft.policy.clear_s > inside.end_at:
            yield HeldGrants(
                until, tuple(_cells(told.grants)), told.job_id
            )  # only CPUs and GPUs need the time until after the occurrence's end to be freed


def _cells(grants: Iterable[Grant]) -> Iterator[Grant]:
    """The CPUs and GPUs of the grants, without memory and other scalar resources."""
    return (Grant(node=grant.node, cpus=grant.cpus, gpus=grant.gpus) for grant in grants)


def _is_within(attempt: Attempt, occurrence: Occurrence) -> bool:
    """Whether the occurrence is active and reserves all CPUs and GPUs that the attempt still holds."""
    if occurrence.state is not OccurrenceState.ACTIVE:
        return False
    kept = {grant.node: (mask_of(grant.cpus), mask_of(grant.gpus)) for grant in occurrence.grants}
    for node, part in attempt.parts.items():
        cpus, gpus = kept.get(node, (0, 0))
        if mask_of(part.grant.cpus) & ~cpus or mask_of(part.grant.gpus) & ~gpus:
            return False
    return True
