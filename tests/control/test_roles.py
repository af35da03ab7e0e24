"""Gangs of roles: placed together or not at all, counted as the sum of their roles, and launched by role."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.node import Inventory
from gq.model.resource import Amount, Demand, Grant, ResourceRequest, Role, RoleRequest, min_demand
from gq.model.step import StepLayout, StepRequest
from gq.wire import client
from gqd.control.step import layout_of
from gqd.sched.limits.ledger import min_amounts
from gqd.sched.placement.placement import place
from gqd.sched.request import Shape, shape_of, wanted_in_all
from gqd.state.index.tally import asked_amounts
from tests.builders import inventory, submit
from tests.hosts import POLICY, CoreHost
from tests.sched.test_placement import FULL, Grants, overlay


def roles(**fields: dict[str, Any]) -> tuple[Role, ...]:
    return tuple(Role(name=name, resources=RoleRequest(**one)) for name, one in fields.items())


def gang(**fields: dict[str, Any]) -> ResourceRequest:
    return ResourceRequest(roles=roles(**fields))


PS = {"ntasks": 2, "cpus_per_task": 1}
WORKER = {"ntasks": 2, "gpus_per_task": 2}


def shape(**fields: dict[str, Any]) -> Shape:
    return shape_of(gang(**fields), "main")


def told(grants: tuple[Grant, ...] | None) -> dict[str, Grants] | None:
    """Role → node → (tasks, CPUs, GPUs)."""
    if grants is None:
        return None
    found: dict[str, Grants] = {}
    for grant in grants:
        for share in grant.roles:
            found.setdefault(share.role, {})[grant.node] = (share.tasks, len(share.cpus), len(share.gpus))
    return found


# ── where they go ─────────────────────────────────────────────────────────────────────────────────────────────

# fmt: off
CASES: list[tuple[str, dict[str, dict[str, Any]], tuple[tuple[int, int], ...], dict[str, Grants] | None]] = [
    ("roles share a node where they "
        "fit", {"ps": PS, "worker": WORKER}, (FULL,), {"ps": {"n1": (2, 2, 0)}, "worker": {"n1": (2, 2, 4)}}),
    ("each goes where it "
        "fits", {"ps": PS, "worker": WORKER}, ((2, 8), (2, 0)), {"ps": {"n2": (2, 2, 0)}, "worker": {"n1": (2, 2, 4)}}),
    ("nobody starts when one role has no room", {"ps": PS, "worker": WORKER}, ((8, 3), (8, 0)), None),
    ("nobody starts when they do not fit beside each other", {"ps": {"ntasks": 7}, "worker": WORKER}, (FULL,), None),
    ("the role that wants most chooses "
        "first", {"small": {"gpus": 1}, "large": {"gpus": 8}}, (FULL, (8, 1)), {"small": {"n2": (1, 1, 1)}, "large": {"n1": (1, 1, 8)}}),
    ("an exclusive role leaves its node "
        "alone", {"a": {"is_exclusive": True}, "b": {"ntasks": 1}}, (FULL, FULL), {"a": {"n1": (1, 8, 8)}, "b": {"n2": (1, 1, 0)}}),
    ("a role by name gets its node before others take "
        "it", {"a": {"gpus": 8}, "b": {"nodelist": ("n1",), "gpus": 1}}, (FULL, FULL), {"a": {"n2": (1, 1, 8)}, "b": {"n1": (1, 1, 1)}}),
    ("what a role leaves out others may "
        "use", {"a": {"exclude": ("n1",)}, "b": {"ntasks": 8}}, (FULL, FULL), {"a": {"n2": (1, 1, 0)}, "b": {"n1": (8, 8, 0)}}),
    ("another order is tried where the first is stuck", {"a": {"gpus": 4}, "b": {"ntasks": 8, "nodes_min": 1, "nodes_max": 1}}, ((8, 4), (4, 8)), {"a": {"n2": (1, 1, 4)}, "b": {"n1": (8, 8, 0)}}),
]  # fmt: skip


@pytest.mark.parametrize(("what", "asked", "free", "expected"), CASES, ids=[case[0] for case in CASES])
def test_a_gang_is_placed_as_the_table_says(
    what: str,
    asked: dict[str, dict[str, Any]],
    free: tuple[tuple[int, int], ...],
    expected: dict[str, Grants] | None,
) -> None:
    assert told(place(overlay(*free), shape(**asked), list(range(len(free))))) == expected


def test_placing_a_gang_leaves_the_overlay_as_it_was() -> None:
    for free in ((FULL, FULL), ((8, 3), (1, 0))):
        view = overlay(*free)
        place(view, shape(ps=PS, worker=WORKER), [0, 1])
        assert (list(view.free_cpus), list(view.free_gpus)) == tuple(
            [(1 << node[kind]) - 1 for node in free] for kind in (0, 1)
        )


def test_no_two_roles_have_the_same_cpu_or_gpu_and_the_grant_is_their_sum() -> None:
    [grant] = place(overlay(FULL), shape(ps=PS, worker=WORKER), [0]) or ()

    assert sorted(cpu for share in grant.roles for cpu in share.cpus) == list(grant.cpus)
    assert sorted(gpu for share in grant.roles for gpu in share.gpus) == list(grant.gpus)
    assert grant.tasks == 4


def test_the_first_node_is_the_first_one_of_the_first_role() -> None:
    grants = place(overlay((2, 8), (2, 0)), shape(ps=PS, worker=WORKER), [0, 1]) or ()

    assert [grant.node for grant in grants] == ["n2", "n1"]


def test_a_gang_that_may_have_one_node_is_put_on_one() -> None:
    asked = {"ps": {"ntasks": 2, "nodes_max": 1, "nodes_min": 1}, "worker": {"gpus": 2}}

    bound = shape_of(gang(**asked), "main", None, 1)
    assert told(place(overlay((8, 2), (2, 0), FULL), bound, [0, 1, 2])) == {
        "ps": {"n1": (2, 2, 0)},
        "worker": {"n1": (1, 1, 2)},
    }


# ── what they come to ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_gang_wants_the_sum_of_its_roles() -> None:
    asked = gang(ps=PS | {"mem_per_cpu_mib": 10}, worker=WORKER | {"gpu_type": "a100"})

    assert min_demand(asked) == Demand(nodes=1, tasks=4, cpus=4, gpus=4, memory_mib=20)
    assert wanted_in_all(shape_of(asked, "main")) == (4, 4)
    amounts = {"jobs": 1, "gpus": 4, "cpus": 4, "memory": 20, "gpus:a100": 4}
    assert asked_amounts(asked) == amounts
    assert {name: count for name, count in min_amounts(shape_of(asked, "main")).items() if count} == amounts


def test_a_gang_is_billed_and_counted_for_what_its_roles_hold() -> None:
    host = two_nodes()

    [grant] = host.attempt(1).grants
    assert (len(grant.cpus), len(grant.gpus)) == (4, 4)
    assert host.cluster.tallies.held_by[host.attempt(1).attempt_id.job_id]["gpus"] == 4


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────


def two_nodes() -> CoreHost:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    host.start(submit("gang", roles=roles(ps=PS, worker=WORKER)))
    return host


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"roles": roles(ps=PS, PS=PS)}, "bad_role", "two roles are named `PS`"),
        ({"roles": (Role(name="p s", resources=RoleRequest()),)}, "bad_role", "`p s` cannot be a role's name"),
        ({"roles": roles(**{f"r{number}": {} for number in range(65)})}, "bad_role", "there are 65 roles"),
        ({"roles": roles(ps=PS), "ntasks": 2}, "contradiction", "--ntasks and --role exclude each other"),
        ({"roles": roles(ps={"ntasks": 0})}, "bad_count", "role `ps`: --ntasks=0 is less than 1"),
        ({"roles": roles(ps=PS, big={"gpus_per_node": 9})}, "impossible", "the job can never run: role `big`: it asks for 9 GPUs"),
        ({"roles": roles(a={"gpus": 3}, b={"gpus": 3})}, "impossible", "the job can never run: its roles `a`, `b` do not fit beside"),
        ({"roles": roles(a={"nodelist": ("n7",)})}, "unknown_node", "node `n7` does not exist"),
    ],
)  # fmt: skip
def test_a_gang_that_makes_no_sense_is_refused_by_the_controller(
    fields: dict[str, Any], code: str, message: str
) -> None:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory(gpu_count=0)})

    with pytest.raises(Refusal) as caught:
        host.submit(submit("gang", **fields))

    assert (caught.value.code, caught.value.message[: len(message)]) == (code, message)


def test_a_gang_waits_until_all_of_its_roles_have_room() -> None:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    first = host.start(submit("first", nodes_min=2, gpus_per_node=3))
    waiting = host.start(submit("gang", roles=roles(ps=PS, worker=WORKER)))
    assert host.job(waiting).is_waiting

    host.finish(first)
    host.schedule()

    assert told(host.attempt(waiting).grants) == {"ps": {"n1": (2, 2, 0)}, "worker": {"n1": (2, 2, 4)}}


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(host: CoreHost, **fields: Any) -> StepLayout:
    found = host.ask(client.CreateStep(job_id=1, step=StepRequest(name="step", **fields)))
    host.obey()
    assert isinstance(found, client.StepCreated)
    return found.layout


def ranks(found: StepLayout) -> dict[str, list[int]]:
    """Role → the ranks of its tasks."""
    by_role: dict[str, list[int]] = {}
    for part in found.parts:
        for rank in part.ranks:
            role = part.role_of(rank)
            by_role.setdefault(role.role if role else "", []).append(rank)
    return by_role


def spread_gang() -> CoreHost:
    host = CoreHost(nodes={"n1": inventory(), "n2": inventory()})
    host.start(submit("gang", roles=roles(ps={"nodes_min": 2}, worker={"nodes_min": 2, "gpus_per_node": 2})))
    return host


def test_a_step_has_the_tasks_of_all_roles_in_their_order() -> None:
    found = layout(spread_gang())

    assert ranks(found) == {"ps": [0, 1], "worker": [2, 3]}
    assert [(part.node, part.ranks) for part in found.parts] == [("n1", (0, 2)), ("n2", (1, 3))]
    assert found.roles == ("ps", "worker")


@pytest.mark.parametrize("word", ["worker", "1"])
def test_a_step_of_one_role_has_what_that_role_has_and_leaves_the_rest(word: str) -> None:
    host = spread_gang()

    worker, ps = layout(host, roles=(word,)), layout(host, roles=("ps",))

    assert (ranks(worker), ranks(ps)) == ({"worker": [0, 1]}, {"ps": [0, 1]})
    assert [(part.cpus, part.gpus) for part in ps.parts] == [
        (tuple(cpu for cpu in grant.cpus if cpu not in part.cpus), ())
        for grant, part in zip(host.attempt(1).grants, worker.parts, strict=True)
    ]
    assert [len(part.gpus) for part in worker.parts] == [2, 2]


def test_a_step_with_numbers_is_laid_out_over_the_job_or_over_one_role() -> None:
    host = spread_gang()

    assert ranks(layout(host, ntasks=1, nodes=1, overlap=True)) == {"": [0]}
    assert ranks(layout(host, ntasks=1, nodes=1, roles=("worker",), gpus_per_task=1, overlap=True)) == {"worker": [0]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"roles": ("wroker",)}, "job 1 has no role `wroker`"),
        ({"roles": ("2",)}, "job 1 has no role `2`"),
        ({"roles": ("ps", "worker"), "ntasks": 2}, "a step of several roles has the tasks and resources"),
        ({"roles": ("ps",), "gpus_per_node": 1}, "the step needs 1 GPUs on n1; job 1 has 0 there"),
        ({"nodelist": ("n9",)}, "node `n9` is not one of the job's live nodes"),
    ],
)
def test_a_step_that_its_roles_cannot_give_is_refused(fields: dict[str, Any], message: str) -> None:
    host = spread_gang()

    with pytest.raises(Refusal) as caught:
        layout(host, **fields)

    assert caught.value.message.startswith(message)


def test_roles_are_named_only_where_there_are_some() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.start(submit("plain"))

    with pytest.raises(Refusal, match="job 1 has no roles"):
        layout(host, roles=("ps",))


def test_a_step_of_a_role_waits_while_another_step_has_its_gpus() -> None:
    host = spread_gang()
    layout(host, roles=("worker",))
    attempt = host.attempt(1)
    busy = {part.grant.node: (set(part.grant.cpus), set[int]()) for part in attempt.parts.values()}

    assert layout_of(StepRequest(name="step", roles=("worker",)), host.job(1), attempt, busy) is None


# ── what is asked beside numbers ──────────────────────────────────────────────────────────────────────────────


def featured(*features: str, **has: Any) -> Inventory:
    return msgspec.structs.replace(inventory(), features=features, **has)


def test_each_role_goes_to_nodes_that_are_what_it_wants() -> None:
    host = CoreHost(nodes={"n1": featured("fast"), "n2": featured("ssd", resources={"tmp": 100})})
    scratch = (Amount("tmp", 60),)
    asked = roles(a={"constraint": "ssd", "resources": scratch}, b={"constraint": "fast"})

    job = host.start(submit("gang", roles=asked))
    second = host.start(submit("second", roles=asked))

    assert [(grant.node, [share.role for share in grant.roles]) for grant in host.attempt(job).grants] == [
        ("n2", ["a"]),
        ("n1", ["b"]),
    ]
    assert host.attempt(job).grants[0].resources == scratch
    assert host.job(second).is_waiting, "the scratch space of n2 is taken"
    host.finish(job)
    host.schedule()
    assert not host.job(second).is_waiting


def test_a_gang_holds_the_licences_of_the_whole_job_once() -> None:
    host = CoreHost(
        msgspec.structs.replace(POLICY, licenses={"solver": 2}), nodes={"n1": inventory(), "n2": inventory()}
    )
    asked = {"roles": roles(a={"nodes_min": 2}, b={}), "licenses": (Amount("solver", 2),)}

    first, second = host.start(submit("first", **asked)), host.start(submit("second", **asked))

    assert [grant.licenses for grant in host.attempt(first).grants] == [(Amount("solver", 2),), ()]
    assert host.job(second).is_waiting
