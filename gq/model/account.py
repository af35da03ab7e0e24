"""Who pays and who may how much: accounts in a tree, their members, QOS and limits, as they are kept and shown.

An account is a team (or a group of teams); its parent is another account or the `ROOT` of the tree.  A member is a
user in an account, what Slurm calls an association.  A QOS is a class of service that a job asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from gq.model.resource import Count

ROOT = "root"
"""The account at the top of the tree; always there, and nobody's jobs are in it."""
DEFAULT_ACCOUNT = "default"
"""Of users who are in no other; always there."""
NORMAL_QOS = "normal"
"""Of jobs that ask for none; always there."""


class AccountInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    parent: str = ROOT
    description: str = ""
    shares: Count = 1
    """Of what its parent has, in proportion to its siblings' (accounts and members alike)."""
    guaranteed_gpus: Count | None = None
    """GPUs that its jobs get before those of others who borrow; None: none are set aside."""
    borrow_gpus: Count | None = None
    """GPUs that it may hold beyond the guaranteed ones; None: as many as are idle."""
    group: str = ""
    """A Unix group whose members are in the account without being added."""
    coordinators: tuple[str, ...] = ()
    """Users who may add members and limits below it, and steer its jobs."""
    default_qos: str = ""
    """Of its jobs that ask for none; empty: its parent's."""


class MemberInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    user: str
    account: str
    shares: Count = 1
    is_default: bool = False
    """Of the user's accounts the one that jobs go to which name none."""
    from_group: bool = False
    """Not added by hand: in it through the account's Unix group, or there only for what was used in it."""


class PreemptMode(StrEnum):
    """How a job gives way to one that may preempt it."""

    OFF = "off"
    """It does not."""
    REQUEUE = "requeue"
    """It waits again, as old as it is, if it may be queued again; else it is cancelled."""
    CANCEL = "cancel"
    SUSPEND = "suspend"
    """It stands still where it is, and lends its GPUs and CPUs to the other one; where that cannot be, as REQUEUE."""


class QosInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    description: str = ""
    priority: Count = 0
    """The highest there is counts as 1 in the priority's QOS factor."""
    usage_factor: float = 1.0
    """What its jobs use is billed so many times."""
    max_time_s: Count | None = None
    users: tuple[str, ...] = ()
    """Who may ask for it; users, groups and accounts empty: everybody."""
    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    """And the accounts below them."""
    preempts: tuple[str, ...] = ()
    """QOS whose jobs give way to its jobs."""
    preempt_mode: PreemptMode = PreemptMode.REQUEUE
    """How its own jobs give way."""
    min_run_s: Count = 0
    """They have run so long before they do."""
    borrows_reserved: bool = False
    """They may start on what a reservation keeps and nobody uses, and go when it is wanted."""


BUILT_IN_QOS = {
    one.name: one
    for one in (
        QosInfo(name="scavenger", description="takes what is idle, and gives way", borrows_reserved=True),
        QosInfo(name=NORMAL_QOS, preempts=("scavenger",)),
        QosInfo(name="high", description="goes first", priority=100, users=("root",), preempts=("scavenger", "normal")),
    )
}
"""Always there, as long as nobody has changed them."""


def with_built_in(own: Mapping[str, QosInfo]) -> dict[str, QosInfo]:
    """All that there are, by name; `own`: those that were added or changed."""
    return {**BUILT_IN_QOS, **own}


class Holder(StrEnum):
    """Whose limit."""

    USER = "user"
    ACCOUNT = "account"
    """With everything below it in the tree."""
    QOS = "qos"


class LimitAt(StrEnum):
    """Where a limit binds."""

    SUBMIT = "submit"
    """What is pending counts, too, and a job over it is refused."""
    START = "start"
    """What runs counts, and a job over it waits."""


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """At most so much of a resource.  ``resource``: one of `LIMITED`, or ``gpus:TYPE``."""

    holder: Holder
    name: str
    resource: str
    most: float
    """GPUs, CPUs, jobs; MiB of ``memory``; seconds of ``time``; GPU-hours of the budgets."""
    per_user: bool = False
    """Each user of the account or the QOS, not all of them together."""
    at: LimitAt = LimitAt.START
    used: float | None = None
    """Now, by what counts at that point; only in answers.  With ``per_user``: by whoever uses the most."""


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
"""What can be limited, and what it is called in sentences."""
BUDGETS = {"gpu_hours_per_day": "day", "gpu_hours_per_week": "week", "gpu_hours_per_month": "month"}
"""Limits of what is used up in a day, a week (from Monday on) or a month."""
AT_SUBMIT_ONLY = frozenset({"pending_jobs", "gpus_per_job", "nodes_per_job", "time"})
"""Limits that say what may be queued at all."""
AT_START_ONLY = frozenset({"running_jobs"})


class ShareInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `gqshare`: an account, or a user in one.  The tree in order, parents first."""

    account: str
    user: str = ""
    """Empty: the line is the account's."""
    depth: Count = 0
    shares: Count = 1
    norm_shares: float = 0.0
    """Of the whole cluster: 0…1."""
    usage: float = 0.0
    """Decayed, in weighted GPU-seconds."""
    norm_usage: float = 0.0
    """Of all that was used: 0…1."""
    level_fs: float | None = None
    """Shares against usage among its siblings; below 1: more was used than is due.  None: nothing was used yet."""
    fair_share: float | None = None
    """Of a user: 0…1, the factor of the priority."""
    gpus: Count = 0
    """Held now."""
    guaranteed_gpus: Count | None = None
    borrowed_gpus: Count = 0
    may_borrow_gpus: Count | None = None
    """So many more; None: as many as are idle."""
    gives_back: Count | None = None
    """1: the first who would have to give GPUs back if an owner came; None: it has borrowed none."""


class PriorityInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `gqprio`: the points of each factor add up to the priority."""

    job_id: int
    user: str
    account: str
    partition: str
    qos: str
    priority: int
    points: dict[str, int]
    """Factor → its share of the priority, in the order of the columns; ``nice`` is negative where it takes away."""
    factors: dict[str, float] = {}
    """Factor → 0…1, before it is weighed."""
    array_tasks: str = ""
    """Of an array record: those that wait."""
    array_job_id: int | None = None
    array_task_id: int | None = None
