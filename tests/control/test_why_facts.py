"""What `gqwhy` tells, one fact at a time: no start that contradicts the reason, who goes before, how a gate failed."""

from __future__ import annotations

import msgspec

from gq.explain.render import split_facts
from gq.model.dependency import parse_dependency
from gq.model.state import JobState
from gq.wire import client
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, inventory, submit
from tests.hosts import CoreHost


def cluster(nodes: int = 1) -> CoreHost:
    return CoreHost(Policy(owner_uid=OWNER.uid), {f"n{number + 1}": inventory() for number in range(nodes)})


def rack_cluster() -> CoreHost:
    """Two nodes of rack r2, and n3 of another rack."""
    nodes = {f"n{number}": msgspec.structs.replace(inventory(), attributes={"rack": "r2"}) for number in (1, 2)}
    nodes["n3"] = msgspec.structs.replace(inventory(), attributes={"rack": "r1"})
    return CoreHost(Policy(owner_uid=OWNER.uid), nodes)


def test_no_start_is_told_beside_a_job_with_no_known_end() -> None:
    host = cluster()
    host.start(submit(gpus=1), now=0)
    host.finish(1, now=1)  # one job of a second is all that is known of the user's jobs
    host.start(submit(gpus=4), now=2)
    waiting = host.submit(submit(gpus=4))
    host.schedule()
    assert host.starts(now=3)[waiting].start_at is not None, "the rehearsal has an estimate"

    told = host.explain(waiting)

    assert told.facts == ("it needs 4 GPUs, 0 are free", "job 2 (ada) holds 4 GPUs on n1 with no known end")
    assert told.expected_start_at is None
    assert "no start can be promised" in told.hint


def test_no_start_is_told_of_a_job_that_is_held() -> None:
    host = cluster()
    host.start(submit(gpus=4, time_limit_s=600))
    waiting = host.submit(submit(gpus=4))
    host.schedule()
    assert host.starts()[waiting].start_at == 600
    host.ask(client.HoldJobs(job_ids=(waiting,)))

    told = host.explain(waiting)

    assert (told.facts, told.expected_start_at) == (("its owner holds it",), None)


def test_no_instant_that_has_passed_is_told_as_an_end_or_a_start() -> None:
    host = cluster()
    host.start(submit(gpus=4, time_limit_s=600), now=0)
    waiting = host.submit(submit(gpus=4))
    host.schedule()
    host.starts()
    host.beat(now=605)

    told = host.explain(waiting)

    assert told.facts[1] == "job 1 (ada) holds 4 GPUs on n1 and is being ended"
    assert "@{600}" not in told.why
    assert told.expected_start_at is None or told.expected_start_at > 605


def test_the_jobs_that_go_before_are_named() -> None:
    host = cluster()
    host.start(submit(gpus=4, time_limit_s=600))
    first, second, third = (host.submit(submit(name, gpus=4, time_limit_s=60)) for name in ("one", "two", "three"))
    host.schedule()

    assert not any("ahead of it" in fact for fact in host.explain(first).facts)
    assert f"job {first} (ada: one) is ahead of it in the queue" in host.explain(second).facts
    assert f"job {first} (ada: one), job {second} (ada: two) are ahead of it in the queue" in host.explain(third).facts


def test_the_jobs_of_another_partition_do_not_go_before() -> None:
    policy = Policy(owner_uid=OWNER.uid, partitions=(Partition(name="main"), Partition(name="night")))
    host = CoreHost(policy, {"n1": inventory()})
    host.start(submit(gpus=4, time_limit_s=600))
    host.submit(submit(gpus=4, partition="night"))
    waiting = host.submit(submit(gpus=4, partition="main"))
    host.schedule()

    assert not any("ahead of it" in fact for fact in host.explain(waiting).facts)


def test_a_shortage_on_chosen_nodes_tells_how_many_of_them_are_idle_and_what_is_free_on_others() -> None:
    host = rack_cluster()
    for node in ("n1", "n2"):
        host.start(submit(cpus_per_task=8, nodelist=(node,), time_limit_s=600))
    waiting = host.submit(submit(cpus_per_task=4, constraint="rack=r2"))
    host.schedule()

    told = host.explain(waiting)

    assert told.facts[0] == (
        "it needs 4 CPUs on nodes with --constraint=rack=r2, 0 are free there"
        " (0 of 2 such nodes are idle, 8 CPUs are free on other nodes)"
    )
    assert told.shortage is not None
    assert (told.shortage.wanted, told.shortage.free, told.shortage.free_elsewhere) == (4, 0, 8)
    assert (told.shortage.nodes, told.shortage.idle_nodes) == (2, 0)
    assert [(one.job_id, one.cpus, one.ends_at) for one in told.shortage.holders] == [(1, 8, 600.0), (2, 8, 600.0)]


def test_a_job_whose_gate_said_no_names_the_gate_and_its_exit_code() -> None:
    host = cluster()
    asked = submit("if:train")
    gate = host.start(msgspec.structs.replace(asked, spec=msgspec.structs.replace(asked.spec, is_gate=True)))
    job = host.submit(submit("train", dependency=parse_dependency(f"afterok:{gate}")))
    assert host.explain(job).why == f"it waits for its --if command (job {gate}, running) to succeed"

    host.finish(gate, code=3)

    assert host.job(job).state is JobState.PENDING
    assert host.explain(job).why == f"it can never start: its --if command returned 3 (gqlog {gate} shows the output)"


def test_a_fact_ends_at_a_semicolon_that_is_not_within_a_name() -> None:
    assert split_facts("job 1 (ada: a; b) holds 1 GPU; it starts soon") == [
        "job 1 (ada: a; b) holds 1 GPU",
        "it starts soon",
    ]
