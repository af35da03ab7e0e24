"""What is kept for a job to which others give way is not kept when it may not start, or when they never go."""

from __future__ import annotations

import signal

import msgspec

from gq.model.job import SignalSpec
from gq.model.policy_tables import Timers
from gq.model.scheduling import Scheduling
from gqd.sched.cycle.nominated import OVERDUE_S
from gqd.state.input import PolicyChanged, Tick
from gqd.state.policy import Partition, Policy
from tests.builders import OWNER, hello, inventory, submit
from tests.hosts import CoreHost

START = 1000.0
WARNED = SignalSpec(signum=signal.SIGUSR1, before_s=60)
POLICY = Policy(
    owner_uid=OWNER.uid,
    timers=Timers(node_lost_s=1e6, grace_s=20),
    partitions=(Partition(name="main", is_default=True),),
)


def claimed(policy: Policy = POLICY) -> tuple[CoreHost, int, int]:
    """(controller, who gives way, to whom), a hundred seconds after the start."""
    host = CoreHost(policy)
    host.now = START
    host.handle(hello("n1", inventory(cpus=8, gpu_count=4)), now=START)
    victim = host.start(submit("scavenger", qos="scavenger", gpus=4, time_limit_s=36_000, signal=WARNED))
    wants = host.submit(submit("urgent", gpus=4, time_limit_s=3600), now=START + 100)
    host.schedule()
    assert list(host.cluster.claims) == [wants]
    return host, victim, wants


def test_who_gives_way_stays_when_the_others_partition_is_taken_down() -> None:
    host, victim, _ = claimed()
    down = msgspec.structs.replace(POLICY.partitions[0], is_up=False)

    host.handle(PolicyChanged(policy=msgspec.structs.replace(POLICY, partitions=(down,)), text=""), START + 110)
    host.schedule()

    assert not host.cluster.claims
    assert host.attempt(victim).preemption is None


def test_a_plan_that_was_cut_short_drops_no_claim() -> None:
    host, victim, wants = claimed(msgspec.structs.replace(POLICY, scheduling=Scheduling(plan_steps=1)))
    for gpus in (1, 2, 3):
        host.submit(submit("more", gpus=gpus, time_limit_s=60))

    host.schedule(START + 110)

    assert host.controller.volatile.plan.resumes_at is not None
    way = host.attempt(victim).preemption
    assert way is not None and way.preemptor == wants


def test_nothing_is_kept_any_more_when_who_gave_way_is_still_there_long_after_it_was_ended() -> None:
    host, _, wants = claimed()
    host.obey()
    ended_at = START + 160
    host.beat(ended_at)
    host.handle(Tick(), ended_at)
    host.orders.clear()  # the node never does it

    host.schedule(ended_at + 20 + OVERDUE_S - 1)
    assert list(host.cluster.claims) == [wants]
    host.schedule(ended_at + 20 + OVERDUE_S)

    assert not host.cluster.claims
