"""Whatever crashes, whoever does not answer: each notice is delivered once or more often, or given up and told so."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gq.model.notice import NotifySettings, Target
from gq.wire import client
from gqd.control.turn import Turn
from gqd.state.effect import SendNotice
from gqd.state.events.event import NoticeDropped, NoticeQueued
from gqd.state.input import NoticeReported, Tick
from gqd.state.notice import MAX_SENDING, MAX_SENDING_OF_USER
from tests.builders import ALICE, BOB, CARL, SHARED, inventory, submit
from tests.effort import first
from tests.hosts import CoreHost

HOOK = Target(kind="webhook", to="https://hooks.example.org/x", on=("end",))
TELLING = NotifySettings(webhook_hosts=("hooks.example.org",), max_per_user=12, retry_max_s=120, give_up_s=900)


class OutboxHost(CoreHost):
    """Remembers what went out since the last start, and everything that ever did."""

    def __init__(self) -> None:
        self.out: dict[int, str] = {}
        self.ever: dict[int, int] = {}
        super().__init__(msgspec.structs.replace(SHARED, notify=TELLING), {"n1": inventory()})

    def restart(self, now: float | None = None) -> None:
        self.out = {}
        super().restart(now)

    def _close(self, turn: Turn) -> Turn:
        for one in turn.effects:
            if isinstance(one, SendNotice):
                assert one.notice_id not in self.out, "it is on its way already"
                self.out[one.notice_id] = one.user
                self.ever[one.notice_id] = self.ever.get(one.notice_id, 0) + 1
        users = list(self.out.values())
        assert len(users) <= MAX_SENDING and all(users.count(one) <= MAX_SENDING_OF_USER for one in set(users))
        return super()._close(turn)

    def report(self, notice_id: int, why: str = "", is_final: bool = False) -> None:  # type: ignore[override]
        del self.out[notice_id]
        self.handle(NoticeReported(notice_id=notice_id, why=why, is_final=is_final))


def step(host: OutboxHost, random: Random) -> None:
    chance = random.random()
    if chance < 0.35:
        peer = random.choice((ALICE, ALICE, BOB, CARL))
        job_id = host.submit(submit(ntasks=1, is_held=True, notify=(HOOK,)), peer=peer)
        host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))), peer=peer)
    elif chance < 0.75 and host.out:
        why, is_final = random.choice([("", False), ("no answer", False), ("no answer", False), ("404", True)])
        host.report(random.choice(list(host.out)), why, is_final)
    elif chance < 0.8:
        host.restart(host.now + random.random())
    else:
        host.handle(Tick(), host.now + random.choice((0.5, 30, 120)))


@pytest.mark.parametrize("seed", first(2, range(8)))
def test_no_notice_is_lost_over_crashes_and_failures(seed: int) -> None:
    random, host = Random(seed), OutboxHost()
    for _ in range(150):
        step(host, random)
    for _ in range(1000):
        if not host.cluster.outbox.notices:
            break
        for one in list(host.out):
            host.report(one, random.choice(["", "no answer"]))
        host.handle(Tick(), host.now + 30)

    queued = {one.notice_id for one in host.log if isinstance(one, NoticeQueued)}
    told = {one.notice_id: one.state for one in host.store.notices(client.ListNotices()).notices}
    assert told.keys() == queued == host.ever.keys()
    assert set(told.values()) <= {"delivered", "given_up"}
    assert queued and max(host.ever.values()) > 1
    dropped = sum(isinstance(one, NoticeDropped) for one in host.log)
    jobs = host.cluster.next_job_id - 1
    assert len(queued) + dropped == jobs, f"GQ_TEST_SEED={seed}"
