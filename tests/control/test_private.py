"""What others may not see or do, and what is noted of it."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.job import JobInfo
from gq.model.state import JobState
from gq.model.step import StepRequest
from gq.wire import client
from gq.wire import node as wire
from gqd.state.effect import Reply, ReplyAudit, ReplyHistory, SendOrder
from gqd.state.events import event
from gqd.state.input import DoorIncident, Peer, Tick
from gqd.state.job_view import visible_to
from gqd.state.phases import Hold
from gqd.store.protocol import HistoryQuery
from tests.builders import (
    ADAM,
    ALICE,
    BOB,
    OLGA,
    OWNER,
    ROOT,
    SHARED,
    client_request,
    inventory,
    public_key,
    submit,
    via,
)
from tests.hosts import CoreHost

SECRET = "s3cret"
PRIVATE = {
    "chdir": f"/home/alice/{SECRET}",
    "submit_dir": f"/home/alice/{SECRET}",
    "output": f"/home/alice/{SECRET}.out",
    "error": f"/home/alice/{SECRET}.err",
    "input": f"/home/alice/{SECRET}.in",
    "command": f"/home/alice/{SECRET}.sh",
    "args": (SECRET,),
    "comment": SECRET,
}


def cluster(**changes: object) -> CoreHost:
    return CoreHost(msgspec.structs.replace(SHARED, **changes), {"n1": inventory(), "n2": inventory()})


def with_private_job() -> CoreHost:
    host = cluster()
    host.start(submit("mine", **PRIVATE), peer=ALICE)
    host.ask(client.CreateStep(job_id=1, step=StepRequest(name=SECRET, ntasks=1)), peer=ALICE)
    return host


def seen_by(host: CoreHost, peer: Peer) -> dict[str, str]:
    """All that these requests answer, as text."""
    asked: dict[str, client.RequestBody] = {
        "list": client.ListJobs(with_steps=True),
        "queue": client.ListJobs(with_steps=True, in_queue_order=True),
        "wait": client.WaitJobs(job_ids=(1,), timeout_s=0),
        "explain": client.Explain(job_id=1),
        "nodes": client.ListNodes(),
        "cluster": client.GetCluster(),
    }
    return {name: repr(host.ask(body, peer=peer)) for name, body in asked.items()}


# ── what others see ───────────────────────────────────────────────────────────────────────────────────────────


def test_users_see_that_others_have_jobs_and_nothing_that_is_private() -> None:
    host = with_private_job()
    for told in seen_by(host, BOB).values():
        assert SECRET not in told
    listed = host.ask(client.ListJobs(), peer=BOB)
    assert isinstance(listed, client.Jobs)
    [shown] = listed.jobs
    assert (shown.name, shown.user, shown.state, shown.nodes) == ("mine", "alice", "RUNNING", ("n1",))


@pytest.mark.parametrize("peer", [ALICE, OLGA, ADAM, ROOT])
def test_the_owner_and_operators_see_all_of_it(peer: Peer) -> None:
    told = seen_by(with_private_job(), peer)
    for name in ("list", "queue", "wait"):
        for private in (f"{SECRET}.out", f"{SECRET}.err", f"{SECRET}.in", f"{SECRET}.sh", f"'{SECRET}'"):
            assert private in told[name]


def test_what_is_blank_for_others_are_all_fields_that_hold_a_path_or_words_of_the_user() -> None:
    host = with_private_job()
    [shown] = _jobs(host.ask(client.ListJobs(with_steps=True), peer=ALICE))
    blank = visible_to(BOB, shown)
    changed = {name for name in JobInfo.__struct_fields__ if getattr(shown, name) != getattr(blank, name)}
    assert changed == {
        "chdir", "output_path", "error_path", "input_path", "command", "args", "comment", "submit_dir", "steps",
    }  # fmt: skip


def _jobs(answer: client.ReplyBody | None) -> tuple[JobInfo, ...]:
    assert isinstance(answer, client.Jobs)
    return answer.jobs


def test_the_answer_that_was_held_back_is_as_blank() -> None:
    host = with_private_job()
    assert host.ask(client.WaitJobs(job_ids=(1,), timeout_s=30), peer=BOB) is None
    host.finish(1)
    waited = host.replies[-1].body
    assert isinstance(waited, client.Waited)
    assert waited.is_done
    assert SECRET not in repr(waited)


@pytest.mark.parametrize("is_held", [False, True])
def test_what_a_node_said_of_a_failed_launch_is_the_owners_to_see(is_held: bool) -> None:
    """Also where another reason to wait hides it, in memory and in the history."""
    host = cluster()
    host.submit(submit("mine", nodelist=("n1",)), peer=ALICE)
    host.schedule()
    why = f"cannot open /home/alice/{SECRET}.out"
    host.report(
        host.attempt(1).batch_node,
        wire.PrepareRefused(attempt_id=host.attempt(1).attempt_id, why=why, is_job_fault=True),
    )
    host.obey()
    host.schedule()
    assert host.job(1).state is JobState.PENDING
    assert SECRET in seen_by(host, ALICE)["explain"]
    if is_held:
        host.ask(client.HoldJobs(job_ids=(1,)), peer=ALICE)
    assert SECRET in host.job(1).why
    for told in seen_by(host, BOB).values():
        assert SECRET not in told
    [shown] = host.store.history(HistoryQuery(filter=client.JobFilter()))
    assert SECRET in shown.why
    assert SECRET not in repr(visible_to(BOB, shown))


def test_why_the_job_of_another_waits_is_everybodys_to_know() -> None:
    host = cluster()
    host.submit(submit(nodelist=("n1",), is_exclusive=True), peer=ALICE)
    host.submit(submit(nodelist=("n1",), is_exclusive=True), peer=ALICE)
    host.schedule()
    told = [_jobs(host.ask(client.ListJobs(filter=client.JobFilter(job_ids=(2,))), peer=peer)) for peer in (ALICE, BOB)]
    assert "job 1 (alice) holds" in told[0][0].why
    assert told[0][0].why == told[1][0].why


def test_history_says_for_whom_it_is_read() -> None:
    host = with_private_job()
    for peer, shown_to in (
        (BOB, BOB),
        (ALICE, ALICE),
        (OLGA, None),
        (ADAM, None),
        (via("n1", ALICE), via("n1", ALICE)),
    ):
        turn = host.handle(client_request(client.QueryHistory(), 900, peer))
        [effect] = turn.effects
        assert isinstance(effect, ReplyHistory)
        assert effect.shown_to == shown_to


def test_in_a_private_cluster_root_and_the_owner_see_everything() -> None:
    host = CoreHost(nodes={"n1": inventory()})
    host.start(submit("mine", **PRIVATE))
    for peer in (OWNER, ROOT):
        assert SECRET in seen_by(host, peer)["list"]


# ── jobs of others ────────────────────────────────────────────────────────────────────────────────────────────


def everybodys() -> CoreHost:
    host = cluster()
    for peer in (ALICE, BOB, ALICE, BOB):
        host.submit(submit(), peer=peer)
    return host


def test_a_filter_passes_over_the_jobs_of_others() -> None:
    host = everybodys()
    answer = host.ask(client.CancelJobs(filter=client.JobFilter(partitions=("main",))), peer=BOB)
    assert answer == client.JobsDone(job_ids=(2, 4))
    assert [host.job(one).state.value for one in (1, 2, 3, 4)] == ["PENDING", "ENDED", "PENDING", "ENDED"]
    assert [line.outcome for line in host.trail[-1:]] == ["done"]


def test_jobs_of_others_that_are_named_are_refused_one_by_one_and_noted() -> None:
    host = everybodys()
    noted = len(host.trail)
    answer = host.ask(client.CancelJobs(filter=client.JobFilter(job_ids=(1, 2, 3, 99))), peer=BOB)
    refused = ((1, "it belongs to alice"), (3, "it belongs to alice"))
    assert answer == client.JobsDone(job_ids=(2,), skipped=(99,), refused=refused)
    assert [(line.outcome, line.object) for line in host.trail[noted:]] == [
        ("done", "job 2"),
        ("not_owner", "jobs 3,1"),
    ]


def test_to_name_another_user_is_refused() -> None:
    host = everybodys()
    for users in (("alice",), ("bob", "alice")):
        with pytest.raises(Refusal, match="jobs of alice are not yours"):
            host.ask(client.CancelJobs(filter=client.JobFilter(users=users)), peer=BOB)
    done = host.ask(client.CancelJobs(filter=client.JobFilter(users=("alice",))), peer=OLGA)
    assert isinstance(done, client.JobsDone)
    assert done.job_ids == (1, 3)


@pytest.mark.parametrize(
    "body",
    [client.HoldJobs(job_ids=(1, 2)), client.RequeueJobs(job_ids=(1, 2)), client.ReleaseJobs(job_ids=(1, 2))],
    ids=lambda body: type(body).__name__,
)
def test_requests_about_many_jobs_do_the_callers_own_and_refuse_the_others(body: client.RequestBody) -> None:
    host = cluster()
    for peer in (ALICE, BOB):
        host.start(submit(is_held=False), peer=peer) if isinstance(body, client.RequeueJobs) else host.submit(
            submit(is_held=isinstance(body, client.ReleaseJobs)), peer=peer
        )
    before = msgspec.msgpack.encode(host.job(1).spec), host.job(1).state, host.job(1).hold
    answer = host.ask(body, peer=BOB)
    assert answer == client.JobsDone(job_ids=(2,), refused=((1, "it belongs to alice"),))
    assert (msgspec.msgpack.encode(host.job(1).spec), host.job(1).state, host.job(1).hold) == before


# ── what is for operators ─────────────────────────────────────────────────────────────────────────────────────


def test_what_an_operator_holds_its_owner_cannot_release() -> None:
    host = cluster()
    host.submit(submit(), peer=ALICE)
    host.ask(client.HoldJobs(job_ids=(1,)), peer=ALICE)
    assert host.job(1).hold is Hold.USER
    host.ask(client.HoldJobs(job_ids=(1,)), peer=OLGA)
    assert host.job(1).hold is Hold.ADMIN
    host.ask(client.HoldJobs(job_ids=(1,)), peer=ALICE)
    answer = host.ask(client.ReleaseJobs(job_ids=(1,)), peer=ALICE)
    assert answer == client.JobsDone(refused=((1, "an operator holds it; only operators can release it"),))
    assert (host.trail[-1].outcome, host.trail[-1].object) == ("admin_hold", "job 1")
    host.ask(client.ReleaseJobs(job_ids=(1,)), peer=ADAM)
    assert host.job(1).hold is None


def test_users_cannot_go_before_others() -> None:
    host = cluster()
    with pytest.raises(Refusal, match="--nice=-1 is below 0"):
        host.submit(submit(nice=-1), peer=ALICE)
    host.submit(submit(nice=5), peer=ALICE)
    with pytest.raises(Refusal, match="only operators"):
        host.ask(client.UpdateJob(job_id=1, nice=-1), peer=ALICE)
    host.ask(client.UpdateJob(job_id=1, nice=0), peer=ALICE)
    host.ask(client.UpdateJob(job_id=1, nice=-7), peer=OLGA)
    assert host.job(1).spec.nice == -7


@pytest.mark.parametrize(("asked_s", "is_more"), [(61, True), (0, True), (60, False), (30, False)])
def test_users_raise_the_limit_of_a_job_only_while_it_waits(asked_s: int, is_more: bool) -> None:
    host = cluster()
    host.submit(submit(time_limit_s=50), peer=ALICE)
    host.ask(client.UpdateJob(job_id=1, time_limit_s=60), peer=ALICE)
    host.schedule()
    host.obey()
    body = client.UpdateJob(job_id=1, time_limit_s=asked_s)
    if is_more:
        with pytest.raises(Refusal, match="only operators can raise"):
            host.ask(body, peer=ALICE)
        assert host.job(1).time_limit_s == 60
        assert host.trail[-1].outcome == "raised_limit"
        host.ask(body, peer=OLGA)
    else:
        host.ask(body, peer=ALICE)
    assert host.job(1).time_limit_s == (asked_s or None)


def test_root_submits_only_where_the_settings_say_so() -> None:
    with pytest.raises(Refusal, match="root may not submit"):
        cluster().submit(submit(), peer=ROOT)
    assert cluster(root_jobs=True).submit(submit(), peer=ROOT) == 1
    private = CoreHost(nodes={"n1": inventory()})
    assert private.submit(submit(), peer=ROOT) == 1


def test_a_job_is_launched_as_the_user_who_submitted_it() -> None:
    host = cluster()
    host.submit(submit(), peer=BOB)
    turn = host.schedule()
    [order] = [one.order for one in turn.effects if isinstance(one, SendOrder)]
    assert isinstance(order, wire.Prepare)
    assert (order.launch.user, order.launch.uid, order.launch.gid) == ("bob", BOB.uid, BOB.gid)


# ── whose word counts ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_compute_node_vouches_for_a_user_as_long_as_a_job_of_theirs_is_there() -> None:
    host = cluster()
    inside = via("n1", ALICE)
    with pytest.raises(Refusal, match="node n1 cannot vouch for alice"):
        host.ask(client.ListJobs(), peer=inside)
    host.start(submit(nodelist=("n1",)), peer=ALICE)
    host.ask(submit("from inside"), peer=inside)
    with pytest.raises(Refusal, match="cannot vouch"):
        host.ask(client.ListJobs(), peer=via("n2", ALICE))
    host.finish(1)
    with pytest.raises(Refusal, match="cannot vouch"):
        host.ask(client.ListJobs(), peer=inside)
    assert [line.outcome for line in host.trail].count("not_vouched") == 3


def test_through_a_compute_node_an_operator_is_a_user() -> None:
    host = cluster()
    host.start(submit(nodelist=("n1",)), peer=OLGA)
    host.submit(submit(), peer=ALICE)
    who = host.ask(client.WhoAmI(), peer=via("n1", OLGA))
    assert isinstance(who, client.Identity)
    assert (who.role, who.origin) == ("user", "node n1")
    with pytest.raises(Refusal, match="for operators only, and olga is not one"):
        host.ask(client.UpdateNodes(names=("n2",), action="drain", reason="x"), peer=via("n1", OLGA))
    with pytest.raises(Refusal, match="belongs to alice"):
        host.ask(client.UpdateJob(job_id=2, name="x"), peer=via("n1", OLGA))


def test_a_login_node_that_the_controllers_settings_name_vouches_for_all() -> None:
    host = cluster(login_nodes=("front",))
    who = host.ask(client.WhoAmI(), peer=via("front", OLGA))
    assert isinstance(who, client.Identity)
    assert who.role == "operator"


def test_everybody_learns_who_they_are() -> None:
    host = cluster()
    host.ask(client.AddKey(public=public_key(1), note="laptop"), peer=ALICE)
    laptop = msgspec.structs.replace(ALICE, key=public_key(1), address="198.51.100.9")
    expected = {
        (ALICE, "user", "local"),
        (OLGA, "operator", "local"),
        (ADAM, "administrator", "local"),
        (ROOT, "administrator", "local"),
        (laptop, "user", "key laptop (198.51.100.9)"),
    }
    for peer, role, origin in expected:
        who = host.ask(client.WhoAmI(), now=7, peer=peer)
        assert isinstance(who, client.Identity)
        assert (who.user, who.uid, who.role, who.origin) == (peer.user, peer.uid, role, origin)
        assert (who.cluster, who.now, who.server_key) == ("gq", 7, SHARED.server_key)


# ── the audit trail ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_changes_something_is_noted_once_with_what_came_of_it() -> None:
    host = cluster()
    request = client_request(submit("train"), 900, ALICE)
    turn = host.handle(request, now=5)
    assert [type(one) for one in turn.events] == [
        event.MemberSet, event.JobSubmitted, event.RequestAnswered, event.Audited,
    ]  # fmt: skip
    assert turn.events[-1] == event.Audited(
        at=5, user="alice", uid=ALICE.uid, origin="local", action="Submit", object="job 1", detail="train"
    )
    assert host.handle(request, now=6).events == ()
    host.ask(client.UpdateJob(job_id=1, nice=3, comment=SECRET), peer=ALICE)
    assert (host.trail[-1].object, host.trail[-1].detail) == ("job 1", "nice=3, comment")
    with pytest.raises(Refusal):
        host.ask(client.UpdateJob(job_id=1, partition="nowhere"), peer=ALICE)
    assert host.trail[-1].outcome == "unknown_partition"


def test_a_request_about_many_jobs_of_which_none_could_be_done_is_noted_as_refused() -> None:
    host = cluster()
    host.submit(submit(), peer=ALICE)
    host.ask(client.RequeueJobs(job_ids=(1,)), peer=ALICE)
    line = host.trail[-1]
    assert (line.object, line.outcome) == ("job 1", "refused")
    assert line.detail == "it is pending; only a job that has started can be requeued"


def test_a_step_is_noted_when_it_is_made_also_when_it_had_to_wait() -> None:
    host = cluster()
    host.start(submit(cpus_per_task=8), peer=ALICE)
    step = client.CreateStep(job_id=1, step=StepRequest(name="s"), wait_s=20)
    host.ask(step, peer=ALICE)
    noted = len(host.trail)
    assert host.ask(step, peer=ALICE) is None
    assert len(host.trail) == noted
    host.handle(Tick(), now=25)
    assert (host.trail[-1].action, host.trail[-1].outcome) == ("CreateStep", "step_waits")


def test_what_only_reads_is_not_noted_but_where_it_was_denied() -> None:
    host = with_private_job()
    noted = len(host.trail)
    for body in (client.ListJobs(), client.GetCluster(), client.Ping(), client.WaitJobs(job_ids=(1,))):
        host.ask(body, peer=BOB)
    with pytest.raises(Refusal, match="job 99 does not exist"):
        host.ask(client.GetScript(job_id=99), peer=BOB)
    assert len(host.trail) == noted
    with pytest.raises(Refusal, match="belongs to alice"):
        host.ask(client.GetScript(job_id=1), peer=BOB)
    [line] = host.trail[noted:]
    assert (line.user, line.action, line.object, line.outcome) == ("bob", "GetScript", "job 1", "not_owner")


@pytest.mark.parametrize("nasty", ["\x1b[2J", "a\nb", "x" * 10_000, "'; DROP TABLE audit; --", "\u202e", "\0"])
def test_whatever_is_noted_is_one_short_printable_line(nasty: str) -> None:
    host = cluster()
    incident = DoorIncident(action=nasty or "x", origin=nasty, detail=nasty, user=nasty)
    [line] = host.handle(incident, now=1).events
    assert isinstance(line, event.Audited)
    assert line.outcome == "refused"
    host.ask(client.UpdateNodes(names=("n1",), action="drain", reason=f"x{nasty}"), peer=OLGA)
    for one in (line, host.trail[-1]):
        for text in (one.user, one.origin, one.action, one.object, one.outcome, one.detail):
            assert text.isprintable()
            assert len(text) <= 500


def test_operators_read_the_trail_page_by_page() -> None:
    host = cluster()
    turn = host.handle(client_request(client.QueryAudit(limit=10**9, user="bob"), 900, OLGA))
    [effect] = turn.effects
    assert isinstance(effect, ReplyAudit)
    assert (effect.query.limit, effect.query.user) == (SHARED.limits.page, "bob")
    turn = host.handle(client_request(client.QueryAudit(), 901, BOB))
    [reply] = turn.effects
    assert isinstance(reply, Reply)
    assert isinstance(reply.body, client.Refused)
    assert reply.body.code == "not_operator"


def test_the_trail_is_on_disk_with_what_it_tells_of() -> None:
    host = cluster()
    host.submit(submit("train"), peer=ALICE)
    [entry] = host.store.audit(client.QueryAudit(action="Submit")).entries
    assert (entry.user, entry.uid, entry.object, entry.outcome, entry.detail) == (
        "alice", ALICE.uid, "job 1", "done", "train",
    )  # fmt: skip
