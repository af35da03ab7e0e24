"""A shared cluster with something of everybody's in it, for tests of who may do what."""

from __future__ import annotations

import msgspec

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.ask import AskAnswer
from gq.model.policy_tables import Booking as Rules
from gq.model.reservation import Booking
from gq.model.resource import ResourceRequest
from gq.model.step import StepRequest
from gq.wire import client
from gqd.state.input import Peer
from gqd.state.policy import Partition, Policy
from tests.builders import ADAM, ALICE, SHARED, inventory, join, named, public_key, submit
from tests.hosts import CoreHost

BATCH, INTERACTIVE, PENDING, STEPPED, SUSPENDED, ELASTIC = 1, 2, 3, 4, 5, 6
"""Jobs of alice: all but the pending one are on n1."""
ALICES_KEY, LOGIN_KEY, LOGIN_TOKEN = public_key(1), public_key(2), public_key(3)
NEW_KEY = public_key(9)


ONE_GPU = ResourceRequest(gpus=1)
CURRENT = Booking(name="current", resources=ONE_GPU, begin_at=0.0, duration_s=3600)
COMING = Booking(name="coming", resources=ONE_GPU, begin_at=5000.0, duration_s=3600)
BOOKABLE = Partition(name="main", is_default=True, max_time_s=86400)


def scene(policy: Policy = SHARED, owner: Peer = ALICE, administrator: Peer = ADAM) -> CoreHost:
    """Nodes n1 and n2, a login node login1; all jobs, one key and two reservations are `owner`'s.

    Account `team`, of which carl is the coordinator, with `below` and `gone` below it.
    """
    policy = msgspec.structs.replace(policy, partitions=(BOOKABLE,), booking=Rules(users=True))
    host = CoreHost(policy, {"n1": inventory(cpus=64), "n2": inventory(cpus=64)}, checked=False)
    for body in (submit("batch"), submit("shell", is_interactive=True)):
        host.start(pinned(body), peer=owner)
    host.submit(submit("later", is_held=True), peer=owner)
    for name in ("steps", "halted"):
        host.start(pinned(submit(name)), peer=owner)
    host.start(submit("elastic", nodelist=("n1",), gpus=1, most_gpus=2, time_limit_s=3600), peer=owner)
    host.ask(client.SuspendJobs(job_ids=(SUSPENDED,)), peer=administrator)
    step = StepRequest(name="step", ntasks=1)
    host.ask(client.CreateStep(job_id=STEPPED, step=step), peer=owner)
    host.ask(client.AddKey(public=ALICES_KEY, user=owner.user), peer=administrator, named_user=named(owner))
    host.ask(client.SetCrontab(text="# nothing yet", jobs=()), peer=owner)
    for booking in (CURRENT, COMING):
        host.ask(client.SetReservation(booking=booking), peer=owner)
    if policy.endpoint:
        host.ask(client.CreateToken(public=LOGIN_TOKEN, node="login1", is_login=True), peer=administrator)
        host.handle(join("login1", LOGIN_TOKEN, LOGIN_KEY))
    for change in CHANGES:
        host.ask(change, peer=administrator)
    assert {one.batch_node for one in host.cluster.attempts.values()} == {"n1"}
    host.is_checked = False
    return host


def pinned(body: client.Submit) -> client.Submit:
    """The same on n1."""
    return submit(body.spec.name, nodelist=("n1",), is_interactive=body.spec.is_interactive, time_limit_s=3600)


CHANGES: tuple[client.RequestBody, ...] = (
    client.AskJob(job_id=STEPPED, text="until noon?"),
    client.SetAccount(account=AccountInfo(name="team", coordinators=("carl",)), is_new=True),
    client.SetAccount(account=AccountInfo(name="below", parent="team"), is_new=True),
    client.SetAccount(account=AccountInfo(name="gone", parent="team"), is_new=True),
    client.SetMember(member=MemberInfo(user="dave", account="team"), is_new=True),
    client.SetQos(qos=QosInfo(name="spare"), is_new=True),
    client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="below", resource="cpus", most=64)),
)
"""What makes the accounts of the scene, and a favour that is asked."""


REQUESTS: dict[type, client.RequestBody] = {
    type(body): body
    for body in (
        submit("new"),
        client.ListJobs(),
        client.QueryHistory(),
        client.Explain(job_id=BATCH),
        client.GetScript(job_id=BATCH),
        client.WaitJobs(job_ids=(BATCH,)),
        client.CancelJobs(filter=client.JobFilter(job_ids=(BATCH,))),
        client.SignalStep(job_id=STEPPED, step=0, signum=10),
        client.HoldJobs(job_ids=(PENDING,)),
        client.ReleaseJobs(job_ids=(PENDING,)),
        client.RequeueJobs(job_ids=(BATCH,)),
        client.UpdateJob(job_id=PENDING, name="other"),
        client.NotifyJob(job_id=BATCH, text="hello"),
        client.ExtendJob(job_id=BATCH, by_s=60),
        client.SuspendJobs(job_ids=(BATCH,)),
        client.AskJob(job_id=BATCH, text="please"),
        client.AnswerAsks(job_id=STEPPED, answer=AskAnswer.DECLINE),
        client.ListAsks(),
        client.ResumeJobs(job_ids=(SUSPENDED,)),
        client.CheckpointDone(job_id=BATCH),
        client.ResumeDone(job_id=BATCH),
        client.GiveUpGpus(job_id=ELASTIC),
        client.KeepAlive(job_id=INTERACTIVE),
        client.EndInteractive(job_id=INTERACTIVE),
        client.CreateStep(job_id=BATCH, step=StepRequest(name="step", ntasks=1)),
        client.AccessLog(job_id=BATCH),
        client.GetJobEnvironment(job_id=BATCH),
        client.ListNodes(),
        client.GetCluster(),
        client.UpdateNodes(names=("n2",), action="drain", reason="fan"),
        client.Ping(),
        client.WhoAmI(),
        client.RemoveNode(name="n2"),
        client.CreateToken(public=NEW_KEY),
        client.AddKey(public=NEW_KEY, user="alice"),
        client.ListKeys(user="alice"),
        client.RevokeKey(public=ALICES_KEY),
        client.QueryAudit(),
        client.SubmitChain(stages=(submit("one"), submit("two"))),
        client.SetAccount(account=AccountInfo(name="new", parent="team"), is_new=True),
        client.RemoveAccount(name="gone"),
        client.SetMember(member=MemberInfo(user="bob", account="team"), is_new=True),
        client.RemoveMember(user="dave", account="team"),
        client.SetQos(qos=QosInfo(name="high", priority=10), is_new=True),
        client.RemoveQos(name="spare"),
        client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="below", resource="gpus", most=4)),
        client.RemoveLimit(holder="account", name="below", resource="cpus"),
        client.ListAccounts(),
        client.ListPriorities(),
        client.ListShares(),
        client.ReloadConfig(),
        client.CheckConfig(text="", path="gq.toml"),
        client.QueryEvents(),
        client.ListNotices(),
        client.EstimateStarts(),
        client.WhatIf(spec=submit("new").spec),
        client.QueryAccuracy(since=0.0),
        client.SetCrontab(text="# nothing", jobs=(), user="alice"),
        client.GetCrontab(user="alice"),
        client.RemoveCrontab(user="alice"),
        client.ListCrontabs(),
        client.SetReservation(booking=COMING, replace=True),
        client.EditOccurrence(name="coming", number=1, duration_s=120),
        client.SkipOccurrence(name="coming"),
        client.EndReservation(name="current"),
        client.DeleteReservation(name="coming"),
        client.ListReservations(),
        client.QueryBookings(since=0.0),
    )
}
"""One of each, about something of alice's where it is about something of a user's."""
