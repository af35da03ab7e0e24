"""A shared cluster with something of everybody's in it, for tests of who may do what."""

from __future__ import annotations

from gq.model.account import AccountInfo, Holder, LimitInfo, MemberInfo, QosInfo
from gq.model.step import StepRequest
from gq.wire import client
from gqd.state.input import Peer
from gqd.state.policy import Policy
from tests.builders import ADAM, ALICE, SHARED, inventory, join, named, public_key, submit
from tests.hosts import CoreHost

BATCH, INTERACTIVE, PENDING, STEPPED = 1, 2, 3, 4
"""Jobs of alice: the first two and the last run on n1."""
ALICES_KEY, LOGIN_KEY, LOGIN_TOKEN = public_key(1), public_key(2), public_key(3)
NEW_KEY = public_key(9)


def scene(policy: Policy = SHARED, owner: Peer = ALICE, administrator: Peer = ADAM) -> CoreHost:
    """Nodes n1 and n2, a login node login1; all jobs and one key are `owner`'s.

    Account `team`, of which carl is the coordinator, with `below` and `gone` below it.
    """
    host = CoreHost(policy, {"n1": inventory(cpus=64), "n2": inventory(cpus=64)}, checked=False)
    for body in (submit("batch"), submit("shell", is_interactive=True)):
        host.start(pinned(body), peer=owner)
    host.submit(submit("later", is_held=True), peer=owner)
    host.start(pinned(submit("steps")), peer=owner)
    step = StepRequest(name="step", ntasks=1)
    host.ask(client.CreateStep(job_id=STEPPED, step=step), peer=owner)
    host.ask(client.AddKey(public=ALICES_KEY, user=owner.user), peer=administrator, named_user=named(owner))
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
    return submit(body.spec.name, nodelist=("n1",), is_interactive=body.spec.is_interactive)


CHANGES: tuple[client.RequestBody, ...] = (
    client.SetAccount(account=AccountInfo(name="team", coordinators=("carl",)), is_new=True),
    client.SetAccount(account=AccountInfo(name="below", parent="team"), is_new=True),
    client.SetAccount(account=AccountInfo(name="gone", parent="team"), is_new=True),
    client.SetMember(member=MemberInfo(user="dave", account="team"), is_new=True),
    client.SetQos(qos=QosInfo(name="spare"), is_new=True),
    client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="below", resource="cpus", most=64)),
)
"""What makes the accounts of the scene."""


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
        client.EstimateStarts(),
        client.WhatIf(spec=submit("new").spec),
        client.QueryAccuracy(since=0.0),
    )
}
"""One of each, about something of alice's where it is about something of a user's."""
