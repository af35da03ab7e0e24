"""Nominations: resources earmarked for preemptors, as all other jobs see them.  Pure.

A nomination lists the grants that a pending job gets when its victims have left.  To every other job the nominated job
looks as if it were running on its grants: free parts are taken, parts held by its victims are already its own, and only
a victim's remaining resources are released to others.  Of scalar amounts (memory, generic resources, licences) it takes
what its victims will not release.  To all other jobs a suspended victim keeps everything that it holds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from gq.model.ids import JobId
from gq.model.resource import Amount, Grant
from gqd.sched.placement.devices import lowest
from gqd.sched.preemption.partial_release import given
from gqd.sched.preemption.suspend_victims import cut, give
from gqd.sched.reservation.scope import with_free
from gqd.sched.snapshot.model import Nomination, Overlay, RunningJob, Snapshot
from gqd.sched.snapshot.scalar import Item, free_amount, scalar_items
from gqd.state.plan import Shrink
from gqd.state.records import mask_of

_ANYWHERE = -1


def with_nominations(snapshot: Snapshot, but: JobId | None = None) -> Snapshot:
    """The snapshot with nominations applied; `but`: seen by this nominated job, whose own nomination does not apply."""
    claims = [claim for claim in snapshot.claims if claim.job_id != but]
    lent = [grant for claim in snapshot.claims if claim.job_id == but for grant in claim.parked]
    if not claims and not lent:
        return replace(snapshot, claims=()) if snapshot.claims else snapshot
    books = Overlay.of(snapshot)
    give(books, lent)
    running = list(snapshot.running)
    for claim in claims:
        running = keep(books, running, claim, snapshot.now)
    return replace(with_free(snapshot, books), running=running, claims=())


def without_nomination(snapshot: Snapshot, job_id: JobId) -> Snapshot:
    """The snapshot without the job's nomination, because it starts or loses it."""
    return replace(snapshot, claims=tuple(claim for claim in snapshot.claims if claim.job_id != job_id))


def with_decided(
    snapshot: Snapshot, claim: Nomination, victims: Collection[JobId], shrinks: Iterable[Shrink] = ()
) -> Snapshot:
    """The snapshot for other jobs after a preemption: the victims end, and elastic jobs release their parts."""
    books = Overlay.of(snapshot)
    going = as_preempted(snapshot.running, victims, claim.job_id, snapshot.now)
    running = keep(books, given(going, shrinks, claim.job_id), claim, snapshot.now)
    return replace(with_free(snapshot, books), running=running)


def as_preempted(running: Iterable[RunningJob], victims: Collection[JobId], to: JobId, now: float) -> list[RunningJob]:
    """The running jobs with the victims marked as preempted, from their notification on."""
    return [_going(one, to, now) if one.job_id in victims and not one.is_part else one for one in running]


def _going(job: RunningJob, to: JobId, now: float) -> RunningJob:
    at = now + job.lead_s
    return replace(job, preemptor=to, ends_at=at if job.ends_at is None else min(job.ends_at, at))


def victims_of(running: Iterable[RunningJob], job_id: JobId) -> list[RunningJob]:
    """The job's remaining victims, including the parts that elastic jobs release for it."""
    return [one for one in running if one.preemptor == job_id]


def keep(books: Overlay, running: Iterable[RunningJob], claim: Nomination, now: float) -> list[RunningJob]:
    """Take the free part of the nomination from `books` and return the running jobs as others see them: the
    nominated job as running, its victims without what it takes."""
    places = books.node_table.index_of
    if claim.parks or claim.parked:
        running = list(running)
        stays = [grant for one in running if one.job_id in claim.parks for grant in one.grants]
        claim = replace(claim, grants=cut(claim.grants, (*stays, *claim.parked)))
        running = [replace(one, ends_at=None) if one.job_id in claim.parks else one for one in running]
    left = scalar_items(places, claim.grants)
    theirs: list[RunningJob] = []
    told: list[RunningJob | None] = []
    for one in running:
        if one.preemptor == claim.job_id and one.job_id not in claim.parks:
            theirs.append(one)
            told.append(_rest_of(one, claim, left, places))
        else:
            told.append(one)
    own = tuple(_take(books, grant, places[grant.node], theirs, left) for grant in claim.grants if grant.node in places)
    return [*(one for one in told if one is not None), _as_running(claim, own, now)]


def _rest_of(job: RunningJob, claim: Nomination, left: dict[Item, int], places: Mapping[str, int]) -> RunningJob | None:
    """The victim as others see it, reduced to what they get when it ends; None: they get nothing.

    `left`: scalar amounts that the nomination still lacks.
    """
    by_node = {grant.node: grant for grant in claim.grants}
    parts = []
    for grant in job.grants:
        place = places.get(grant.node, _ANYWHERE)
        kept = by_node.get(grant.node)
        part = Grant(
            node=grant.node,
            cpus=grant.cpus if kept is None else tuple(x for x in grant.cpus if x not in kept.cpus),
            gpus=grant.gpus if kept is None else tuple(x for x in grant.gpus if x not in kept.gpus),
            memory_mib=_pass_on(left, ("", place), grant.memory_mib),
            resources=_pass_on_all(left, place, grant.resources),
            licenses=_pass_on_all(left, _ANYWHERE, grant.licenses),
        )
        if part.cpus or part.gpus or part.memory_mib or part.resources or part.licenses:
            parts.append(part)
    return replace(job, grants=tuple(parts)) if parts else None


def _pass_on(left: dict[Item, int], item: Item, count: int) -> int:
    """The amount of the victim's that others get, after the nomination takes what it still lacks."""
    passed = min(count, left.get(item, 0))
    if passed:
        left[item] -= passed
    return count - passed


def _pass_on_all(left: dict[Item, int], place: int, amounts: Sequence[Amount]) -> tuple[Amount, ...]:
    counts = ((amount.name, _pass_on(left, (amount.name, place), amount.count)) for amount in amounts)
    return tuple(Amount(name, count) for name, count in counts if count)


def _take(books: Overlay, grant: Grant, place: int, victims: Sequence[RunningJob], left: Mapping[Item, int]) -> Grant:
    """Take the free part of the grant from `books`; return the free part together with the victims' part."""
    theirs = [(cpus, gpus) for victim in victims for node, cpus, gpus in victim.cells if node == grant.node]
    cpus, gpus = mask_of(grant.cpus), mask_of(grant.gpus)
    free_cpus, free_gpus = cpus & books.free_cpus[place], gpus & books.free_gpus[place]
    memory_taken, memory_mib = _counted(books, left, ("", place), grant.memory_mib)
    resources = [
        (resource.name, *_counted(books, left, (resource.name, place), resource.count)) for resource in grant.resources
    ]
    licenses = [
        (license_.name, *_counted(books, left, (license_.name, _ANYWHERE), license_.count))
        for license_ in grant.licenses
    ]
    taken = Grant(
        node=grant.node,
        cpus=lowest(free_cpus, None),
        gpus=lowest(free_gpus, None),
        memory_mib=memory_taken,
        resources=tuple(Amount(name, count) for name, count, _ in resources if count),
        licenses=tuple(Amount(name, count) for name, count, _ in licenses if count),
    )
    books.take(place, taken)
    for their_cpus, their_gpus in theirs:
        free_cpus, free_gpus = free_cpus | their_cpus & cpus, free_gpus | their_gpus & gpus
    return Grant(
        node=grant.node,
        cpus=lowest(free_cpus, None),
        gpus=lowest(free_gpus, None),
        memory_mib=memory_mib,
        resources=tuple(Amount(name, count) for name, _, count in resources if count),
        licenses=tuple(Amount(name, count) for name, _, count in licenses if count),
    )


def _counted(books: Overlay, left: Mapping[Item, int], item: Item, wanted: int) -> tuple[int, int]:
    """(amount taken now, amount that the job has then): what no victim releases is taken as far as it is free."""
    lacking = min(wanted, left.get(item, 0))
    taken = max(0, min(lacking, free_amount(books, item)))
    return taken, wanted - lacking + taken


def _as_running(claim: Nomination, grants: tuple[Grant, ...], now: float) -> RunningJob:
    """The nominated job as a running job whose time limit counts from the end of its last victim."""
    begins_at = max(now, claim.until)
    return RunningJob(
        job_id=claim.job_id,
        user=claim.user,
        grants=grants,
        ends_at=None if claim.time_limit_s is None else begins_at + claim.time_limit_s,
        began_at=begins_at,
        expected_s=claim.expected_s,
        reservation=claim.reservation,
        occurrence=claim.occurrence,
    )
