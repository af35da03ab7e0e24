"""Where jobs go, with a whole controller: what is waited for, and that it is given back however a job ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import QosInfo
from gq.model.ids import JobId
from gq.model.node import Inventory
from gq.model.policy_tables import Timers
from gq.model.resource import Amount, Role, RoleRequest
from gq.model.scheduling import Scheduling, Switch
from gq.model.state import JobState
from gq.units import counted
from gq.wire import client
from gqd.sched.planner import Planner, plan_whole
from gqd.state.input import PolicyChanged
from gqd.state.plan import (
    CoresReservedForGpus,
    Infeasible,
    Insufficient,
    LicenseHolder,
    OutOfLicenses,
    Wait,
    WaitsForLocality,
)
from gqd.state.policy import Policy
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

POLICY = Policy(owner_uid=OWNER.uid, timers=Timers(node_lost_s=1e6))
ONE_MATLAB = msgspec.structs.replace(POLICY, licenses={"matlab": 1})
MATLAB = (Amount("matlab", 1),)


def has(**fields: Any) -> Inventory:
    base = inventory(**{name: fields.pop(name) for name in ("cpus", "gpu_count", "gpu_type") if name in fields})
    return msgspec.structs.replace(base, **fields)


def asks(name: str = "job", **resources: Any) -> client.Submit:
    """What is said of `resources` in the sense of this word is a field of the request, too."""
    amounts = resources.pop("amounts", ())
    body = submit(name, **resources)
    request = msgspec.structs.replace(body.spec.resources, resources=amounts)
    return msgspec.structs.replace(body, spec=msgspec.structs.replace(body.spec, resources=request))


def wait_of(host: CoreHost, job_id: int) -> Wait:
    return plan_whole(host.controller.snapshot(host.now)).waits[JobId(job_id)]


# ── licences and generic resources ────────────────────────────────────────────────────────────────────────────


def finish(host: CoreHost, job_id: int) -> None:
    host.finish(job_id)


def fail(host: CoreHost, job_id: int) -> None:
    host.finish(job_id, code=3)


def cancel(host: CoreHost, job_id: int) -> None:
    host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))))
    host.obey()


def requeue(host: CoreHost, job_id: int) -> None:
    """It waits behind the other, as long as it is held."""
    host.ask(client.RequeueJobs(job_ids=(job_id,)))
    host.obey()
    host.ask(client.HoldJobs(job_ids=(job_id,)))


def set_down(host: CoreHost, job_id: int) -> None:
    host.ask(client.UpdateNodes(names=(host.attempt(job_id).batch_node,), action="down", reason="fan"))
    host.obey()


WAYS = pytest.mark.parametrize("end", [finish, fail, cancel, requeue, set_down])


@WAYS
def test_a_licence_is_free_again_however_its_job_ends(end: Callable[[CoreHost, int], None]) -> None:
    host = CoreHost(ONE_MATLAB, {"n1": inventory(), "n2": inventory(), "n3": inventory()})
    first = host.start(asks("first", nodes_min=2, nodes_max=2, licenses=MATLAB, requeue=False))
    second = host.submit(asks("second", licenses=MATLAB))
    assert wait_of(host, second) == OutOfLicenses(
        name="matlab", wanted=1, free=0, total=1, holders=(LicenseHolder(JobId(first), "ada", 1),)
    )
    host.schedule()
    assert host.job(second).state is JobState.PENDING

    end(host, first)
    host.schedule()

    assert host.job(second).state is JobState.STARTING
    assert [grant.licenses for grant in host.attempt(second).grants] == [MATLAB]


@WAYS
def test_a_generic_resource_is_free_again_however_its_job_ends(end: Callable[[CoreHost, int], None]) -> None:
    fpgas = (Amount("fpga", 2),)
    host = CoreHost(POLICY, {"n1": has(resources={"fpga": 2}), "n2": has(resources={"fpga": 2}), "n3": inventory()})
    first = host.start(asks("first", amounts=fpgas, requeue=False))
    host.start(asks("other", amounts=fpgas))
    second = host.submit(asks("second", amounts=fpgas))
    wait = wait_of(host, second)
    assert isinstance(wait, Insufficient) and (wait.resource, wait.wanted, wait.free) == ("fpga", 2, 0)
    assert {holder.job_id for holder in wait.holders} == {1, 2}
    [shown] = host.ask(client.ListNodes(names=("n1",))).nodes  # type: ignore[union-attr]
    assert (shown.resources, shown.resources_free) == ({"fpga": 2}, {"fpga": 0})

    end(host, first)
    if end is set_down:
        host.ask(client.UpdateNodes(names=("n1",), action="resume"))
    host.schedule()

    assert host.job(second).state is JobState.STARTING
    assert host.cluster.nodes["n1"].used_resources == {"fpga": 2}


def test_what_was_planned_twice_is_adopted_once() -> None:
    host = CoreHost(ONE_MATLAB, {"n1": has(resources={"fpga": 1}), "n2": inventory()})
    first = host.submit(asks("first", licenses=MATLAB, amounts=(Amount("fpga", 1),)))
    plan = plan_whole(host.controller.snapshot(host.now))
    host.adopt(plan)
    host.obey()
    second, third = (
        host.submit(asks("second", licenses=MATLAB)),
        host.submit(asks("third", amounts=(Amount("fpga", 1),))),
    )

    [start] = plan.starts
    for job_id in (second, third):
        stale = msgspec.structs.replace(start, job_id=JobId(job_id), attempt=0)
        host.adopt(msgspec.structs.replace(plan, starts=(stale,)))

    assert host.job(first).state is JobState.RUNNING
    assert {host.job(one).state for one in (second, third)} == {JobState.PENDING}


def test_fewer_licences_than_are_in_use_are_a_matter_of_waiting() -> None:
    host = CoreHost(msgspec.structs.replace(POLICY, licenses={"matlab": 3}), {"n1": inventory()})
    host.start(asks("first", licenses=(Amount("matlab", 3),)))
    host.controller.policy = ONE_MATLAB
    second = host.submit(asks("second", licenses=MATLAB))

    wait = wait_of(host, second)
    assert isinstance(wait, OutOfLicenses) and (wait.free, wait.total) == (0, 1)

    host.finish(1)
    host.schedule()
    assert host.job(second).state is JobState.STARTING


def test_a_licence_that_is_there_no_more_is_said_so_until_it_is_there_again() -> None:
    host = CoreHost(ONE_MATLAB, {"n1": inventory()})
    job_id = host.submit(asks("job", licenses=MATLAB))
    planner = Planner()

    def told() -> Wait | None:
        planner.begin(host.controller.snapshot(host.now), skip_reasons=False)
        while (plan := planner.step(1000)) is None:
            pass
        return plan.waits.get(JobId(job_id))

    assert told() is None
    host.controller.policy = msgspec.structs.replace(POLICY, licenses={"other": 1})
    wait = told()
    assert isinstance(wait, Infeasible) and "no licences `matlab`" in wait.why
    host.controller.policy = ONE_MATLAB
    assert told() is None


# ── what can never be ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "message", "hint"),
    [
        ({"licenses": (Amount("matlib", 1),)}, "the cluster has no licences `matlib`", "did you mean `matlab`?"),
        ({"licenses": (Amount("matlab", 2),)}, "it asks for 2 licences `matlab`; the cluster has 1", "--licenses=matlab:1"),
        ({"constraint": "rak1"}, "no node that it may use has a feature or an attribute `rak1`", "did you mean `rack1`?"),
        ({"constraint": "rack1&rack2"}, "none of the 2 nodes that it may use is what --constraint=rack1&rack2 says", "no node meets all"),
        ({"constraint": "cuda>=13"}, "is what --constraint=cuda>=13 says", "gqctl node show"),
        ({"constraint": "ib*2"}, "wants 2 nodes of a kind; there are 1", "at most 1"),
        ({"constraint": "[rack1|rack2]", "nodes_min": 2, "nodes_max": 2}, "2 nodes of one kind ([rack1|rack2]); there are 1", "`|` without brackets"),
        ({"gpus": 1, "min_gpu_mem_mib": 40960}, "GPUs with 40G of memory; the largest have 16G", "--min-gpu-mem=16G"),
        ({"amounts": (Amount("fpgas", 1),)}, "no node that it may use has a resource `fpgas`", "did you mean `fpga`?"),
        ({"amounts": (Amount("fpga", 3),)}, "it asks for 3 of `fpga` on one node; the most that a node has is 2", "at most 2"),
        ({"amounts": (Amount("tmp", 4096),)}, "it asks for 4G of `tmp` on one node; the most that a node has is 2G", "at most 2G"),
        ({"constraint": "rack1&&"}, "at position 7", "see gqsub(1)"),
    ],
)  # fmt: skip
def test_what_can_never_be_is_refused_with_what_there_is(fields: dict[str, Any], message: str, hint: str) -> None:
    host = CoreHost(
        ONE_MATLAB,
        {
            "n1": has(features=("ib", "rack1"), attributes={"cuda": "12.4"}, resources={"fpga": 2, "tmp": 2048}),
            "n2": has(features=("rack2",), attributes={"cuda": "11.8"}),
        },
    )

    with pytest.raises(Refusal) as refused:
        host.submit(asks(**fields))

    assert message in refused.value.message and hint in refused.value.hint


def test_a_waiting_job_learns_that_no_node_is_any_more_what_it_wants_and_starts_when_one_is_again() -> None:
    host = CoreHost(POLICY, {"n1": has(features=("ib",))})
    blocker = host.start(asks("blocker", cpus_per_task=8))
    job_id = host.submit(asks("picky", constraint="ib"))
    host.handle(hello("n1", has(features=("gds",)), attempts=()), now=1.0)
    host.finish(blocker)

    host.schedule()
    wait = wait_of(host, job_id)
    assert isinstance(wait, Infeasible) and "`ib`" in wait.why and "`gds`" in wait.hint

    host.handle(hello("n1", has(features=("gds", "ib"))), now=2.0)
    host.schedule()
    assert host.job(job_id).state is JobState.STARTING


# ── waits that expire ─────────────────────────────────────────────────────────────────────────────────────────

TREE = (Switch(name="leaf1", nodes=("n1", "n2")), Switch(name="leaf2", nodes=("n3", "n4")))


def four_nodes(**scheduling: Any) -> CoreHost:
    """One node of each of two switches is taken."""
    policy = msgspec.structs.replace(POLICY, topology=TREE, scheduling=Scheduling(locality_wait_s=300, **scheduling))
    host = CoreHost(policy, {f"n{number}": has(features=(f"rack{number}",)) for number in (1, 2, 3, 4)})
    for name in ("n1", "n3"):
        host.start(asks("blocker", gpus=1, nodelist=(name,)))
    return host


def test_a_gang_holds_out_for_one_switch_and_starts_over_two_when_it_has_waited_long_enough() -> None:
    host = four_nodes()
    job_id = host.submit(
        asks("gang", nodes_min=2, nodes_max=2, gpus_per_node=4, switches=1, switches_wait_s=60), now=10
    )
    host.schedule(now=20)

    assert wait_of(host, job_id) == WaitsForLocality(what="switches", wanted="1 switch", offered="2 switches", until=70)
    host.schedule(now=69)
    assert host.job(job_id).state is JobState.PENDING
    host.schedule(now=70)
    assert [grant.node for grant in host.attempt(job_id).grants] == ["n2", "n4"]


def test_a_gang_that_holds_out_starts_at_once_when_a_switch_comes_free() -> None:
    host = four_nodes()
    job_id = host.submit(asks("gang", nodes_min=2, nodes_max=2, gpus_per_node=4, switches=1), now=10)
    host.schedule()
    host.finish(2, now=20)
    host.schedule()
    assert [grant.node for grant in host.attempt(job_id).grants] == ["n3", "n4"]


def test_a_job_holds_out_for_preferred_nodes_and_then_takes_others() -> None:
    host = four_nodes()
    job_id = host.submit(asks("picky", nodes_min=1, nodes_max=1, gpus_per_node=4, prefer="rack1|rack3"), now=10)
    host.schedule()

    assert wait_of(host, job_id) == WaitsForLocality(what="prefer", wanted="rack1|rack3", offered="n2", until=310)
    host.schedule(now=309)
    assert host.job(job_id).state is JobState.PENDING
    host.schedule(now=310)
    assert [grant.node for grant in host.attempt(job_id).grants] == ["n2"]


def test_a_role_holds_out_for_preferred_nodes_and_the_gang_with_it() -> None:
    host = four_nodes()
    worker = RoleRequest(ntasks=1, gpus_per_node=4, prefer="rack1")
    gang = (Role(name="ps", resources=RoleRequest()), Role(name="worker", resources=worker))
    job_id = host.submit(asks("gang", roles=gang), now=10)
    host.schedule()

    wait = wait_of(host, job_id)
    assert isinstance(wait, WaitsForLocality) and (wait.wanted, wait.until) == ("rack1", 310)
    host.schedule(now=310)
    assert host.job(job_id).state is JobState.STARTING


def test_who_holds_out_keeps_nobody_from_what_it_does_not_want() -> None:
    host = four_nodes()
    gang = host.submit(asks("gang", nodes_min=2, nodes_max=2, gpus_per_node=4, switches=1, switches_wait_s=60), now=10)
    single = host.submit(asks("single", gpus=4, time_limit_s=10**6))
    host.schedule()

    assert host.job(gang).state is JobState.PENDING
    assert host.job(single).state is JobState.STARTING


def test_cores_that_are_kept_for_idle_gpus_are_given_when_these_are_taken() -> None:
    policy = msgspec.structs.replace(POLICY, scheduling=Scheduling(cores_kept_per_gpu=2))
    host = CoreHost(policy, {"n1": inventory(cpus=10, gpu_count=4)})
    job_id = host.submit(asks("cpus", cpus_per_task=3))

    assert wait_of(host, job_id) == CoresReservedForGpus(wanted=3, free=2, kept=8, nodes=("n1",))
    host.schedule()
    host.start(asks("gpus", gpus=1))
    assert host.job(job_id).state is JobState.PENDING and host.controller.volatile.wants_plan
    host.schedule()
    assert host.job(job_id).state is JobState.STARTING, "9 CPUs are left, and 6 of them kept for 3 GPUs"


def test_kept_cores_are_counted_on_the_node_where_it_would_start() -> None:
    policy = msgspec.structs.replace(POLICY, scheduling=Scheduling(cores_kept_per_gpu=1))
    host = CoreHost(policy, {name: inventory(cpus=8, gpu_count=4) for name in ("n1", "n2", "n3")})
    job_id = host.submit(asks("cpus", cpus_per_task=6))

    assert wait_of(host, job_id) == CoresReservedForGpus(wanted=6, free=4, kept=4, nodes=("n1",)), (
        "not 12 over all nodes"
    )
    assert host.explain(job_id).hint == "a request for at most 4 CPUs could start now"
    host.submit(asks("fewer", cpus_per_task=4))
    host.schedule()
    assert [host.job(one).state for one in (1, 2)] == [JobState.PENDING, JobState.STARTING]


@pytest.mark.parametrize(
    ("per_gpu", "fields", "hint"),
    [
        (2, {"cpus_per_task": 10}, "ask for at most 2 CPUs per node"),
        (1, {"ntasks": 20}, "ask for at most 6 CPUs per node"),
        (3, {"cpus_per_task": 10}, "ask for GPUs, or for fewer CPUs"),
    ],
)
def test_cpus_that_are_always_kept_are_refused_at_once(per_gpu: int, fields: dict[str, Any], hint: str) -> None:
    policy = msgspec.structs.replace(POLICY, scheduling=Scheduling(cores_kept_per_gpu=per_gpu))
    host = CoreHost(policy, {name: inventory(cpus=10, gpu_count=4) for name in ("n1", "n2")})
    with pytest.raises(Refusal) as refused:
        host.submit(submit("cpus", **fields))

    assert refused.value.code == "impossible" and refused.value.hint.startswith(hint)
    assert f"CPUs and no GPUs, and of its nodes' CPUs {per_gpu} are kept for each GPU" in refused.value.message
    host.submit(submit("alone", **fields, is_exclusive=True))
    host.handle(hello("cpus-only", inventory(cpus=20, gpu_count=0)))
    host.submit(submit("elsewhere", **fields))


def test_what_was_possible_is_judged_anew_under_another_policy() -> None:
    host = CoreHost(POLICY, {"n1": inventory(cpus=10, gpu_count=4)})
    host.submit(submit("before", cpus_per_task=10))
    scheduling = Scheduling(cores_kept_per_gpu=1)
    host.handle(PolicyChanged(policy=msgspec.structs.replace(POLICY, scheduling=scheduling), text=""))
    with pytest.raises(Refusal, match="1 are kept for each GPU"):
        host.submit(submit("after", cpus_per_task=10))


def test_cpus_that_come_free_only_if_others_take_gpus_have_no_start_and_are_not_said_to_wait_for_ever() -> None:
    """A node has 10 CPUs: 9 are left when a job with one CPU has all of its GPUs."""
    policy = msgspec.structs.replace(POLICY, scheduling=Scheduling(cores_kept_per_gpu=2))
    host = CoreHost(policy, {"n1": inventory(cpus=10, gpu_count=4)})
    job_id = host.submit(asks("cpus", cpus_per_task=9))
    host.schedule()
    told = host.starts()[job_id]
    assert (told.start_at, told.never) == (None, "") and told.why.endswith(
        "its start on other CPUs cannot be estimated"
    )

    host.start(asks("gpus", gpus=4))
    host.schedule()
    assert host.job(job_id).state is JobState.STARTING


def test_a_low_qos_takes_the_oldest_card_and_a_high_one_the_newest() -> None:
    scheduling = Scheduling(gpu_tiers=("v100", "h100"), low_tier_qos=("scavenger",), high_tier_qos=("high",))
    nodes = {"n1": has(gpu_type="h100"), "n2": has(gpu_type="v100"), "n3": has(gpu_type="h100")}
    host = CoreHost(msgspec.structs.replace(POLICY, scheduling=scheduling), nodes)
    for name in ("scavenger", "high"):
        host.ask(client.SetQos(qos=QosInfo(name=name), is_new=True))
    low = host.start(submit("low", gpus=1, qos="scavenger"))
    high = host.start(submit("high", gpus=1, qos="high"))

    assert [grant.node for grant in host.attempt(low).grants] == ["n2"]
    assert [grant.node for grant in host.attempt(high).grants] == ["n1"]


@pytest.mark.parametrize(
    ("count", "things", "text"), [(1, "switches", "1 switch"), (11, "switches", "11 switches"), (1, "nodes", "1 node")]
)
def test_what_is_counted_is_in_the_singular_for_one_only(count: int, things: str, text: str) -> None:
    assert counted(count, things) == text


@pytest.mark.parametrize("names", [("b", "c"), ("gpu-a", "gpu-b"), ("n2", "n10"), ("n1a", "n1b"), ("n1", "n1a")])
def test_the_nodes_of_a_job_are_in_natural_order_however_they_joined(names: tuple[str, str]) -> None:
    host = CoreHost(POLICY, dict.fromkeys(reversed(names), inventory()))
    job_id = host.start(submit("gang", nodes_min=2, nodes_max=2, gpus_per_node=2))
    assert tuple(grant.node for grant in host.attempt(job_id).grants) == names
