"""Who had more than is due, and what that and the expected length make of the order."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gq.model.account import AccountInfo, MemberInfo
from gq.wire import client
from gqd.sched.priority.share_debt import bands
from tests.builders import ADAM, ALICE, BOB, CARL, SHARED, inventory, submit
from tests.hosts import CoreHost

HOUR = 3600.0
PEERS = {one.user: one for one in (ALICE, BOB, CARL)}


def cluster(accounts: Iterable[tuple[str, str, int]], users: Iterable[tuple[str, str, float]]) -> CoreHost:
    """Accounts: name, parent, shares.  Users: name, account, weighted GPU-hours that they used; each has a job."""
    host = CoreHost(SHARED, {"n1": inventory()})
    for name, parent, shares in accounts:
        host.ask(
            client.SetAccount(account=AccountInfo(name=name, parent=parent, shares=shares), is_new=True), peer=ADAM
        )
    for user, account, hours in users:
        member = MemberInfo(user=user, account=account, is_default=True)
        host.ask(client.SetMember(member=member, is_new=True), peer=ADAM)
        for one in (host.cluster, host.folded):
            one.members[user, account].usage.value = hours * HOUR
            one.changes.members[user, account] = None
        host.submit(submit(user, is_held=True), peer=PEERS[user])
    return host


def found(host: CoreHost) -> dict[str, int]:
    return {user: band for (user, _), band in bands(host.cluster, host.now).items()}


def test_accounts_are_compared_with_accounts_and_users_with_those_of_their_account() -> None:
    host = cluster(
        [("vision", "root", 1), ("speech", "root", 1)],
        [("alice", "vision", 10.0), ("bob", "vision", 2.0), ("carl", "speech", 3.0)],
    )
    assert found(host) == {"alice": 3, "bob": 2, "carl": 0}


def test_shares_say_what_is_due() -> None:
    host = cluster(
        [("vision", "root", 5), ("speech", "root", 1)],
        [("alice", "vision", 10.0), ("bob", "vision", 2.0), ("carl", "speech", 3.0)],
    )
    assert found(host) == {"alice": 1, "bob": 0, "carl": 2}


def test_who_is_below_an_account_that_had_more_than_is_due_comes_after_who_is_not() -> None:
    host = cluster(
        [("org", "root", 1), ("vision", "org", 1), ("speech", "root", 1)],
        [("alice", "vision", 10.0), ("carl", "speech", 3.0)],
    )
    assert found(host) == {"alice": 2, "carl": 0}


def test_only_those_count_that_have_jobs() -> None:
    host = cluster([("vision", "root", 1), ("speech", "root", 1)], [("alice", "vision", 10.0), ("carl", "speech", 3.0)])
    host.ask(client.CancelJobs(filter=client.JobFilter(users=("carl",))), peer=ADAM)
    assert found(host) == {"alice": 0}, "she is alone"
    assert bands(host.cluster, host.now, ("carl", "speech")) == {("alice", "vision"): 2, ("carl", "speech"): 0}


def test_where_nothing_was_used_nobody_had_more_than_is_due() -> None:
    host = cluster([("vision", "root", 1)], [("alice", "vision", 0.0), ("bob", "vision", 0.0)])
    assert found(host) == {"alice": 0, "bob": 0}


def test_who_had_no_more_than_is_due_goes_first_then_the_shortest_and_what_an_administrator_says_before_both() -> None:
    host = cluster([("vision", "root", 1), ("speech", "root", 1)], [("alice", "vision", 10.0), ("carl", "speech", 3.0)])
    for peer, minutes in ((ALICE, 1), (CARL, 600), (CARL, 10), (CARL, 60)):
        host.submit(submit(time_limit_s=60 * minutes, gpus=4), peer=peer)
    late = host.submit(submit(time_limit_s=6 * 3600, gpus=4), peer=ALICE)
    host.ask(client.UpdateJob(job_id=late, priority=100_000), peer=ADAM)
    snapshot = host.controller.snapshot(host.now)

    assert [one.job_id for one in snapshot.pending] == [late, 5, 6, 4, 3]
    assert snapshot.columns is not None
    slots = dict(zip(snapshot.columns.job_id.tolist(), snapshot.columns.band.tolist(), strict=True))
    assert slots[late] < slots[4] == slots[5] == slots[6] < slots[3]


@pytest.mark.parametrize(("seconds", "factor"), [(1, 1.0), (10, 1.0), (30 * 86400, 0.0), (60 * 86400, 0.0)])
def test_the_shortest_jobs_have_the_whole_factor_and_the_longest_nothing(seconds: int, factor: float) -> None:
    host = cluster([], [])
    host.submit(submit(time_limit_s=seconds), peer=ALICE)
    host.submit(submit(time_limit_s=3600), peer=ALICE)
    answer = host.ask(client.ListPriorities(), peer=ALICE)
    assert isinstance(answer, client.Priorities)
    factors = {one.job_id: one.factors["short"] for one in answer.jobs}
    assert factors[1] == pytest.approx(factor)
    assert 0.4 < factors[2] < 0.6
