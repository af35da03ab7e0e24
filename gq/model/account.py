"""Accounts in a tree, their members, QOS and limits, as gq stores and shows them.

An account is a team (or a group of teams); its parent is another account or the `ROOT` of the tree.  A member is a user
in an account, what Slurm calls an association.  A QOS is a class of service that a job requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gq.model.resource import Count

ROOT = "root"
"""The account at the top of the tree; it always exists and has no jobs."""
DEFAULT_ACCOUNT = "default"
"""The account of users who are in no other; it always exists."""
NORMAL_QOS = "normal"
"""The QOS of jobs that request none; it always exists."""


class AccountInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    parent: str = ROOT
    description: str = ""
    shares: Count = 1
    """The account's weight for fair share among its siblings (accounts and members alike)."""
    guaranteed_gpus: Count | None = None
    """GPUs that the account's jobs get before borrowers do; None: the account has no guarantee."""
    borrow_gpus: Count | None = None
    """Maximum number of GPUs that the account may hold beyond its guarantee; None: as many as are idle."""
    group: str = ""
    """A Unix group whose members are members of the account without being added."""
    coordinators: tuple[str, ...] = ()
    """Users who may add members and limits below the account, and control its jobs."""
    default_qos: str = ""
    """The QOS of the account's jobs that request none; empty: the parent's."""


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    user: str
    account: str
    shares: Count = 1
    is_default: bool = False
    """Whether the user's jobs that name no account go to this one."""
    from_group: bool = False
    """Whether the member was not added by hand: a member of the Unix group, or only past usage is left."""


class PreemptMode(StrEnum):
    """The ways to preempt a job."""

    OFF = "off"
    """The job is never preempted."""
    REQUEUE = "requeue"
    """The job is queued again with its age if it may be requeued, else it is cancelled."""
    CANCEL = "cancel"
    SUSPEND = "suspend"
    """The job is suspended and lends its GPUs and CPUs to the preemptor; if that is impossible, as REQUEUE."""


class QosInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    priority: Count = 0
    """Priority; the highest priority of any QOS counts as 1 in the priority's QOS factor."""
    usage_factor: float = 1.0
    """Factor by which the usage of the QOS's jobs is multiplied."""
    max_time_s: Count | None = None
    users: tuple[str, ...] = ()
    """Users who may request the QOS; users, groups and accounts empty: everybody may."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """Accounts whose members may request the QOS, accounts below them included."""
    preempts: tuple[str, ...] = ()
    """QOS whose jobs the QOS's jobs may preempt."""
    preempt_mode: PreemptMode = PreemptMode.REQUEUE
    """How the QOS's own jobs are preempted."""
    min_run_s: Count = 0
    """Seconds that a job of the QOS runs before it may be preempted."""
    borrows_reserved: bool = False
    """Whether the QOS's jobs may start on idle reserved resources; they are preempted when it needs these."""


BUILT_IN_QOS = {
    qos.name: qos
    for qos in (
        QosInfo(
            name="scavenger", description="uses idle resources; other jobs preempt its jobs", borrows_reserved=True
        ),
        QosInfo(name=NORMAL_QOS, preempts=("scavenger",)),
        QosInfo(
            name="high",
            description="starts before other QOS",
            priority=100,
            users=("root",),
            preempts=("scavenger", "normal"),
        ),
    )
}
"""QOS that exist in every cluster until an administrator changes them."""


def with_built_in(own: Mapping[str, QosInfo]) -> dict[str, QosInfo]:
    """Return all QOS by name; `own` are the QOS that were added or changed."""
    return {**BUILT_IN_QOS, **own}


class Holder(StrEnum):
    """The kind of a limit's holder."""

    USER = "user"
    ACCOUNT = "account"
    """The account and everything below it in the tree."""
    QOS = "qos"


class LimitAt(StrEnum):
    """When a limit is checked."""

    SUBMIT = "submit"
    """At submission: pending jobs count, too, and a job over the limit is refused."""
    START = "start"
    """At the start: running jobs count, and a job over the limit waits."""


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The maximum of one resource for one holder.  ``resource``: a key of `LIMITED`, or ``gpus:TYPE``."""

    holder: Holder
    name: str
    resource: str
    most: float
    """The maximum: GPUs, CPUs, jobs; MiB for ``memory``; seconds for ``time``; GPU-hours for the budgets."""
    per_user: bool = False
    """Whether the limit holds for each user of the account or QOS, rather than for all of them together."""
    at: LimitAt = LimitAt.START
    used: float | None = None
    """Usage that counts against the limit; only in answers.  With ``per_user``, that of the heaviest user."""


LIMITED = {
    "gpus": "GPUs",
    "cpus": "CPUs",
    "memory": "memory",
    "running_jobs": "running jobs",
    "pending_jobs": "pending jobs",
    "gpus_per_job": "GPUs of one job",
    "nodes_per_job": "nodes of one job",
    "time": "time limit of one job",
    "gpu_hours_per_day": "GPU-hours a day",
    "gpu_hours_per_week": "GPU-hours a week",
    "gpu_hours_per_month": "GPU-hours a month",
}
"""Resources that can be limited → their names in sentences."""
BUDGETS = {"gpu_hours_per_day": "day", "gpu_hours_per_week": "week", "gpu_hours_per_month": "month"}
"""Limits on consumption in a day, a week (from Monday on) or a month → the period."""
AT_SUBMIT_ONLY = frozenset({"pending_jobs", "gpus_per_job", "nodes_per_job", "time"})
"""Limits on the jobs that may be queued."""
AT_START_ONLY = frozenset({"running_jobs"})


class ShareInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `gqshare`: an account, or a user in an account.  Lines are in tree order, parents first."""

    account: str
    user: str = ""
    """Empty: the line shows the account."""
    depth: Count = 0
    shares: Count = 1
    norm_shares: float = 0.0
    """Shares as a fraction of the whole cluster: 0…1."""
    usage: float = 0.0
    """Decayed usage in weighted GPU-seconds."""
    norm_usage: float = 0.0
    """Usage as a fraction of all usage: 0…1."""
    level_fs: float | None = None
    """Ratio of shares to usage among the siblings; below 1: usage exceeds the share.  None: no usage yet."""
    fair_share: float | None = None
    """The user's fair-share factor of the priority: 0…1; None for an account."""
    gpus: Count = 0
    """GPUs that running jobs hold now."""
    guaranteed_gpus: Count | None = None
    borrowed_gpus: Count = 0
    may_borrow_gpus: Count | None = None
    """Number of GPUs that may still be borrowed; None: as many as are idle."""
    gives_back: Count | None = None
    """Position among the borrowers that would be preempted if the guarantee's owner submitted jobs, from 1; None: the
    line has borrowed nothing."""


class PriorityInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `gqprio`; the sum of the factors' points is the priority."""

    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    priority: int
    points: dict[str, int]
    """Factor → its points, in the order of the columns; ``nice`` is negative if it lowers the priority."""
    factors: dict[str, float] = {}
    """Factor → 0…1, before it is weighted."""
    array_tasks: str = ""
    """For an array's record: its pending tasks."""
    array_job_id: int | None = None
    array_task_id: int | None = None
