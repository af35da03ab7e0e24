"""Why a job does not fit now, as data: the scarce resource and the jobs that hold it.  Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gq.units import counted
from gqd.sched.placement.feasible import capacities, eligible_places, keeps_cores, kept_cores
from gqd.sched.placement.placement import Places, holds_out_for_preferred, place
from gqd.sched.placement.roles import homeless_role
from gqd.sched.reasons.infeasible import infeasible as infeasible
from gqd.sched.reasons.infeasible import too_many_licenses, unmet_constraint
from gqd.sched.request import Shape, every_shape, wanted_in_all
from gqd.sched.snapshot.model import Overlay, PendingJob, RunningJob, Snapshot
from gqd.sched.snapshot.node_table import as_node_indices
from gqd.sched.snapshot.switches import level_allowed, patience_s, spread_of, tree_of
from gqd.sched.timeline.timeline import earliest_fit
from gqd.state.plan import (
    CoresReservedForGpus,
    Holder,
    Insufficient,
    LicenseHolder,
    NoNodes,
    OutOfLicenses,
    Unavailable,
    UnavailableNode,
    Wait,
    WaitsForLocality,
)
from gqd.state.records import mask_of

MAX_HOLDERS = 50


def never_fits_reason(
    snapshot: Snapshot, job: PendingJob, eligible: Places, feasible: Places, available: Places
) -> Wait | None:
    """Why the job could not start even if its available nodes were empty; None: the job only waits for other jobs.

    `eligible`: nodes the job may use; `feasible`: those with room for one unit; `available`: those that are also up.
    """
    if (licenses := too_many_licenses(snapshot.policy, job.shape)) is not None:
        return licenses
    if not len(eligible):
        partition = snapshot.policy.partition(job.shape.partition)
        unmet = None if partition is None else unmet_constraint(snapshot.nodes, job.shape, partition)
        return unmet or NoNodes(job.shape.partition)
    empty = Overlay.empty(snapshot.nodes)
    if place(empty, job.shape, available) is not None:
        return None
    if place(empty, job.shape, feasible) is not None:
        return _unavailable(snapshot, job, feasible, available)
    whole = tuple(node.whole() for node in snapshot.nodes)
    if place(Overlay.empty(whole), job.shape, eligible) is not None:
        return _drained(snapshot, eligible)
    return infeasible(whole, job.shape, eligible)


# ── what it waits for now ─────────────────────────────────────────────────────────────────────────────────────


def why_not_now(
    snapshot: Snapshot,
    overlay: Overlay,
    job: PendingJob,
    available: Places,
    running: Sequence[RunningJob],
    waited_s: float = math.inf,
) -> Wait:
    """Why `place` found no room on these nodes; reasons other than resources held by other jobs come first."""
    alone = why_not_yet(snapshot, overlay, job, available, running, waited_s)
    return alone or insufficient(snapshot, overlay, job, available, running)


def why_not_yet(
    snapshot: Snapshot,
    overlay: Overlay,
    job: PendingJob,
    available: Places,
    running: Sequence[RunningJob],
    waited_s: float = math.inf,
) -> OutOfLicenses | WaitsForLocality | CoresReservedForGpus | None:
    """The reason if the job has room and waits for something other than nodes; no resources can be reserved for such
    a job."""
    return (
        _out_of_licenses(snapshot, overlay, job, available, running)
        or _waits_for_locality(snapshot, overlay, job, available, waited_s)
        or _cores_kept(overlay, job.shape, available)
    )


def is_picky(shape: Shape) -> bool:
    """Whether the placement depends on how long the job has waited."""
    return bool(shape.switches or shape.prefer) or any(bool(role.prefer) for _, role in shape.roles)


def _out_of_licenses(
    snapshot: Snapshot, overlay: Overlay, job: PendingJob, available: Places, running: Sequence[RunningJob]
) -> OutOfLicenses | None:
    free = overlay.free_licenses
    short = (
        [] if free is None else [license_ for license_ in job.shape.licenses if license_[1] > free.get(license_[0], 0)]
    )
    if not short or too_many_licenses(snapshot.policy, job.shape) is not None:
        return None  # what the cluster has not is no matter of waiting
    if place(overlay, job.shape._replace(licenses=()), available) is None:
        return None
    name, wanted = short[0]
    holders = []
    for one in running:
        held = sum(amount.count for grant in one.grants for amount in grant.licenses if amount.name == name)
        if held:
            holders.append(LicenseHolder(one.job_id, one.user, held))
    holders.sort(key=lambda holder: (-holder.count, holder.job_id))
    total = snapshot.policy.licenses.get(name, 0)
    left = max(0, free.get(name, 0)) if free is not None else 0
    return OutOfLicenses(name=name, wanted=wanted, free=left, total=total, holders=tuple(holders[:MAX_HOLDERS]))


def _waits_for_locality(
    snapshot: Snapshot, overlay: Overlay, job: PendingJob, available: Places, waited_s: float
) -> WaitsForLocality | None:
    """The reason if the job could start now but waits for a better placement."""
    shape = job.shape
    grants = place(overlay, shape, available) if waited_s < math.inf and is_picky(shape) else None
    if grants is None:
        return None
    tree = tree_of(overlay.node_table, overlay.switches)
    levels = len(tree.levels)
    allowed = level_allowed(shape, overlay.scheduling, waited_s, levels)
    anywhere = shape._replace(switches=None)
    if allowed < levels and place(overlay, anywhere, available, waited_s=waited_s) is not None:
        what = "switches"
        level = "" if not allowed else f" of level {allowed + 1}"
        wanted = f"{counted(shape.switches or 1, 'switches')}{level}"
        offered = counted(spread_of(tree, overlay.node_table, [grant.node for grant in grants]), "switches")
        relaxes_s = patience_s(shape, overlay.scheduling) * (allowed + 1)
    else:
        wishes = [one.prefer for one in every_shape(shape) if holds_out_for_preferred(overlay, one, waited_s)]
        if not wishes:
            return None
        what, wanted, offered = "prefer", wishes[0], ",".join(grant.node for grant in grants)
        relaxes_s = overlay.scheduling.locality_wait_s
    until = snapshot.now + max(0.0, relaxes_s - waited_s)
    return WaitsForLocality(what=what, wanted=wanted, offered=offered, until=until)


def _cores_kept(overlay: Overlay, shape: Shape, available: Places) -> CoresReservedForGpus | None:
    if not keeps_cores(overlay, shape):
        return None
    freely = overlay.copy()
    freely.cores_kept = 0
    grants = place(freely, shape, available)
    if grants is None:
        return None
    names = {grant.node for grant in grants}
    places = as_node_indices([one for one in available if overlay.nodes[int(one)].name in names])
    kept = kept_cores(overlay, places)
    return CoresReservedForGpus(
        wanted=wanted_in_all(shape)[1],
        free=int((overlay.cpu_counts[places] - kept).sum()),
        kept=int(kept.sum()),
        nodes=tuple(grant.node for grant in grants),
    )


def insufficient(
    snapshot: Snapshot, overlay: Overlay, job: PendingJob, available: Places, running: Sequence[RunningJob]
) -> Insufficient:
    """The scarce resource, the jobs that hold it, and the latest start; for a heterogeneous job, of the role without
    room."""
    shape = homeless_role(overlay, job.shape, [int(one) for one in available], place)
    resource, wanted, free = scarcest(overlay, shape, available)
    fit = earliest_fit(overlay, job.shape, available, running, snapshot.now)
    selection = _selection(shape)
    places = as_node_indices(available)
    return Insufficient(
        resource=resource,
        wanted=wanted,
        free=free,
        holders=_holders(snapshot, shape, running, available, resource),
        is_fragmented=free >= wanted,
        starts_at=fit[0] if fit else None,
        may_spread=shape.nodes_min < min(len(available), _pieces(shape)),
        selection=selection,
        nodes=len(places) if selection else 0,
        idle_nodes=_idle_nodes(overlay, places) if selection else 0,
        free_elsewhere=_free_elsewhere(snapshot, overlay, shape, places, resource) if selection else 0,
    )


def _selection(shape: Shape) -> str:
    constraint = f"--constraint={shape.constraint}" if shape.constraint else ""
    nodelist = f"--nodelist={','.join(shape.nodelist)}" if shape.nodelist else ""
    exclude = f"--exclude={','.join(shape.exclude)}" if shape.exclude else ""
    return " ".join(option for option in (constraint, nodelist, exclude) if option)


def _idle_nodes(overlay: Overlay, places: Places) -> int:
    nodes = ((overlay.nodes[int(place)], int(place)) for place in places)
    return sum(
        overlay.free_cpus[place] & node.cpu_mask == node.cpu_mask
        and overlay.free_gpus[place] & node.gpu_mask == node.gpu_mask
        for node, place in nodes
    )


def _free_elsewhere(snapshot: Snapshot, overlay: Overlay, shape: Shape, places: Places, resource: str) -> int:
    """The free amount of the resource on the nodes that only the job's own selection excludes."""
    partition = snapshot.policy.partition(shape.partition)
    if partition is None:
        return 0
    anywhere = shape._replace(constraint="", nodelist=(), exclude=())
    others = set(map(int, eligible_places(snapshot.nodes, anywhere, partition))) - set(map(int, places))
    available = [place for place in sorted(others) if not snapshot.nodes[place].unavailable]
    if resource == "idle nodes":
        return _idle_nodes(overlay, as_node_indices(available))
    return _sums(overlay, anywhere, available).get(resource, (0, 0))[1]


def _pieces(shape: Shape) -> int:
    """The maximum number of nodes over which the job could spread."""
    gpus, cpus = wanted_in_all(shape)
    return gpus or cpus


def scarcest(overlay: Overlay, shape: Shape, places: Places) -> tuple[str, int, int]:
    """(resource, wanted, free) of the first resource with too little free in sum, else of the resource that is free
    on the wrong nodes."""
    sums = _sums(overlay, shape, places)
    if shape.is_exclusive:
        idle = int(np.count_nonzero(capacities(overlay, shape, as_node_indices(places))))
        return "idle nodes", max(shape.nodes_min, idle + 1), idle
    for name, (want, have) in sums.items():
        if want > have:
            return name, want, have
    for name, (want, have) in reversed(sums.items()):
        if want and place(_relaxed(overlay, name), shape, places) is not None:
            return name, want, have
    name = "GPUs" if sums["GPUs"][0] else "CPUs"
    return name, *sums[name]


def _sums(overlay: Overlay, shape: Shape, places: Places) -> dict[str, tuple[int, int]]:
    """(amount wanted by the whole job, amount free on these nodes), by resource."""
    here = as_node_indices(places)
    gpus, cpus = wanted_in_all(shape)
    free_gpus = int(overlay.kind_counts(shape.gpu_kind)[here].sum())
    memory = _memory_wanted(shape, int(overlay.node_table.memory[here].max(initial=0)))
    sums = {
        "GPUs": (gpus, free_gpus),
        "CPUs": (cpus, int(overlay.cpu_counts[here].sum())),
        "memory": (memory, int(np.maximum(overlay.memory[here], 0).sum())),
    }
    for name, count in shape.resources:
        free = overlay.free_resources.get(name)
        sums[name] = (count * shape.nodes_min, 0 if free is None else int(np.maximum(free[here], 0).sum()))
    return sums


def _relaxed(overlay: Overlay, resource: str) -> Overlay:
    """The overlay with all of one resource free."""
    empty = Overlay.empty(overlay.nodes)
    relaxed = Overlay(
        overlay.nodes,
        empty.free_cpus if resource == "CPUs" else overlay.free_cpus,
        empty.free_gpus if resource == "GPUs" else overlay.free_gpus,
        empty.free_memory_mib if resource == "memory" else overlay.free_memory_mib,
        {name: free for name, free in overlay.free_resources.items() if name != resource},
    )
    relaxed.cores_kept, relaxed.scheduling = overlay.cores_kept, overlay.scheduling
    return relaxed


def _memory_wanted(shape: Shape, largest_mib: int) -> int:
    """The memory in MiB that the job wants; `largest_mib`: memory of the largest node, for jobs that want whole
    nodes."""
    if shape.roles:
        return sum(_memory_wanted(role, largest_mib) for role in every_shape(shape))
    gpus, cpus = wanted_in_all(shape)
    if shape.mem_per_node_mib is not None:
        return (shape.mem_per_node_mib or largest_mib) * shape.nodes_min
    return (shape.mem_per_cpu_mib or 0) * cpus or (shape.mem_per_gpu_mib or 0) * gpus


def _holders(
    snapshot: Snapshot, shape: Shape, running: Sequence[RunningJob], places: Places, resource: str
) -> tuple[Holder, ...]:
    """The jobs that hold the scarce resource on these nodes, the largest amount first."""
    by_name = {snapshot.nodes[one].name: snapshot.nodes[one] for one in places}
    generic = {name for name, _ in shape.resources}
    kind = shape.gpu_kind
    holders: list[tuple[int, Holder]] = []
    for job in running:
        here = [grant for grant in job.grants if grant.node in by_name]
        masks = (mask_of(grant.gpus) & by_name[grant.node].fitting_mask(*kind) for grant in here)
        holder = Holder(
            job_id=job.job_id,
            user=job.user,
            nodes=tuple(grant.node for grant in here),
            gpus=sum(mask.bit_count() for mask in masks),
            cpus=sum(len(grant.cpus) for grant in here),
            memory_mib=sum(grant.memory_mib for grant in here),
            generic=sum(one.count for grant in here for one in grant.resources if one.name == resource),
            ends_at=None if job.is_stranded else job.ends_at,
            is_overdue=not job.is_stranded and job.ends_at is not None and job.ends_at <= snapshot.now,
            kept_for=job.kept_for,
            reservation=job.reservation if job.job_id < 0 else "",
        )
        held = {"GPUs": holder.gpus, "CPUs": holder.cpus, "memory": holder.memory_mib}.get(resource, len(here))
        if resource in generic:
            held = holder.generic
        if held:
            holders.append((held, holder))
    holders.sort(key=lambda one: (-one[0], -one[1].gpus, -one[1].cpus, one[1].job_id))
    return tuple(holder for _, holder in holders[:MAX_HOLDERS])


def _unavailable(snapshot: Snapshot, job: PendingJob, feasible: Places, available: Places) -> Unavailable:
    own = dict(job.avoid)
    out = [snapshot.nodes[one] for one in sorted({*map(int, feasible)} - {*map(int, available)})]
    its_own = "left out after its own launch failed there"
    nodes = tuple(UnavailableNode(node.name, node.unavailable or its_own) for node in out)
    backoffs = {node.name: max(node.backoff_until, own.get(node.name, 0.0)) for node in out}
    later = {name: until for name, until in backoffs.items() if until > snapshot.now}
    until = max(later.values()) if later and len(later) == len(out) else None
    return Unavailable(nodes=nodes, left_out=tuple(later), until=until)


def _drained(snapshot: Snapshot, eligible: Places) -> Unavailable:
    """The reason if the job would fit with GPUs that are drained."""
    nodes = [snapshot.nodes[one] for one in eligible if snapshot.nodes[one].drained]
    counts = [(node.name, sum(mask.bit_count() for _, mask in node.drained)) for node in nodes]
    short = (UnavailableNode(name, f"short of {counted(count, 'drained GPUs')}") for name, count in counts)
    return Unavailable(nodes=tuple(short))
