"""Which facts are told to whom; the outbox, its order, its bounds and its patience."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.dependency import parse_dependency
from gq.model.ids import JobId
from gq.model.notice import NotifySettings, Target
from gq.wire import client
from gq.wire.node import AttemptStatus
from gqd.control.notices import notice
from gqd.control.turn import Turn, TurnBuilder
from gqd.state.effect import Reply, ReplyEvents, ReplyNotices, SendNotice
from gqd.state.events.event import NoticeDelivered, NoticeDropped, NoticeFailed, NoticeQueued
from gqd.state.input import NoticeCommand, NoticeReported, Tick
from gqd.state.notice import MAX_SENDING, MAX_SENDING_OF_USER
from gqd.state.policy import Partition
from tests.builders import ALICE, BOB, OLGA, OWNER, SHARED, client_request, hello, inventory, submit
from tests.hosts import POLICY, CoreHost

HOOK = "https://hooks.example.org/gq?secret=1"
TELLING = NotifySettings(
    webhook_hosts=("hooks.example.org",), mail="/usr/sbin/sendmail", retry_min_s=30, give_up_s=3600
)


def host(**settings: Any) -> CoreHost:
    policy = msgspec.structs.replace(POLICY, notify=msgspec.structs.replace(TELLING, **settings))
    return CoreHost(policy, {"n1": inventory(cpus=8)})


def to(*on: str, kind: str = "webhook", url: str = HOOK) -> tuple[Target, ...]:
    return (Target(kind=kind, to=url, on=on),)


def told(scene: CoreHost) -> list[tuple[str, int | None]]:
    """(what of, which job) of all notices so far."""
    return [(one.on, one.job_id) for one in scene.log if isinstance(one, NoticeQueued)]


def bodies(scene: CoreHost) -> list[dict[str, Any]]:
    return [msgspec.json.decode(one.body) for one in scene.log if isinstance(one, NoticeQueued)]


def sent(turn: Turn) -> list[int]:
    return [one.notice_id for one in turn.effects if isinstance(one, SendNotice)]


# ── one job ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_begin_and_end_of_a_job_are_told_in_the_turns_in_which_they_happen() -> None:
    scene = host()
    job_id = scene.start(submit("train", ntasks=1, notify=to("begin", "end")), now=10)
    scene.finish(job_id, code=3, now=70)

    assert told(scene) == [("begin", job_id), ("end", job_id)]
    begin, end = bodies(scene)
    assert begin["text"] == f"job {job_id} (train) has started on n1"
    assert end["text"] == f"job {job_id} (train) has ended FAILED: it failed with exit code 3 after 1 min"
    assert {name: end[name] for name in ("event", "state", "exit_code", "user", "nodes", "at", "notice_id")} == {
        "event": "end", "state": "FAILED", "exit_code": 3, "user": "ada", "nodes": ["n1"],
        "at": "1970-01-01T00:01:10+00:00", "notice_id": 2,
    }  # fmt: skip
    kinds = [type(one).__name__ for one in scene.log]
    assert kinds[kinds.index("JobStarted") + 1] == "NoticeQueued"


def test_of_a_failure_alone_a_job_that_does_well_says_nothing_and_a_cancelled_one_neither() -> None:
    scene = host()
    for code in (0, 1):
        scene.finish(scene.start(submit(ntasks=1, notify=to("fail")), now=10 + code), code)
    waiting = scene.submit(submit(ntasks=1, is_held=True, notify=to("fail")))
    scene.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(waiting,))))

    assert told(scene) == [("fail", 2)]


def test_nobody_is_told_of_jobs_that_ask_for_nothing() -> None:
    scene = host()
    scene.finish(scene.start(submit(ntasks=1), now=10), 1)

    assert told(scene) == []


def test_a_requeue_is_told_and_each_beginning_after_it() -> None:
    scene = host()
    job_id = scene.start(submit(ntasks=1, notify=to("begin", "requeue")), now=10)
    scene.ask(client.RequeueJobs(job_ids=(job_id,)), now=20)
    scene.obey()
    scene.schedule(now=21)
    scene.obey()

    assert told(scene) == [("begin", job_id), ("requeue", job_id), ("begin", job_id)]
    assert bodies(scene)[1]["restart_count"] == 1


def test_the_owner_reads_why_a_job_is_queued_again() -> None:
    scene = host()
    victim = scene.start(submit("long", ntasks=8, qos="scavenger", notify=to("requeue")), now=10)
    scene.submit(submit("urgent", ntasks=8), now=20)
    scene.schedule()
    scene.obey()

    [body] = bodies(scene)
    assert body["why"].startswith(f"it was preempted by job 2 of {OWNER.user} at 1970-01-01T00:00:20")
    assert body["text"] == f"job {victim} (long) is requeued: {body['why']}"


def test_a_dependency_that_can_never_be_met_is_told() -> None:
    scene = host()
    first = scene.start(submit(ntasks=1), now=10)
    after = parse_dependency(f"afterok:{first}")
    second = scene.submit(submit(ntasks=1, dependency=after, notify=to("invalid_depend")))
    scene.finish(first, code=1)

    assert told(scene) == [("invalid_depend", second)]
    assert bodies(scene)[0]["text"].startswith(f"job {second} (job) can never start: ")


# ── how far it is ─────────────────────────────────────────────────────────────────────────────────────────────


def pass_time(scene: CoreHost, now: float) -> None:
    scene.beat(now)
    scene.handle(Tick())


def test_eighty_percent_of_the_limit_is_told_at_its_moment_and_once_in_each_attempt() -> None:
    scene = host()
    job_id = scene.start(submit(ntasks=1, time_limit_s=1000, notify=to("timeout_80")), now=10)

    assert scene.controller.next_wakeup(10) == 810
    pass_time(scene, 809)
    assert told(scene) == []
    for now in (810, 811, 900):
        pass_time(scene, now)
    assert told(scene) == [("timeout_80", job_id)]
    assert bodies(scene)[0]["text"] == f"job {job_id} (job) has used 80% of its time limit: 3 min 20 s is left on n1"

    scene.ask(client.RequeueJobs(job_ids=(job_id,)), now=950)
    scene.obey()
    scene.schedule(now=951)
    scene.obey()
    pass_time(scene, 951 + 801)
    assert told(scene) == [("timeout_80", job_id)] * 2


def test_a_shorter_limit_tells_of_the_last_mark_only_and_a_restart_forgets_none() -> None:
    scene = host()
    marks = to("timeout_50", "timeout_80", "timeout_90")
    job_id = scene.start(submit(ntasks=1, time_limit_s=10_000, notify=marks), now=0)
    scene.ask(client.UpdateJob(job_id=job_id, time_limit_s=1000), now=850)
    pass_time(scene, 851)
    assert told(scene) == [("timeout_80", job_id)]

    scene.restart(now=852)
    runs = AttemptStatus(attempt_id=scene.attempt(job_id).attempt_id, phase="running", time_limit_s=1000)
    scene.handle(hello("n1", inventory(cpus=8), attempts=(runs,)))
    pass_time(scene, 853)
    assert told(scene) == [("timeout_80", job_id)]
    pass_time(scene, 900)
    assert told(scene) == [("timeout_80", job_id), ("timeout_90", job_id)]


def test_a_job_without_a_limit_is_never_nearly_at_its_end() -> None:
    scene = host()
    scene.start(submit(ntasks=1, time_limit_s=0, notify=to("timeout_80")), now=0)
    pass_time(scene, 10_000_000)

    assert told(scene) == []


# ── arrays ────────────────────────────────────────────────────────────────────────────────────────────────────


def run_array(scene: CoreHost, codes: dict[int, int], **fields: Any) -> int:
    """Four tasks; those without a code are cancelled at the end."""
    array_id = scene.submit(submit("sweep", ntasks=1, array="0-3", **fields), now=10)
    scene.schedule()
    scene.obey()
    record = scene.job(array_id)
    assert record.array is not None
    for task, code in codes.items():
        scene.finish(record.array.jobs[task], code)
    scene.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(array_id,))))
    scene.obey()
    return array_id


def test_an_array_tells_of_one_begin_and_sums_up_at_its_end() -> None:
    scene = host()
    array_id = run_array(scene, {0: 0, 1: 2, 2: 0}, notify=to("begin", "end"), output="/data/%A_%a.out")

    assert told(scene) == [("begin", array_id), ("end", array_id)]
    end = bodies(scene)[1]
    failed = end["array"].pop("first_failed")
    assert end["array"] == {"tasks": 4, "completed": 2, "failed": 1, "cancelled": 1}
    assert [(one["task"], one["exit_code"], one["output_path"]) for one in failed] == [
        (f"{array_id}_1", 2, f"/data/{array_id}_1.out")
    ]
    counts = "4 tasks, 2 completed, 1 failed, 1 cancelled"
    assert end["text"] == (
        f"array {array_id} (sweep) has ended: {counts}; failed first: {array_id}_1 /data/{array_id}_1.out"
    )


def test_with_array_tasks_each_task_is_told_of_and_the_whole_is_not() -> None:
    scene = host()
    array_id = run_array(scene, {0: 0, 1: 2, 2: 0, 3: 0}, notify=to("begin", "fail", "array_tasks"))

    tasks = [(one["event"], one["array_job_id"], one["array_task_id"]) for one in bodies(scene)]
    assert tasks == [("begin", array_id, task) for task in range(4)] + [("fail", array_id, 1)]


def test_an_array_begins_once_also_over_a_restart() -> None:
    scene = host()
    array_id = scene.submit(submit(ntasks=8, array="0-1", notify=to("begin")), now=10)
    scene.schedule()
    scene.obey()
    first = scene.job(array_id).array
    assert first is not None
    scene.finish(first.jobs[0], now=20)
    scene.restart(now=21)
    scene.beat()
    scene.schedule(now=22)
    scene.obey()

    assert told(scene) == [("begin", array_id)]


# ── the outbox ────────────────────────────────────────────────────────────────────────────────────────────────


def queued(scene: CoreHost, now: float = 10, **fields: Any) -> Turn:
    """A job that ends at once, and the turn in which it is told."""
    job_id = scene.submit(submit(ntasks=1, is_held=True, **{"notify": to("end"), **fields}), now=now)
    request = client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,)))
    before = len(scene.log)
    scene.ask(request)
    assert any(isinstance(one, NoticeQueued | NoticeDropped) for one in scene.log[before:])
    return Turn(tuple(scene.log[before:]))


def test_what_arrived_leaves_the_outbox_and_is_not_sent_again() -> None:
    scene = host()
    queued(scene)
    turn = scene.handle(NoticeReported(notice_id=1), now=11)

    assert turn == Turn((NoticeDelivered(at=11, notice_id=1),))
    assert scene.cluster.outbox.notices == {}
    scene.restart(now=12)
    assert sent(scene.handle(Tick(), now=13)) == []


def test_what_did_not_arrive_is_tried_again_later_and_later_and_given_up_at_last() -> None:
    scene = host(give_up_s=200)
    queued(scene, now=10)
    tries, now = [], 10.0
    while scene.cluster.outbox.notices:
        turn = scene.handle(NoticeReported(notice_id=1, why="no answer"), now=now)
        [failed] = [one for one in turn.events if isinstance(one, NoticeFailed)]
        if failed.next_at is not None:
            tries.append(failed.next_at - now)
            assert scene.controller.next_wakeup(now) == failed.next_at
            assert sent(scene.handle(Tick(), now=failed.next_at - 0.5)) == []
            assert sent(scene.handle(Tick(), now=failed.next_at)) == [1]
            now = failed.next_at

    assert tries == [30, 60]
    assert scene.store.notices(client.ListNotices()).notices[0].state == "given_up"


def test_what_cannot_arrive_is_given_up_at_once() -> None:
    scene = host()
    queued(scene)
    turn = scene.handle(NoticeReported(notice_id=1, why="it answered 404", is_final=True), now=11)

    assert turn.events == (NoticeFailed(at=11, notice_id=1, why="it answered 404", next_at=None),)


def test_a_crash_before_the_record_sends_it_again() -> None:
    scene = host()
    queued(scene)
    scene.restart(now=20)  # it was delivered, and nobody wrote it down

    assert scene.controller.volatile.delivery.sending == {1: "ada"}
    assert sent(scene.handle(Tick(), now=21)) == []  # it is on its way already


def test_a_second_report_of_the_same_changes_nothing() -> None:
    scene = host()
    queued(scene)
    scene.handle(NoticeReported(notice_id=1), now=11)

    assert scene.handle(NoticeReported(notice_id=1, why="late"), now=12) == Turn()


def test_too_many_of_one_user_are_dropped_with_a_count_that_the_next_one_tells() -> None:
    scene = host(max_per_user=2)
    for _ in range(4):
        queued(scene)
    assert scene.cluster.outbox.dropped == {"ada": 2}

    scene.handle(NoticeReported(notice_id=1), now=11)
    queued(scene, now=12)
    assert bodies(scene)[-1]["dropped"] == 2
    assert scene.cluster.outbox.dropped == {}


def test_the_notices_of_one_user_on_their_way_leave_room_for_those_of_others() -> None:
    scene = CoreHost(msgspec.structs.replace(SHARED, notify=TELLING), {"n1": inventory()})
    out: list[int] = []
    for peer in (ALICE, BOB):
        for _ in range(6):
            job_id = scene.submit(submit(ntasks=1, is_held=True, notify=to("end")), now=1, peer=peer)
            scene.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(job_id,))), peer=peer)
    sending = scene.controller.volatile.delivery.sending
    assert list(sending.values()) == ["alice"] * MAX_SENDING_OF_USER + ["bob"] * MAX_SENDING_OF_USER
    assert len(sending) <= MAX_SENDING

    while scene.cluster.outbox.notices:
        one = next(iter(scene.controller.volatile.delivery.sending))
        out.append(one)
        scene.handle(NoticeReported(notice_id=one), now=2)
    assert sorted(out) == list(range(1, 13))


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_command_becomes_a_small_job_of_its_owner_once_and_tells_nobody() -> None:
    scene = host()
    about = scene.start(submit("train", ntasks=1, notify=to("end", kind="command", url="logger done")), now=10)
    scene.finish(about, now=20)
    turn = scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=21)

    assert [type(one).__name__ for one in turn.events] == ["JobSubmitted", "NoticeCommandQueued"]
    job = scene.job(about + 1)
    assert (job.user, job.spec.name, job.time_limit_s, job.spec.notify) == ("ada", f"notify-{about}", 600, ())
    assert job.spec.args[0] == "logger done"
    assert {"GQ_NOTIFY_EVENT=end", "GQ_NOTIFY_STATE=COMPLETED", "GQ_NOTIFY_NODES=n1"} < set(job.spec.args)
    again = scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=22)
    assert again == Turn()


def plan_and_start(scene: CoreHost) -> None:
    scene.schedule()
    scene.obey()


def command_host(**settings: Any) -> tuple[CoreHost, JobId]:
    """A job has ended, and the job that runs the command of its notice runs."""
    scene = host(**settings)
    about = scene.start(submit("train", ntasks=1, notify=to("end", kind="command", url="logger done")), now=10)
    scene.finish(about, now=20)
    scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=21)
    plan_and_start(scene)
    return scene, JobId(about + 1)


def test_a_command_that_succeeds_delivers_its_notice() -> None:
    scene, runner = command_host()
    assert [one.state for one in scene.cluster.outbox.notices.values()] == ["waiting"]
    shown = scene.store.notices(client.ListNotices()).notices[0]
    assert (shown.state, shown.why) == ("waiting", f"job {runner} runs the command")

    before = len(scene.log)
    scene.finish(runner, now=30)
    assert NoticeDelivered(at=30, notice_id=1, by_job=runner) in scene.log[before:]
    assert scene.cluster.outbox.notices == scene.cluster.outbox.commands == {}


@pytest.mark.parametrize(("code", "how"), [(3, "exited with code 3"), (127, "exited with code 127 (not found)")])
def test_a_command_that_fails_is_run_again_later_and_given_up_at_last(code: int, how: str) -> None:
    scene, runner = command_host(give_up_s=100)
    before = len(scene.log)
    scene.finish(runner, code, now=30)

    [failed] = [one for one in scene.log[before:] if isinstance(one, NoticeFailed)]
    assert failed == NoticeFailed(at=30, notice_id=1, why=f"the command {how} (job {runner})", next_at=60)
    assert sent(scene.handle(Tick(), now=60)) == [1]
    scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=60)
    plan_and_start(scene)
    scene.finish(runner + 1, code, now=119)

    shown = scene.store.notices(client.ListNotices()).notices[0]
    assert (shown.state, shown.attempts, shown.why) == ("given_up", 2, f"the command {how} (job {runner + 1})")


def test_a_command_whose_job_its_owner_cancels_is_given_up() -> None:
    scene = host()
    about = scene.start(submit("train", ntasks=1, notify=to("end", kind="command", url="logger done")), now=10)
    scene.finish(about, now=20)
    scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=21)
    scene.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(about + 1,))), now=22)

    shown = scene.store.notices(client.ListNotices()).notices[0]
    assert shown.state == "given_up" and shown.why.startswith("the command ended as CANCELLED")


def test_a_command_that_runs_while_the_controller_restarts_is_not_run_twice() -> None:
    scene, runner = command_host()
    scene.restart(now=25)
    assert sent(scene.handle(Tick(), now=26)) == []
    assert scene.cluster.outbox.commands == {runner: 1}

    assert scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=27) == Turn()


def test_a_command_for_which_the_queue_has_no_room_is_tried_again() -> None:
    limits = msgspec.structs.replace(POLICY.limits, jobs_per_user=1)
    scene = CoreHost(msgspec.structs.replace(POLICY, notify=TELLING, limits=limits), {"n1": inventory()})
    scene.start(submit(ntasks=1, notify=to("begin", kind="command", url="true")), now=10)
    turn = scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=11)

    [failed] = turn.events
    assert isinstance(failed, NoticeFailed)
    assert (failed.next_at, failed.why.startswith("the command's job is refused: ")) == (41, True)


def test_its_limit_fits_the_partition_of_its_job() -> None:
    short = Partition(name="short", is_default=True, max_time_s=60)
    scene = CoreHost(msgspec.structs.replace(POLICY, notify=TELLING, partitions=(short,)), {"n1": inventory()})
    scene.start(submit(ntasks=1, notify=to("begin", kind="command", url="true")), now=10)
    scene.handle(NoticeCommand(notice_id=1, peer=OWNER, script_digest="d" * 64), now=11)

    assert scene.job(2).time_limit_s == 60


# ── what is refused, and what is left out ─────────────────────────────────────────────────────────────────────


def test_a_listed_localhost_may_be_told_where_its_address_may() -> None:
    there = host(webhook_hosts=("localhost:99", "127.0.0.1"), webhook_networks=("127.0.0.0/8",))

    targets = (Target(kind="webhook", to="http://localhost:99/"), Target(kind="webhook", to="http://127.0.0.1/"))
    job = there.submit(submit(ntasks=1, notify=targets))

    assert there.job(job).spec.notify == targets


@pytest.mark.parametrize(
    ("target", "settings", "said"),
    [
        (Target(kind="mail"), {"mail": ""}, "this cluster sends no mail"),
        (Target(kind="mail", to="a@b\nBcc: c@d"), {}, "is not a mail address"),
        (Target(kind="mail", to="-oQ/tmp"), {}, "is not a mail address"),
        (Target(kind="webhook", to=HOOK), {"webhook_hosts": ()}, "this cluster sends no webhooks"),
        (Target(kind="webhook", to="https://evil.example.org/"), {}, "webhooks to evil.example.org are not allowed"),
        (Target(kind="slack", to="https://hooks.example.org:8443/"), {"webhook_hosts": ("hooks.example.org:443",)},
         "webhooks to hooks.example.org:8443 are not allowed"),
        (Target(kind="webhook", to="http://localhost:99/"), {"webhook_hosts": ("localhost:99",)},
         "localhost is 127.0.0.1, which is neither a public address nor in `notify.webhook_networks`"),
        (Target(kind="webhook", to="ftp://hooks.example.org/"), {}, "`ftp` is neither http nor https"),
        (Target(kind="slack", to="foo/secret"), {}, "slack: `foo` does not begin with http:// or https://"),
        (Target(kind="webhook", to="https://u:p@hooks.example.org/"), {}, "a user name or password"),
        (Target(kind="webhook", to="https://hooks.example.org@evil/"), {}, "a user name or password"),
        (Target(kind="webhook", to="https://hooks.example.org/\r\nX: y"), {}, "invalid characters"),
        (Target(kind="pigeon", to="x"), {}, "`pigeon` is not a kind of notification"),
        (Target(kind="command", to="a\nb"), {}, "printable characters"),
        (Target(on=("often",)), {}, "`often` is not one of"),
        (Target(), {}, "this cluster has no default"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_be_told_is_refused_with_the_setting(
    target: Target, settings: dict[str, Any], said: str
) -> None:
    scene = host(**settings)
    with pytest.raises(Refusal) as refused:
        scene.submit(submit(ntasks=1, notify=(target,)))

    assert (refused.value.code, said in refused.value.message) == ("bad_notify", True), refused.value.message
    assert not scene.cluster.jobs


def test_mail_as_scripts_for_slurm_ask_for_it_is_left_out_with_a_note_where_there_is_none() -> None:
    asked = submit(ntasks=1, notify=(Target(kind="mail", is_optional=True), *to("end")))
    answer = host(mail="").ask(asked)
    assert answer == client.Submitted(job_id=1, note="--mail-type has no effect: this cluster sends no mail")

    scene = host()
    assert scene.ask(asked) == client.Submitted(job_id=1)
    assert [one.kind for one in scene.job(1).spec.notify] == ["mail", "webhook"]


def test_a_wrong_address_is_refused_also_as_slurm_has_it() -> None:
    with pytest.raises(Refusal, match="is not a mail address"):
        host().submit(submit(ntasks=1, notify=(Target(kind="mail", to="a b", is_optional=True),)))


def test_what_is_not_said_the_default_says() -> None:
    scene = host(default=f"slack:{HOOK}")
    scene.submit(submit(ntasks=1, notify=(Target(on=("fail",)),)))

    assert scene.job(1).spec.notify == (Target(kind="slack", to=HOOK, on=("fail",)),)


# ── of no job, and asking ─────────────────────────────────────────────────────────────────────────────────────


def to_ada(scene: CoreHost) -> list[Any]:
    draft = TurnBuilder(scene.cluster, scene.controller.policy, scene.controller.volatile, scene.now)
    notice.to_owner(draft, "ada", 1000, "reservation", "nightly was released: nobody came", reservation="nightly")
    return draft.events


def test_who_has_no_job_is_told_by_the_default_and_nobody_where_there_is_none() -> None:
    assert to_ada(host()) == []
    [fact] = to_ada(host(default="mail"))
    body = msgspec.json.decode(fact.body)

    assert (fact.user, fact.kind, fact.job_id, body["reservation"]) == ("ada", "mail", None, "nightly")
    assert body["text"] == "nightly was released: nobody came"


def test_a_user_asks_for_notices_and_events_of_nobody_else() -> None:
    scene = CoreHost(msgspec.structs.replace(SHARED, notify=TELLING), {"n1": inventory()})

    asked: list[Any] = []
    for peer in (ALICE, OLGA):
        for body in (client.ListNotices(), client.QueryEvents(wait_s=99)):
            turn = scene.handle(client_request(body, len(asked) + 1, peer))
            asked += [one for one in turn.effects if not isinstance(one, Reply)]
    mine, events, all_of_them, every_event = asked
    assert isinstance(mine, ReplyNotices) and isinstance(events, ReplyEvents)
    assert (mine.query.user, all_of_them.query.user) == ("alice", "")
    assert (events.shown_to, every_event.shown_to, events.query.wait_s) == (ALICE, None, 30.0)
    assert (mine.shown_to, all_of_them.shown_to) == (ALICE, None)
    with pytest.raises(Refusal, match="not yours"):
        scene.ask(client.ListNotices(user="bob"), peer=ALICE)
    with pytest.raises(Refusal, match="no event `JobStartet`"):
        scene.ask(client.QueryEvents(types=("JobStartet",)), peer=ALICE)
