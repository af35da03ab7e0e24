"""Authorisation: the only place that decides which caller may make which request about which object.  Pure.

`RIGHTS` names the right that each request needs; `authorise` checks it.  The listener has authenticated the caller, and
its `Peer` travels with the request.  This module decides whether the controller serves that peer at all, whether the
node that vouches for the peer may do so, and which role the peer has.  A private cluster serves its owner and root,
both as administrators.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import NamedTuple

from gq.errors import Refusal
from gq.model.account import DEFAULT_ACCOUNT, ROOT, Holder
from gq.model.ids import JobId
from gq.wire import client
from gqd.control.accounts.association import User
from gqd.state.cluster import Cluster
from gqd.state.index.tally import account_path
from gqd.state.input import Peer
from gqd.state.job_view import is_of
from gqd.state.policy import Policy
from gqd.state.records import Job

ROOT_UID = 0
NO_JOB = JobId(0)
NOBODYS = ""
"""The name of no account: it has no coordinators."""
STEERING = (
    client.CancelJobs, client.SignalStep, client.HoldJobs, client.ReleaseJobs, client.RequeueJobs, client.UpdateJob,
    client.NotifyJob, client.ExtendJob,
)  # fmt: skip
"""Requests that coordinators, too, may make about the jobs of their accounts; scripts and output stay private."""


CRONTABS = (client.SetCrontab, client.GetCrontab, client.RemoveCrontab)


class Denied(Refusal):
    """The caller lacks the right; the audit trail records the refusal, even of a request that changes nothing."""


class Role(IntEnum):
    """The role of a caller; a higher role includes the lower ones.  Coordinators are users with rights on accounts."""

    USER = 0
    OPERATOR = 20
    ADMINISTRATOR = 30


class Right(Enum):
    """The right that a request needs."""

    ANYONE = "anyone"
    OWNER = "owner"
    """The owner of the job, key or reservation, and operators."""
    OWNER_ONLY = "owner only"
    """The owner of the job, since the request acts as the user, and administrators."""
    SELF = "self"
    """Users about their own keys, but not through a node that runs jobs; administrators about all keys."""
    COORDINATOR = "coordinator"
    """Coordinators of an account above the account that the request is about, and operators."""
    OPERATOR = "operator"
    ADMINISTRATOR = "administrator"


class Reach(Enum):
    """The objects that a role may act on."""

    NONE = "none"
    OWN = "own"
    ALL = "all"


REACH: dict[Right, dict[Role, Reach]] = {
    Right.ANYONE: {Role.USER: Reach.ALL, Role.OPERATOR: Reach.ALL, Role.ADMINISTRATOR: Reach.ALL},
    Right.OWNER: {Role.USER: Reach.OWN, Role.OPERATOR: Reach.ALL, Role.ADMINISTRATOR: Reach.ALL},
    Right.OWNER_ONLY: {Role.USER: Reach.OWN, Role.OPERATOR: Reach.OWN, Role.ADMINISTRATOR: Reach.ALL},
    Right.SELF: {Role.USER: Reach.OWN, Role.OPERATOR: Reach.OWN, Role.ADMINISTRATOR: Reach.ALL},
    Right.COORDINATOR: {Role.USER: Reach.OWN, Role.OPERATOR: Reach.ALL, Role.ADMINISTRATOR: Reach.ALL},
    Right.OPERATOR: {Role.USER: Reach.NONE, Role.OPERATOR: Reach.ALL, Role.ADMINISTRATOR: Reach.ALL},
    Right.ADMINISTRATOR: {Role.USER: Reach.NONE, Role.OPERATOR: Reach.NONE, Role.ADMINISTRATOR: Reach.ALL},
}


RIGHTS: dict[type[client.RequestBody], Right] = {
    client.Submit: Right.ANYONE,
    client.ListJobs: Right.ANYONE,
    client.QueryHistory: Right.ANYONE,
    client.Explain: Right.ANYONE,
    client.GetScript: Right.OWNER,
    client.WaitJobs: Right.ANYONE,
    client.CancelJobs: Right.OWNER,
    client.SignalStep: Right.OWNER,
    client.HoldJobs: Right.OWNER,
    client.ReleaseJobs: Right.OWNER,
    client.RequeueJobs: Right.OWNER,
    client.UpdateJob: Right.OWNER,
    client.NotifyJob: Right.OWNER,
    client.ExtendJob: Right.OWNER,
    client.SuspendJobs: Right.OPERATOR,
    client.ResumeJobs: Right.OPERATOR,
    client.AskJob: Right.ANYONE,
    client.AnswerAsks: Right.OWNER,
    client.ListAsks: Right.ANYONE,
    client.CheckpointDone: Right.OWNER,
    client.ResumeDone: Right.OWNER,
    client.GiveUpGpus: Right.OWNER,
    client.KeepAlive: Right.OWNER_ONLY,
    client.EndInteractive: Right.OWNER_ONLY,
    client.CreateStep: Right.OWNER_ONLY,
    client.AccessLog: Right.OWNER,
    client.GetJobEnvironment: Right.OWNER_ONLY,
    client.ListNodes: Right.ANYONE,
    client.GetCluster: Right.ANYONE,
    client.UpdateNodes: Right.OPERATOR,
    client.Ping: Right.ANYONE,
    client.WhoAmI: Right.ANYONE,
    client.RemoveNode: Right.ADMINISTRATOR,
    client.CreateToken: Right.ADMINISTRATOR,
    client.AddKey: Right.SELF,
    client.ListKeys: Right.OWNER,
    client.RevokeKey: Right.SELF,
    client.QueryAudit: Right.OPERATOR,
    client.SubmitChain: Right.ANYONE,
    client.SetAccount: Right.COORDINATOR,
    client.RemoveAccount: Right.COORDINATOR,
    client.SetMember: Right.COORDINATOR,
    client.RemoveMember: Right.COORDINATOR,
    client.SetQos: Right.OPERATOR,
    client.RemoveQos: Right.OPERATOR,
    client.SetLimit: Right.COORDINATOR,
    client.RemoveLimit: Right.COORDINATOR,
    client.ListAccounts: Right.ANYONE,
    client.ListPriorities: Right.ANYONE,
    client.ListShares: Right.ANYONE,
    client.EstimateStarts: Right.ANYONE,
    client.WhatIf: Right.ANYONE,
    client.QueryAccuracy: Right.ANYONE,
    client.ReloadConfig: Right.ADMINISTRATOR,
    client.CheckConfig: Right.ADMINISTRATOR,
    client.QueryEvents: Right.ANYONE,
    client.ListNotices: Right.ANYONE,
    client.SetReservation: Right.OWNER,
    client.EditOccurrence: Right.OWNER,
    client.SkipOccurrence: Right.OWNER,
    client.EndReservation: Right.OWNER,
    client.DeleteReservation: Right.OWNER,
    client.ListReservations: Right.ANYONE,
    client.QueryBookings: Right.ANYONE,
    client.SetCrontab: Right.OWNER_ONLY,
    client.GetCrontab: Right.OWNER,
    client.RemoveCrontab: Right.OWNER,
    client.ListCrontabs: Right.OPERATOR,
}
"""Request → the right that it needs; gq-protocol(7) prints it.

The answers to `ANYONE`'s requests leave out private details of other users' jobs."""

COMMANDS: dict[type[client.RequestBody], str] = {
    client.SuspendJobs: "`gqctl suspend`",
    client.ResumeJobs: "`gqctl resume`",
    client.UpdateNodes: "`gqctl node drain`, `resume` or `down`",
    client.RemoveNode: "`gqctl node remove`",
    client.CreateToken: "`gqctl token create`",
    client.QueryAudit: "`gqctl audit`",
    client.SetAccount: "`gqctl account add` or `set`",
    client.RemoveAccount: "`gqctl account remove`",
    client.SetMember: "`gqctl user add` or `set`",
    client.RemoveMember: "`gqctl user remove`",
    client.SetQos: "`gqctl qos add` or `set`",
    client.RemoveQos: "`gqctl qos remove`",
    client.SetLimit: "`gqctl limit set`",
    client.RemoveLimit: "`gqctl limit remove`",
    client.ReloadConfig: "`gqctl config reload`",
    client.CheckConfig: "`gqctl config check`",
    client.ListCrontabs: "`gqcron --all`",
}
"""Requests that are restricted to a role → the command that sends them, for messages."""


class Caller(NamedTuple):
    """The user who makes a request, with the role and the accounts that this user has here."""

    peer: Peer
    role: Role
    is_from_job: bool = False
    """The request comes through a node that runs jobs, which vouches for the user."""
    coordinates: frozenset[str] = frozenset()
    """Accounts that this user coordinates, and all accounts below them."""

    @property
    def user(self) -> User:
        return User(self.peer.user, self.peer.groups)

    @property
    def shown_to(self) -> Peer | None:
        """The peer from whom private details of other users' jobs are hidden; None: the caller may see everything."""
        return self.peer if self.role < Role.OPERATOR else None

    def owns(self, job: Job) -> bool:
        return is_of(self.peer, job.user, job.uid)

    def may_steer(self, job: Job) -> bool:
        return self.role >= Role.OPERATOR or self.owns(job) or job.account in self.coordinates


# ── the caller ────────────────────────────────────────────────────────────────────────────────────────────────


def caller_of(peer: Peer, cluster: Cluster, policy: Policy) -> Caller:
    """The caller behind a peer; `Denied` unless it is served here and the node that vouches for it may do so."""
    if not policy.is_shared:
        _refuse_strangers(peer, policy)
    if peer.key and peer.key not in cluster.keys:
        message = f"the key that begins with {peer.key[:8]} is no longer known"
        raise Denied("not_served", message, "the key was revoked; enrol another with `gqctl key add`")
    if policy.is_shared and peer.via_node and not is_login_node(peer.via_node, cluster, policy):
        _refuse_unvouched(peer, cluster)
        return Caller(peer, Role.USER, is_from_job=True)
    return Caller(peer, _role_of(peer, policy), coordinates=coordinated_by(peer.user, cluster))


def _refuse_strangers(peer: Peer, policy: Policy) -> None:
    if peer.uid not in (policy.owner_uid, ROOT_UID):
        message = f"user {peer.user} (uid {peer.uid}) is not served: this cluster belongs to uid {policy.owner_uid}"
        raise Denied("not_served", message, "unset GQ_DIR and GQ_CONFIG to find a cluster that serves you")


def _role_of(peer: Peer, policy: Policy) -> Role:
    if peer.uid in (ROOT_UID, policy.owner_uid) or _is_named(peer, policy.administrators):
        return Role.ADMINISTRATOR
    return Role.OPERATOR if _is_named(peer, policy.operators) else Role.USER


def _is_named(peer: Peer, names: tuple[str, ...]) -> bool:
    """Whether the names include the peer's user name, or one of its groups as ``%group``."""
    if not names:
        return False
    return peer.user in names or any(f"%{group}" in names for group in peer.groups)


def coordinated_by(user: str, cluster: Cluster) -> frozenset[str]:
    """Accounts that the user coordinates, and all accounts below them."""
    named = cluster.associations.coordinated.get(user)
    if not named:
        return frozenset()
    names = (*named, *cluster.accounts, DEFAULT_ACCOUNT)
    return frozenset(
        account for account in names if not named.keys().isdisjoint(account_path(cluster.accounts, account))
    )


def is_login_node(node: str, cluster: Cluster, policy: Policy) -> bool:
    """Whether the node vouches for all users of its host.  What the node claims about itself does not count."""
    return node in cluster.login_nodes or node in policy.login_nodes


def _refuse_unvouched(peer: Peer, cluster: Cluster) -> None:
    """`Denied` unless the node holds a job of the user: an intruder on the node controls those users' jobs already."""
    node = cluster.nodes.get(peer.via_node)
    for attempt_id in node.held if node is not None else ():
        job = cluster.jobs.get(attempt_id.job_id)
        if job is not None and is_of(peer, job.user, job.uid):
            return
    raise Denied(
        "not_vouched",
        f"node {peer.via_node} cannot vouch for {peer.user}: it is not a login node and runs no job of this user",
        "run the command on the controller's host, on a login node, or inside a job",
    )


# ── its rights ────────────────────────────────────────────────────────────────────────────────────────────────


def authorise(caller: Caller, body: client.RequestBody, cluster: Cluster) -> None:
    """`Denied` unless `RIGHTS` lets this caller make this request about its object.

    Requests about many jobs skip or refuse other users' jobs one by one (`may_steer`); the owner of a key is checked
    in `gqd.control.key`.
    """
    right = RIGHTS[type(body)]
    reach = REACH[right][caller.role]
    if reach is Reach.ALL:
        return
    if reach is Reach.NONE:
        raise _too_low(caller, body, right)
    if right is Right.SELF and caller.is_from_job:
        message = f"node {caller.peer.via_node} runs jobs, and jobs may not enrol or revoke keys"
        raise Denied("not_vouched", message, "run the command on the controller's host or on a login node")
    if right is Right.COORDINATOR:
        _refuse_uncoordinated(caller, body, cluster)
    if isinstance(body, CRONTABS):
        _refuse_crontab_of_others(caller, body, cluster)
    job = cluster.jobs.get(getattr(body, "job_id", NO_JOB))
    if job is not None and not caller.owns(job) and not (isinstance(body, STEERING) and caller.may_steer(job)):
        raise not_owner(job)


def _refuse_crontab_of_others(
    caller: Caller, body: client.SetCrontab | client.GetCrontab | client.RemoveCrontab, cluster: Cluster
) -> None:
    """`Denied` for a crontab of another user, even one with the same name but another uid."""
    user = body.user or caller.peer.user
    known = cluster.crontabs.get(user)
    if not is_of(caller.peer, user, caller.peer.uid if known is None else known.uid):
        word = "administrators" if isinstance(body, client.SetCrontab) else "operators"
        raise Denied("not_owner", f"the crontab of {user} is not yours", f"only its owner and {word} may do this")


def _refuse_uncoordinated(caller: Caller, body: client.RequestBody, cluster: Cluster) -> None:
    """`Denied` unless the caller coordinates every account that the request needs.

    For its members that is the account itself; for everything else it is the account above: coordinators cannot raise
    what their own account may have.
    """
    for account in _accounts_about(body, cluster):
        if account not in caller.coordinates:
            message = f"{COMMANDS[type(body)]} of `{_named(body)}` needs a coordinator of an account above it"
            message = f"{message} or an operator, and {caller.peer.user} is neither"
            raise Denied("not_coordinator", message, "ask a coordinator; gqctl account show lists them")


def _accounts_about(body: client.RequestBody, cluster: Cluster) -> list[str]:
    """The accounts that the caller must coordinate; `NOBODYS`: only operators may make the request."""
    match body:
        case client.SetMember():
            return [body.member.account]
        case client.RemoveMember():
            return [body.account]
        case client.SetAccount():
            return [*_parents(body.account.name, cluster), body.account.parent]
        case client.RemoveAccount():
            return _parents(body.name, cluster) or [NOBODYS]
        case client.SetLimit() if body.limit.holder is Holder.ACCOUNT:
            return _parents(body.limit.name, cluster) or [NOBODYS]
        case client.RemoveLimit() if body.holder == Holder.ACCOUNT:
            return _parents(body.name, cluster) or [NOBODYS]
        case _:
            return [NOBODYS]


def _parents(account: str, cluster: Cluster) -> list[str]:
    """The account above an existing account; `NOBODYS` above the root and the default account."""
    if account in (ROOT, DEFAULT_ACCOUNT):
        return [NOBODYS]
    known = cluster.accounts.get(account)
    return [] if known is None else [known.parent]


def _named(body: client.RequestBody) -> str:
    match body:
        case client.SetMember():
            return body.member.account
        case client.RemoveMember():
            return body.account
        case client.SetAccount():
            return body.account.name
        case client.SetLimit():
            return f"{body.limit.holder.value} {body.limit.name}"
        case client.RemoveLimit():
            return f"{body.holder} {body.name}"
        case _:
            return str(getattr(body, "name", ""))


def _too_low(caller: Caller, body: client.RequestBody, right: Right) -> Denied:
    word = next(role for role in Role if REACH[right][role] is not Reach.NONE).name.lower()
    message = f"{COMMANDS[type(body)]} is for {word}s only, and {caller.peer.user} is not one"
    return Denied(f"not_{word}", message, f"ask an {word}; `[access] {word}s` in gq.toml names them")


def not_owner(job: Job) -> Denied:
    return Denied("not_owner", f"job {job.job_id} belongs to {job.user}", "only its owner may do this")


def refuse_users_of_others(caller: Caller, users: tuple[str, ...]) -> None:
    """`Denied` if a filter names other users, unless the caller may steer jobs of others.

    A request that names another user means that user's jobs, so they are not skipped silently.
    """
    others = [user for user in users if user != caller.peer.user]
    if others and caller.role < Role.OPERATOR and not caller.coordinates:
        raise Denied(
            "not_owner", f"the jobs of {others[0]} are not yours", "only their owner and operators may do this"
        )


def refuse_root_jobs(caller: Caller, policy: Policy) -> None:
    """`Denied` for jobs of root on a shared cluster: they could do anything on every node."""
    if policy.is_shared and not policy.root_jobs and caller.peer.uid == ROOT_UID:
        message = "root may not submit jobs to this cluster"
        raise Denied("root_jobs", message, "submit as a user; `[access] root_jobs = true` in gq.toml allows it")


def refuse_more_time(caller: Caller, before_s: int) -> None:
    """`Denied` unless an operator asks: the latest end of a running job has been promised to other jobs."""
    if caller.role < Role.OPERATOR:
        message = f"only operators can raise the time limit of a running job, {before_s} s"
        raise Denied("raised_limit", message, "ask an operator; you may lower it")


def refuse_priority(caller: Caller, nice: int | None, priority: int | None = None) -> None:
    """`Denied` for a user who sets a priority or a negative nice value: both overtake other users' jobs."""
    if priority is not None and caller.role < Role.OPERATOR:
        message = f"--priority={priority} replaces the computed priority, and only operators may set it"
        raise Denied("set_priority", message, "leave it out; --nice=N (0 or more) lowers the priority")
    if nice is not None and nice < 0 and caller.role < Role.OPERATOR:
        raise Denied(
            "negative_nice", f"--nice={nice} is below 0, and only operators may raise a priority", "ask for 0 or more"
        )
