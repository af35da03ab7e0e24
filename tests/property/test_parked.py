"""Jobs that stand still for others, whatever happens in whatever order: no GPU is given twice, nobody is forgotten."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from gq.model.account import BUILT_IN_QOS, PreemptMode
from gq.model.state import JobState
from gq.wire import client
from gqd.state import parked
from tests.builders import ADAM, ALICE, BOB, submit
from tests.property.test_core_machine import CoreMachine

SCAVENGERS = msgspec.structs.replace(BUILT_IN_QOS["scavenger"], preempt_mode=PreemptMode.SUSPEND)


class ParkingMachine(CoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.host.ask(client.SetQos(qos=SCAVENGERS, is_new=False), peer=ADAM)

        self.scavenge()
        self.urge(4, 8000)

    @rule()
    def scavenge(self) -> None:
        """All that is idle is taken."""
        for _ in range(3):
            self._ask(submit(qos="scavenger", gpus=4, mem_per_node_mib=1000), ALICE)
        self.go_on()

    @rule(gpus=st.integers(1, 4), least_mib=st.sampled_from([8000, 8000, 14_000]))
    def urge(self, gpus: int, least_mib: int) -> None:
        """Nodes say that 4000 MiB of each GPU are in use."""
        wanted = submit(gpus=gpus, mem_per_node_mib=1000, min_gpu_mem_mib=least_mib, time_limit_s=300)
        self._ask(wanted, BOB)
        self.host.schedule()

    @rule()
    def go_on(self) -> None:
        """Most of what happens is what should."""
        self.host.obey()
        self.host.schedule()
        self.host.obey()

    @rule()
    def be_over(self) -> None:
        """Whoever others stand still for, when it runs."""
        for known in list(self.host.cluster.parked.values()):
            other = self.host.cluster.jobs.get(known.to)
            if other is not None and other.state is JobState.RUNNING:
                self.host.finish(other.job_id)

    @invariant()
    def nobody_stands_still_for_nobody(self) -> None:
        cluster = self.host.cluster
        for attempt_id, known in cluster.parked.items():
            assert cluster.jobs[attempt_id.job_id].state is JobState.RUNNING
            is_had = known.lent is not None and not parked.is_back(cluster, known.lent)
            assert is_had or parked.is_waited_for(cluster, attempt_id)

    @invariant()
    def what_is_lent_is_offered_to_nobody(self) -> None:
        view = self.host.controller.snapshot(self.host.now)
        places = {node.name: place for place, node in enumerate(view.nodes)}
        for name, (cpus, gpus) in parked.lent_masks(self.host.cluster).items():
            if name in places:
                assert not view.free_gpus[places[name]] & gpus and not view.free_cpus[places[name]] & cpus


TestParkingMachine = ParkingMachine.TestCase
TestParkingMachine.settings = settings(max_examples=6, stateful_step_count=15, deadline=None)


@pytest.mark.slow
class TestParkingMachineForLong(ParkingMachine.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=25, stateful_step_count=40, deadline=None)
