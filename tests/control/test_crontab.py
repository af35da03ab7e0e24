"""Crontabs: what is due becomes jobs once, whatever happens; who is not told why there was none?"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import Holder, LimitAt, LimitInfo
from gq.model.crontab import CronEntry, CronEntryInfo, Missed, Overlap
from gq.model.dependency import parse_dependency
from gq.model.ids import JobId, RequestId
from gq.model.notice import NotifySettings, Target
from gq.model.policy_tables import Limits
from gq.model.state import JobState, Outcome
from gq.wire import client
from gqd.control.turn import Turn
from gqd.state.effect import FireCron, Reply
from gqd.state.events import event
from gqd.state.input import ClientRequest, Peer, PolicyChanged, Tick
from gqd.state.policy import Policy
from tests.builders import ADAM, ALICE, BOB, OLGA, OWNER, SHARED, client_request, hello, inventory, named, spec
from tests.hosts import CoreHost

BERLIN = ZoneInfo("Europe/Berlin")
ZONES = {"Europe/Berlin": BERLIN}
MINUTE = 60.0
NIGHT = datetime(2026, 6, 1, 20, 0, tzinfo=UTC).timestamp()


def at(*moment: int, zone: Any = UTC, fold: int = 0) -> float:
    return datetime(*moment, tzinfo=zone, fold=fold).timestamp()  # type: ignore[arg-type,misc]


def entry(schedule: str = "0 * * * *", line: int = 1, **fields: Any) -> CronEntry:
    own = {name: fields.pop(name) for name in list(fields) if name in CronEntry.__struct_fields__}
    fields.setdefault("command", "train")
    return CronEntry(line=line, schedule=schedule, spec=spec(**fields), **own)


class CronHost(CoreHost):
    """Whatever is fired comes back at once, unless `is_silent`; owners are those of `users`."""

    def __init__(self, policy: Policy = SHARED, now: float = NIGHT, **fields: Any) -> None:
        self.fired: list[FireCron] = []
        self.is_silent = False
        self.users = {one.user: one for one in (ALICE, BOB, OWNER)}
        self.hook = {"hook": "", "hook_refusal": ""}
        super().__init__(policy, **fields)
        self.handle(hello("n1", inventory()), now)
        self.handle(Tick(), now)

    def _close(self, turn: Turn) -> Turn:
        super()._close(turn)
        fired = [one for one in turn.effects if isinstance(one, FireCron)]
        self.fired += fired
        for one in [] if self.is_silent else fired:
            self.answer(one)
        return turn

    def answer(self, one: FireCron) -> Turn:
        peer = self.users.get(one.cron.user)
        cron = one.cron if peer else msgspec.structs.replace(one.cron, why_not=f"user {one.cron.user} is not known")
        request = ClientRequest(
            peer=peer or Peer(uid=one.uid, gid=one.uid, user=one.cron.user),
            route=("", b""),
            request_id=RequestId(b""),
            body=client.Submit(spec=one.spec),
            cron=cron,
            **self.hook,  # type: ignore[arg-type]
        )
        return self.handle(request)

    def set(self, *entries: CronEntry, peer: Peer = ALICE, user: str = "", text: str = "text") -> client.Crontab:
        body = client.SetCrontab(text=text, jobs=tuple([client.CronJob(entry=one) for one in entries]), user=user)
        self._requests += 1
        known = self.users.get(user)
        request = client_request(body, self._requests, peer, None if known is None else named(known))
        turn = self.handle(msgspec.structs.replace(request, zones=ZONES))
        [reply] = [one.body for one in turn.effects if isinstance(one, Reply)]
        if isinstance(reply, client.Refused):
            raise Refusal(reply.code, reply.message, reply.hint)
        assert isinstance(reply, client.Crontab)
        return reply

    def tick(self, now: float) -> None:
        self.beat(now)
        self.handle(Tick(), now)

    def jobs(self) -> list[float]:
        """When each job was made that a crontab became."""
        return [one.at for one in self.log if isinstance(one, event.JobSubmitted) and one.spec.cron]

    def firings(self) -> list[event.CronFired]:
        return [one for one in self.log if isinstance(one, event.CronFired)]

    def shown(self, user: str = "alice") -> CronEntryInfo:
        answer = self.ask(client.GetCrontab(user=user), peer=ADAM)
        assert isinstance(answer, client.Crontab)
        return answer.crontab.entries[0]

    def run_last(self, code: int = 0) -> None:
        """What waits starts and ends."""
        self.schedule()
        self.obey()
        [job_id] = [one.job_id for one in self.cluster.jobs.values() if one.state is JobState.RUNNING]
        self.finish(job_id, code)


def follow(host: CronHost, begin: float, end: float, step: float = 600.0) -> list[str]:
    """The wall-clock times in Berlin of the jobs that are made between two instants."""
    now = begin
    while now <= end:
        host.tick(now)
        for job_id in [one.job_id for one in host.cluster.jobs.values() if one.state is JobState.PENDING]:
            host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))), peer=ADAM)
        now += step
    return [datetime.fromtimestamp(one, BERLIN).strftime("%d %H:%M %z") for one in host.jobs()]


# ── what is due ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_entry_that_is_due_becomes_a_job_and_the_whole_turn_says_so() -> None:
    host = CronHost()
    host.set(entry("5 20 * * *", name="nightly", gpus=2))
    host.is_silent = True
    assert host.controller.next_wakeup(host.now) == NIGHT + 5 * MINUTE

    host.beat(NIGHT + 5 * MINUTE)
    turn = host.handle(Tick())

    [fired] = turn.effects
    assert isinstance(fired, FireCron) and turn.events == ()
    assert (fired.uid, fired.cron.user, fired.cron.due_at) == (ALICE.uid, "alice", NIGHT + 5 * MINUTE)
    turn = host.answer(fired)
    submitted, audited, told = turn.events[-3:]
    assert isinstance(submitted, event.JobSubmitted)
    assert (submitted.user, submitted.spec.name, submitted.spec.cron) == ("alice", "nightly", "line 1: 5 20 * * *")
    assert isinstance(audited, event.Audited)
    assert (audited.action, audited.origin, audited.object) == ("Submit", "crontab", "job 1")
    due_at = NIGHT + 5 * MINUTE
    assert told == event.CronFired(at=due_at, user="alice", number=1, due_at=due_at, job_id=JobId(1))
    assert turn.effects == ()
    assert host.answer(fired) == Turn(), "the same firing again makes nothing"
    host.handle(Tick())
    assert host.controller.next_wakeup(host.now) == due_at + 86400


def test_a_firing_that_got_lost_is_asked_again_and_makes_one_job() -> None:
    host = CronHost()
    host.set(entry())
    host.is_silent = True
    host.tick(NIGHT + 60 * MINUTE)
    host.tick(NIGHT + 60 * MINUTE + 30)
    assert len(host.fired) == 1
    host.tick(NIGHT + 61 * MINUTE)
    assert len(host.fired) == 2
    for one in host.fired:
        host.answer(one)
    assert len(host.jobs()) == 1


@pytest.mark.parametrize("dies", ["before it is fired", "when it was fired", "when the job is made"])
def test_a_controller_that_dies_at_any_step_makes_each_job_once(dies: str) -> None:
    host = CronHost()
    host.set(entry("0 21 * * *"))
    due_at = NIGHT + 60 * MINUTE
    if dies == "when it was fired":
        host.is_silent = True
        host.tick(due_at)
    elif dies == "when the job is made":
        host.tick(due_at)
    host.restart(due_at + 20)
    host.is_silent = False
    for seconds in (20, 21, 90):
        host.handle(Tick(), due_at + seconds)
    assert [(one.due_at, one.job_id) for one in host.firings()] == [(due_at, 1)]


def test_two_entries_of_two_users_are_due_in_one_tick() -> None:
    host = CronHost()
    host.set(entry(), entry("0 21 * * *", line=2, command="eval"))
    host.set(entry(), peer=BOB)
    host.tick(NIGHT + 60 * MINUTE)
    assert sorted(one.user for one in host.cluster.jobs.values()) == ["alice", "alice", "bob"]


# ── daylight saving ───────────────────────────────────────────────────────────────────────────────────────────


def test_when_the_clocks_go_forward_what_falls_into_the_gap_is_done_at_its_end_once() -> None:
    host = CronHost(now=at(2026, 3, 28, 12))
    host.set(entry("30 2 * * *", zone="Europe/Berlin"))
    made = follow(host, at(2026, 3, 28, 12), at(2026, 3, 30, 12))
    assert made == ["29 03:00 +0200", "30 02:30 +0200"]


def test_when_the_clocks_go_back_what_comes_twice_is_done_once_and_what_is_hourly_each_hour() -> None:
    host = CronHost(now=at(2026, 10, 24, 12))
    host.set(entry("30 2 * * *", zone="Europe/Berlin"))
    assert follow(host, at(2026, 10, 24, 12), at(2026, 10, 26, 12)) == ["25 02:30 +0200", "26 02:30 +0100"]

    hourly = CronHost(now=at(2026, 10, 24, 23, 50))
    hourly.set(entry("30 * * * *", zone="Europe/Berlin"))
    made = follow(hourly, at(2026, 10, 24, 23, 50), at(2026, 10, 25, 2, 40))
    assert made == ["25 02:30 +0200", "25 02:30 +0100", "25 03:30 +0100"]


def test_without_a_zone_the_controllers_own_holds_also_after_that_has_changed() -> None:
    host = CronHost(msgspec.structs.replace(SHARED, zone=BERLIN))
    host.set(entry("0 23 * * *"))
    assert host.shown().next == ("2026-06-01T23:00:00+02:00",)
    host.handle(PolicyChanged(policy=msgspec.structs.replace(SHARED, zone=UTC)))
    host.handle(Tick())
    assert host.shown().next == ("2026-06-01T23:00:00+00:00",)
    assert host.controller.next_wakeup(host.now) == NIGHT + 3 * 3600


# ── no duplicate run ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("word", ["pending", "running"])
def test_while_the_last_job_is_not_over_there_is_no_other_and_it_is_said_why(word: str) -> None:
    host = CronHost()
    host.set(entry())
    host.tick(NIGHT + 60 * MINUTE)
    if word == "running":
        host.schedule()
        host.obey()
    host.tick(NIGHT + 120 * MINUTE)
    assert len(host.jobs()) == 1
    assert host.firings()[-1].why == host.shown().trouble == f"job 1 of the previous run is still {word}"
    host.tick(NIGHT + 180 * MINUTE)
    assert [one.is_known for one in host.firings()] == [False, False, True], "that is told once"
    if word == "pending":
        host.schedule()
        host.obey()
    host.finish(1)
    assert host.shown().trouble == ""
    host.tick(NIGHT + 240 * MINUTE)
    assert len(host.jobs()) == 2


def test_where_it_is_allowed_jobs_of_an_entry_overlap() -> None:
    host = CronHost()
    host.set(entry(overlap=Overlap.ALLOW))
    for hours in (1, 2, 3):
        host.tick(NIGHT + hours * 3600)
    assert len(host.jobs()) == 3


def test_a_crontab_that_is_set_again_does_not_forget_what_still_runs() -> None:
    host = CronHost()
    host.set(entry("0 * * * *"), entry("0 0 1 1 *", line=2, command="other"))
    host.tick(NIGHT + 60 * MINUTE)
    host.set(entry("0 0 1 1 *", line=1, command="other"), entry("*/30 * * * *", line=3))
    host.tick(NIGHT + 90 * MINUTE)
    assert len(host.jobs()) == 1, "at another time and in another place it is the same command"
    assert host.firings()[-1] == event.CronFired(
        at=host.now, user="alice", number=2, due_at=host.now, why="job 1 of the previous run is still pending"
    )


# ── an outage ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_due_in_an_outage_is_skipped_and_told() -> None:
    host = CronHost()
    host.set(entry())
    host.restart(NIGHT + 3.5 * 3600)
    host.tick(NIGHT + 3.5 * 3600)
    assert host.jobs() == []
    [fired] = host.firings()
    assert (fired.due_at, fired.missed) == (NIGHT + 3 * 3600, 3)
    assert host.shown().trouble.startswith("3 due times were missed: the controller was not running")
    host.tick(NIGHT + 4 * 3600)
    assert len(host.jobs()) == 1


def test_where_it_is_wanted_there_is_one_job_for_all_that_was_missed() -> None:
    host = CronHost()
    host.set(entry(missed=Missed.ONCE))
    host.restart(NIGHT + 3.5 * 3600)
    for seconds in (0, 5, 100):
        host.tick(NIGHT + 3.5 * 3600 + seconds)
    assert host.jobs() == [NIGHT + 3.5 * 3600]
    [fired] = host.firings()
    assert (fired.due_at, fired.missed, fired.job_id) == (NIGHT + 3 * 3600, 2, 1)


def test_a_short_restart_loses_no_job() -> None:
    host = CronHost()
    host.set(entry())
    host.restart(NIGHT + 3600 + 200)
    host.tick(NIGHT + 3600 + 200)
    assert len(host.jobs()) == 1


def test_a_year_away_from_an_entry_of_each_minute_is_seen_to_at_once() -> None:
    host = CronHost()
    host.set(entry("* * * * *"))
    host.restart(NIGHT + 365 * 86400)
    host.tick(NIGHT + 365 * 86400)
    assert [one.due_at for one in host.firings()] == [host.now]
    host.handle(Tick())
    assert host.controller.next_wakeup(host.now) == host.now + MINUTE


def test_after_an_outage_no_turn_counts_the_due_times_of_many_entries() -> None:
    host = CronHost()
    host.is_silent = True
    host.set(*(entry("* * * * *", line=line, command=f"train {line}") for line in range(1, 8)))
    host.restart(NIGHT + 86400)  # 1440 of each

    seen_to = []
    for _ in range(5):
        host.tick(host.now)
        seen_to.append(len(host.fired))

    assert seen_to == [2, 4, 6, 7, 7]


def test_of_a_crontab_with_many_entries_fewer_due_times_of_each_are_told() -> None:
    host = CronHost()
    host.set(*(entry(line=line, command=f"train {line}") for line in range(1, 51)))
    answer = host.ask(client.GetCrontab(count=100), peer=ALICE)
    assert isinstance(answer, client.Crontab)
    assert {len(one.next_at) for one in answer.crontab.entries} == {20}


# ── refused when it is due, and how jobs end ──────────────────────────────────────────────────────────────────


def test_a_job_that_is_refused_when_it_is_due_is_told_and_the_next_time_tried_again() -> None:
    host = CronHost()
    host.set(entry(gpus=1))
    limit = LimitInfo(holder=Holder.USER, name="alice", resource="gpus", most=0, at=LimitAt.SUBMIT)
    host.ask(client.SetLimit(limit=limit), peer=ADAM)
    host.tick(NIGHT + 3600)
    assert host.jobs() == []
    assert host.firings()[-1].why.startswith("refused: the job asks for 1 GPU")
    assert host.shown().trouble == host.firings()[-1].why
    assert (host.trail[-1].origin, host.trail[-1].outcome) == ("crontab", "over_limit")
    host.ask(client.RemoveLimit(holder="user", name="alice", resource="gpus"), peer=ADAM)
    host.tick(NIGHT + 7200)
    assert len(host.jobs()) == 1


def test_what_the_submit_hook_says_when_it_is_due_holds() -> None:
    host = CronHost()
    host.set(entry())
    host.hook = {"hook": "", "hook_refusal": "not at night"}
    host.tick(NIGHT + 3600)
    assert host.shown().trouble == "refused: not at night"
    host.hook = {"hook": "time_limit_s=60", "hook_refusal": ""}
    host.tick(NIGHT + 7200)
    assert host.job(1).hook == "time_limit_s=60"


def test_an_owner_who_is_gone_gets_no_jobs_and_that_is_said() -> None:
    host = CronHost()
    host.set(entry())
    del host.users["alice"]
    host.tick(NIGHT + 3600)
    assert host.jobs() == []
    assert host.shown().trouble == "refused: user alice is not known"


def test_how_the_last_job_ended_is_told_until_one_has_ended_well() -> None:
    host = CronHost()
    host.set(entry())
    host.tick(NIGHT + 3600)
    host.run_last(code=3)
    shown = host.shown()
    assert (shown.job_id, shown.state) == (1, "FAILED")
    assert shown.trouble.startswith("job 1 is FAILED: ") and "3" in shown.trouble
    assert isinstance(host.log[-1], event.CronRunEnded)
    host.tick(NIGHT + 7200)
    host.run_last()
    shown = host.shown()
    assert (shown.job_id, shown.state, shown.trouble, shown.trouble_at) == (2, "COMPLETED", "", None)


def test_instants_of_an_entry_count_from_when_it_is_due() -> None:
    host = CronHost()
    host.set(entry(begin_at=120.0, deadline_at=7200.0, time_limit_s=60))
    host.tick(NIGHT + 3600)
    made = host.job(1).spec
    assert (made.begin_at, made.deadline_at) == (NIGHT + 3600 + 120, NIGHT + 3600 + 7200)


def test_an_array_of_an_entry_is_over_when_all_of_its_tasks_are() -> None:
    host = CronHost()
    host.set(entry(array="1-2", cpus_per_task=8))
    host.tick(NIGHT + 3600)
    host.run_last()
    host.tick(NIGHT + 7200)
    assert host.firings()[-1].why == "job 1 of the previous run is still pending"
    host.run_last()
    assert host.shown().state == "COMPLETED"


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (entry("61 * * * *", line=4), "line 4: `61` is not a minute"),
        (entry("* * * * * *", line=4), "line 4: `* * * * * *` has 6 fields"),
        (entry("0 0 31 2 *", line=4), "line 4: `0 0 31 2 *` never occurs"),
        (entry(zone="Europe/Bermin", line=4), "line 4: `Europe/Bermin` is not a time zone"),
        (entry(gpus=99, line=4), "line 4: the job can never run"),
        (entry(partition="none", line=4), "line 4: partition `none` does not exist"),
        (entry(is_interactive=True, line=4), "line 4: an entry needs a batch command"),
        (entry(dependency=parse_dependency("afterok:1"), line=4), "line 4: an entry runs repeatedly"),
        (entry(nice=-5, line=4), "line 4: "),
    ],
)
def test_a_crontab_with_an_entry_that_cannot_be_is_refused_with_its_line_and_nothing_changes(
    bad: CronEntry, said: str
) -> None:
    host = CronHost()
    host.set(entry(), text="before")
    log = list(host.log)
    with pytest.raises(Refusal) as refused:
        host.set(entry(), bad)
    assert said in refused.value.message
    assert host.log == log and host.cluster.crontabs["alice"].text == "before"


def test_a_crontab_has_bounds() -> None:
    host = CronHost(msgspec.structs.replace(SHARED, limits=Limits(crontab_entries=1)))
    with pytest.raises(Refusal, match="has 2 entries; the maximum is 1"):
        host.set(entry(), entry(line=2))
    with pytest.raises(Refusal, match="65536 bytes"):
        host.set(entry(), text="#" * 65537)


def test_a_full_queue_is_no_reason_to_refuse_a_crontab() -> None:
    host = CronHost(msgspec.structs.replace(SHARED, limits=Limits(jobs_per_user=1)))
    host.submit(client.Submit(spec=spec()), peer=ALICE)
    host.set(entry())
    host.tick(NIGHT + 3600)
    assert host.firings()[-1].why.startswith("refused: user alice has 1 jobs in the queue")


def test_every_entry_that_is_refused_is_told_and_no_more_than_a_few() -> None:
    host = CronHost()
    good, one, two = entry(), entry(line=2, zone="Mars/Base"), entry(line=3, partition="nope")

    with pytest.raises(Refusal) as refused:
        host.set(good, one, two)
    first, second = refused.value.message.split("\n")
    assert first == (
        "line 2: `Mars/Base` is not a time zone of the controller's host (for example CRON_TZ=Europe/Berlin)"
    )
    assert second.startswith("line 3: partition `nope` does not exist (")
    with pytest.raises(Refusal) as refused:
        host.set(*[entry(line=line, zone="Mars/Base") for line in range(1, 31)])
    assert refused.value.message.split("\n")[19:] == [
        "line 20: `Mars/Base` is not a time zone of the controller's host (for example CRON_TZ=Europe/Berlin)",
        "these are the first 20",
    ]
    assert host.cluster.crontabs == {}


def test_a_crontab_is_shown_and_removed_and_its_jobs_go_on() -> None:
    host = CronHost()
    host.set(entry(), text="0 * * * * train")
    host.tick(NIGHT + 3600)
    answer = host.ask(client.GetCrontab(count=3), peer=ALICE)
    assert isinstance(answer, client.Crontab)
    assert answer.crontab.text == "0 * * * * train"
    assert answer.crontab.entries[0].next_at == tuple(NIGHT + hours * 3600 for hours in (2, 3, 4))
    host.ask(client.RemoveCrontab(), peer=ALICE)
    host.tick(NIGHT + 7200)
    assert len(host.jobs()) == 1 and host.job(1).outcome is None
    for body in (client.GetCrontab(), client.RemoveCrontab()):
        with pytest.raises(Refusal, match="no crontab for alice"):
            host.ask(body, peer=ALICE)
    with pytest.raises(Refusal) as refused:
        host.ask(client.GetCrontab(user="alice"), peer=OLGA)
    assert refused.value.hint == "gqcron -u alice -e creates one"
    host.run_last()
    assert host.job(1).outcome is Outcome.COMPLETED


@pytest.mark.parametrize(
    ("peer", "may"),
    [(BOB, ()), (OLGA, ("get", "remove", "list")), (ADAM, ("get", "remove", "list", "set"))],
)
def test_operators_may_look_and_remove_and_only_administrators_act_as_others(peer: Peer, may: tuple[str, ...]) -> None:
    host = CronHost()
    host.set(entry())
    asked = {
        "get": lambda: host.ask(client.GetCrontab(user="alice"), peer=peer),
        "list": lambda: host.ask(client.ListCrontabs(), peer=peer),
        "set": lambda: host.set(entry(command="other"), peer=peer, user="alice"),
        "remove": lambda: host.ask(client.RemoveCrontab(user="alice"), peer=peer),
    }
    for word, ask in asked.items():
        if word in may:
            ask()
            continue
        with pytest.raises(Refusal) as refused:
            ask()
        assert refused.value.code in ("not_owner", "not_operator"), word
    assert ("alice" in host.cluster.crontabs) == ("remove" not in may)


def test_jobs_of_a_crontab_that_an_administrator_set_are_its_users() -> None:
    host = CronHost()
    host.set(entry(), peer=ADAM, user="bob")
    host.tick(NIGHT + 3600)
    assert (host.job(1).user, host.job(1).uid) == ("bob", BOB.uid)
    with pytest.raises(Refusal, match="there is no user `nobody-there`"):
        host.set(entry(), peer=ADAM, user="nobody-there")


def test_who_has_the_name_of_an_owner_and_is_another_does_not_come_at_the_crontab() -> None:
    host = CronHost()
    host.set(entry(command="secret"))
    other = msgspec.structs.replace(ALICE, uid=2999)
    for ask in (lambda: host.ask(client.GetCrontab(), peer=other), lambda: host.set(entry(), peer=other)):
        with pytest.raises(Refusal, match="the crontab of alice is not yours"):
            ask()


def test_the_audit_trail_says_who_set_and_removed_whose_crontab() -> None:
    host = CronHost()
    host.set(entry(), peer=ADAM, user="bob")
    host.ask(client.RemoveCrontab(user="bob"), peer=OLGA)
    said = [(one.user, one.action, one.object, one.outcome, one.detail) for one in host.trail[-2:]]
    assert said == [
        ("adam", "SetCrontab", "crontab of bob", "done", "1 entry"),
        ("olga", "RemoveCrontab", "crontab of bob", "done", ""),
    ]


def test_crontabs_are_listed_by_user_in_pages_without_their_text() -> None:
    host = CronHost()
    host.set(entry(), peer=BOB)
    host.set(entry(), entry(line=2, command="b"))
    first = host.ask(client.ListCrontabs(limit=1), peer=OLGA)
    assert isinstance(first, client.Crontabs)
    assert [(one.user, len(one.entries), one.text) for one in first.crontabs] == [("alice", 2, "")] and first.more
    second = host.ask(client.ListCrontabs(after="alice", limit=1), peer=OLGA)
    assert isinstance(second, client.Crontabs)
    assert [one.user for one in second.crontabs] == ["bob"] and not second.more


@pytest.mark.parametrize(("mail", "refused"), [("", True), ("/usr/sbin/sendmail", False)])
def test_an_entry_that_mails_is_refused_where_the_cluster_sends_no_mail(mail: str, refused: bool) -> None:
    host = CronHost(msgspec.structs.replace(SHARED, notify=NotifySettings(mail=mail)))
    mailing = entry(line=3, notify=(Target(kind="mail", on=("end",), is_optional=True),))
    request = client.SetCrontab(text="x", jobs=(client.CronJob(entry=mailing, script=b""),))

    if refused:
        with pytest.raises(Refusal) as caught:
            host.ask(request, peer=ALICE)
        assert (caught.value.code, caught.value.message) == (
            "bad_notify", "line 3: --mail-type: this cluster sends no mail",
        )  # fmt: skip
    else:
        assert isinstance(host.ask(request, peer=ALICE), client.Crontab)
