"""Apply the starts and ends of attempts to the usage of members.  Pure (see `gqd.control.apply.table`).

An attempt is billed from its start to its end, as the node dates them, at the rate that was fixed when it was
allocated, or when it last came to hold another number of GPUs.  The usage is that of the job's user in the job's
account; neither changes while an attempt is under way.
"""

from __future__ import annotations

from gq.model.account import MemberInfo
from gqd.state.cluster import Cluster
from gqd.state.index.queue import member_of
from gqd.state.records import Attempt, Job, Member


def bill_start(cluster: Cluster, job: Job, attempt: Attempt) -> None:
    """Start billing at the attempt's `start_at`."""
    assert attempt.start_at is not None, f"{attempt.attempt_id} has not started"
    _change_rate(cluster, job, attempt.start_at, attempt.billing)


def bill_end(cluster: Cluster, job: Job, attempt: Attempt) -> None:
    """Stop billing at the attempt's `end_at`; an attempt that never started is not billed."""
    assert attempt.end_at is not None, f"{attempt.attempt_id} has not ended"
    if attempt.start_at is not None:
        _change_rate(cluster, job, attempt.end_at, -attempt.billing)


def bill_change(cluster: Cluster, job: Job, at: float, by: int) -> None:
    """Bill `by` more (negative: less) from `at` on."""
    if by:
        _change_rate(cluster, job, at, by)


def _change_rate(cluster: Cluster, job: Job, at: float, by: int) -> None:
    place = member_of(job)
    member = cluster.members.get(place)
    if member is None:  # of a job from before there were accounts
        user, account = place
        member = cluster.members[place] = Member(MemberInfo(user=user, account=account, from_group=True))
        member.usage.at = at
        cluster.associations.add_member(user, account)
    member.usage.change_rate(at, by, cluster.half_life_s, cluster.half_lives)
    cluster.changes.members[place] = None
