"""Accounts, members, QOS and limits: what may be set and removed, by whom, and which of them a job gets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.account import BUILT_IN_QOS, AccountInfo, Holder, LimitAt, LimitInfo, MemberInfo, QosInfo
from gq.model.policy_tables import Accounting, Limits
from gq.model.state import JobState
from gq.wire import client
from gqd.sched.priority.fairshare import fair_tree
from gqd.state.input import Peer
from gqd.state.policy import Partition, Policy
from tests.builders import ADAM, ALICE, BOB, CARL, OLGA, SHARED, inventory, submit
from tests.hosts import CoreHost

ML = msgspec.structs.replace(ALICE, groups=("alice", "ml"))
"""alice, as a member of the Unix group ml."""


def cluster(policy: Any = SHARED, **accounts: Any) -> CoreHost:
    """Accounts by name, with their fields."""
    host = CoreHost(policy, {"n1": inventory(cpus=64, gpu_count=8)})
    for name, fields in accounts.items():
        add_account(host, name, **fields)
    return host


def add_account(host: CoreHost, name: str, **fields: Any) -> None:
    host.ask(client.SetAccount(account=AccountInfo(name=name, **fields), is_new=True), peer=ADAM)


def change_account(host: CoreHost, name: str, peer: Peer = ADAM, **fields: Any) -> None:
    host.ask(client.SetAccount(account=AccountInfo(name=name, **fields)), peer=peer)


def add_member(host: CoreHost, user: str, account: str, peer: Peer = ADAM, **fields: Any) -> None:
    host.ask(client.SetMember(member=MemberInfo(user=user, account=account, **fields), is_new=True), peer=peer)


def add_qos(host: CoreHost, name: str, **fields: Any) -> None:
    host.ask(client.SetQos(qos=QosInfo(name=name, **fields), is_new=name not in host.cluster.qos), peer=ADAM)


def refusal(host: CoreHost, body: client.RequestBody, peer: Peer = ADAM) -> Refusal:
    with pytest.raises(Refusal) as caught:
        host.ask(body, peer=peer)
    return caught.value


def account_of(host: CoreHost, peer: Peer = ALICE, **fields: Any) -> str:
    return host.job(host.submit(submit(**fields), peer=peer)).account


# ── which account ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_without_accounts_is_in_the_default_one_and_a_member_from_the_first_job_on() -> None:
    host = cluster()
    assert account_of(host) == "default"
    assert host.cluster.members["alice", "default"].info == MemberInfo(user="alice", account="default", from_group=True)
    assert host.job(1).qos == "normal"


def test_of_several_accounts_the_default_one_is_taken_else_the_first_by_name() -> None:
    host = cluster(vision={}, nlp={})
    assert account_of(host) == "default"
    add_member(host, "alice", "vision")
    add_member(host, "alice", "nlp")
    assert account_of(host) == "nlp"
    add_member(host, "bob", "nlp")
    host.ask(client.SetMember(member=MemberInfo(user="alice", account="vision", is_default=True)), peer=ADAM)
    assert account_of(host) == "vision"
    host.ask(client.SetMember(member=MemberInfo(user="alice", account="nlp", is_default=True)), peer=ADAM)
    assert account_of(host) == "nlp"
    assert not host.cluster.members["alice", "vision"].info.is_default
    assert account_of(host, account="vision") == "vision"


def test_an_account_comes_from_a_unix_group_as_long_as_the_user_is_in_it() -> None:
    host = cluster(team={"group": "ml"})
    assert account_of(host, ALICE) == "default"
    assert account_of(host, ML) == "team"
    assert host.cluster.members["alice", "team"].info.from_group
    assert account_of(host, ALICE) == "default"
    assert refusal(host, submit(account="team"), ALICE).code == "not_member"


def test_the_default_account_is_not_for_those_who_are_in_another() -> None:
    host = cluster(team={})
    account_of(host)
    add_member(host, "alice", "team")
    told = refusal(host, submit(account="default"), ALICE)
    assert told.message == "user alice is not in account `default`" and told.hint == "you may use `team`"
    add_member(host, "alice", "default")
    assert account_of(host, account="default") == "default"


def test_where_accounts_are_required_a_job_of_nobody_is_refused() -> None:
    host = cluster(msgspec.structs.replace(SHARED, accounting=Accounting(require=True)), team={})
    told = refusal(host, submit(), ALICE)
    assert told.code == "no_account" and "gqctl user add alice --account=NAME" in told.hint
    add_member(host, "alice", "team")
    assert account_of(host) == "team"


def test_an_account_that_is_not_there_is_named_with_the_nearest_and_nobody_is_in_the_root() -> None:
    host = cluster(vision={})
    told = refusal(host, submit(account="visoin"), ALICE)
    assert told.code == "unknown_account" and told.hint.startswith("did you mean `vision`?")
    assert refusal(host, submit(account="root"), ALICE).code == "not_member"
    assert (
        refusal(host, client.SetMember(member=MemberInfo(user="a", account="root"), is_new=True)).code == "bad_account"
    )


# ── QOS and partitions ────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_gets_the_qos_of_its_account_or_of_the_nearest_above() -> None:
    host = cluster(org={}, team={"parent": "org"})
    add_member(host, "alice", "team")
    add_qos(host, "batch")
    add_qos(host, "high", users=("bob",), accounts=("org",))
    change_account(host, "org", default_qos="batch")
    assert host.job(host.submit(submit(), peer=ALICE)).qos == "batch"
    assert host.job(host.submit(submit(qos="high"), peer=ALICE)).qos == "high"
    told = refusal(host, submit(qos="high"), CARL)
    assert told.code == "qos_access" and "users" not in told.message and "user bob; account org" in told.message
    assert refusal(host, submit(qos="hihg"), ALICE).hint.startswith("did you mean `high`?")


def test_the_longest_time_of_a_qos_is_refused_where_it_was_asked_for_and_filled_in_where_not() -> None:
    host = cluster()
    add_qos(host, "short", max_time_s=90)
    assert refusal(host, submit(qos="short", time_limit_s=120), ALICE).hint.startswith("ask for at most --time=1:30,")
    add_qos(host, "short", max_time_s=600)
    assert host.job(host.submit(submit(qos="short"), peer=ALICE)).time_limit_s == 600
    assert host.job(host.submit(submit(qos="short", time_limit_s=60), peer=ALICE)).time_limit_s == 60
    for asked in (601, 0):
        assert refusal(host, submit(qos="short", time_limit_s=asked), ALICE).code == "time_limit"


PARTITIONS = (
    Partition(name="main", is_default=True, max_nodes=1, default_cpus_per_gpu=4, default_mem_per_gpu_mib=1000),
    Partition(name="ml", users=("bob",), groups=("ml",), accounts=("org",)),
    Partition(name="fast", qos=("high",)),
)


@pytest.mark.parametrize(
    ("peer", "fields", "code"),
    [
        (ALICE, {"partition": "ml"}, "partition_access"),
        (ML, {"partition": "ml"}, ""),
        (BOB, {"partition": "ml"}, ""),
        (CARL, {"partition": "ml"}, ""),  # through the account above his
        (ALICE, {"partition": "fast"}, "partition_qos"),
        (ALICE, {"partition": "fast", "qos": "high"}, ""),
        (ALICE, {"nodes_min": 2}, "max_nodes"),
    ],
)
def test_a_partition_is_for_those_whom_one_of_its_lists_names(peer: Peer, fields: dict[str, Any], code: str) -> None:
    host = cluster(msgspec.structs.replace(SHARED, partitions=PARTITIONS), org={}, team={"parent": "org"})
    add_member(host, "carl", "team")
    add_qos(host, "high")
    if code:
        assert refusal(host, submit(**fields), peer).code == code
    else:
        host.submit(submit(**fields), peer=peer)


def test_jobs_with_gpus_get_the_partitions_cpus_and_memory_for_each_where_they_say_nothing() -> None:
    host = cluster(msgspec.structs.replace(SHARED, partitions=PARTITIONS))
    host.start(submit(gpus=2), peer=ALICE)
    host.start(submit(gpus=1, cpus_per_task=1, mem_per_node_mib=500), peer=ALICE)
    host.start(submit(), peer=ALICE)
    held = [(len(one.grants[0].cpus), one.grants[0].memory_mib) for one in host.cluster.attempts.values()]
    assert held == [(8, 2000), (1, 500), (1, 0)]


def test_a_list_that_changes_keeps_waiting_jobs_back_and_says_so() -> None:
    host = cluster(team={})
    add_member(host, "alice", "team")
    add_qos(host, "high")
    host.submit(submit(qos="high"), peer=ALICE)
    add_qos(host, "high", users=("bob",))
    host.schedule()
    assert host.job(1).state is JobState.PENDING
    assert "QOS `high` is no longer for user alice in account `team`" in host.explain(1).why
    add_qos(host, "high", accounts=("team",))
    host.schedule()
    assert host.job(1).state is JobState.STARTING


# ── moving jobs ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_job_moves_to_another_account_of_its_owner_and_a_running_one_does_not() -> None:
    host = cluster(a={}, b={}, c={})
    add_member(host, "alice", "a")
    add_member(host, "alice", "b")
    host.submit(submit(), peer=ALICE)
    host.ask(client.UpdateJob(job_id=1, account="b"), peer=ALICE)
    assert host.job(1).account == "b"
    assert refusal(host, client.UpdateJob(job_id=1, account="c"), ALICE).code == "not_member"
    host.schedule()
    assert refusal(host, client.UpdateJob(job_id=1, account="a"), ALICE).code == "job_started"
    host.submit(submit(), peer=BOB)
    host.ask(client.UpdateJob(job_id=2, account="c"), peer=OLGA)
    assert host.job(2).account == "c" and ("bob", "c") in host.cluster.members


def test_a_coordinator_moves_jobs_only_to_where_their_owners_may_go() -> None:
    host = cluster(mine={"coordinators": ("carl",)}, other={})
    add_member(host, "bob", "mine")
    host.submit(submit(), peer=BOB)
    assert refusal(host, client.UpdateJob(job_id=1, account="other"), CARL).code == "not_member"


# ── the tree ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_tree_of_accounts_has_no_cycle() -> None:
    host = cluster(a={}, b={"parent": "a"}, c={"parent": "b"})
    for parent in ("a", "b", "c"):
        told = refusal(host, client.SetAccount(account=AccountInfo(name="a", parent=parent)))
        assert told.code == "cycle" and f"`a` cannot be below `{parent}`" in told.message
    assert refusal(host, client.SetAccount(account=AccountInfo(name="root", parent="a"))).code == "bad_parent"
    assert (
        refusal(host, client.SetAccount(account=AccountInfo(name="d", parent="e"), is_new=True)).code
        == "unknown_account"
    )


def test_what_is_added_must_be_new_and_what_is_changed_must_be_there() -> None:
    host = cluster(a={})
    bodies: dict[str, client.RequestBody] = {
        "known_account": client.SetAccount(account=AccountInfo(name="a"), is_new=True),
        "unknown_account": client.SetAccount(account=AccountInfo(name="b")),
        "unknown_user": client.SetMember(member=MemberInfo(user="alice", account="a")),
        "known_qos": client.SetQos(qos=QosInfo(name="normal"), is_new=True),
        "unknown_qos": client.SetQos(qos=QosInfo(name="b")),
        "unknown_limit": client.RemoveLimit(holder="account", name="a", resource="gpus"),
    }
    for code, body in bodies.items():
        assert refusal(host, body).code == code
    add_member(host, "alice", "a")
    again = client.SetMember(member=MemberInfo(user="alice", account="a"), is_new=True)
    assert refusal(host, again).code == "known_user"


@pytest.mark.parametrize("name", ["", "-a", "a b", "a/b", "x" * 64, "ä", "a\n"])
def test_names_are_checked(name: str) -> None:
    host = cluster(a={})
    assert refusal(host, client.SetAccount(account=AccountInfo(name=name), is_new=True)).code == "bad_name"
    assert refusal(host, client.SetQos(qos=QosInfo(name=name), is_new=True)).code == "bad_name"
    if name not in ("x" * 64, "ä"):
        member = MemberInfo(user=name, account="a")
        assert refusal(host, client.SetMember(member=member, is_new=True)).code == "bad_name"


def test_guarantees_below_an_account_come_to_no_more_than_its_own() -> None:
    host = cluster(org={"guaranteed_gpus": 8}, div={"parent": "org"}, a={"parent": "div", "guaranteed_gpus": 6})
    told = refusal(host, client.SetAccount(account=AccountInfo(name="b", parent="div", guaranteed_gpus=3), is_new=True))
    assert told.message == "the accounts below `org` would be guaranteed 9 GPUs, and `org` itself is guaranteed 8"
    add_account(host, "b", parent="div", guaranteed_gpus=2)
    assert refusal(host, client.SetAccount(account=AccountInfo(name="org", guaranteed_gpus=7))).code == "guarantee"
    add_account(host, "free", guaranteed_gpus=100)
    moved = AccountInfo(name="free", parent="org", guaranteed_gpus=100)
    assert refusal(host, client.SetAccount(account=moved)).code == "guarantee"


# ── remove ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_removed_that_a_job_needs() -> None:
    host = cluster(org={}, team={"parent": "org"})
    add_qos(host, "high")
    add_member(host, "alice", "team")
    host.submit(submit(qos="high"), peer=ALICE)
    assert "accounts below it: team" in refusal(host, client.RemoveAccount(name="org")).message
    assert "1 job in the queue" in refusal(host, client.RemoveAccount(name="team")).message
    assert "jobs in account `team`: 1" in refusal(host, client.RemoveMember(user="alice", account="team")).message
    assert "1 job in the queue" in refusal(host, client.RemoveQos(name="high")).message
    host.schedule()
    host.obey()
    assert refusal(host, client.RemoveMember(user="alice", account="team")).code == "in_use"
    host.finish(1)
    assert "members: alice" in refusal(host, client.RemoveAccount(name="team")).message
    host.ask(client.RemoveQos(name="high"), peer=ADAM)
    host.ask(client.RemoveMember(user="alice", account="team"), peer=ADAM)
    host.ask(client.RemoveAccount(name="team"), peer=ADAM)
    host.ask(client.RemoveAccount(name="org"), peer=ADAM)
    assert not host.cluster.accounts and not host.cluster.qos


def test_who_is_removed_from_an_account_may_not_use_it_and_what_they_used_there_goes_on_counting() -> None:
    host = cluster(team={}, other={})
    add_member(host, "alice", "team", shares=5, is_default=True)
    add_member(host, "alice", "other")
    host.start(submit(gpus=4), peer=ALICE)
    host.finish(1, now=3600)
    usage = host.cluster.members["alice", "team"].usage.value_at(3600, None)
    host.ask(client.RemoveMember(user="alice", account="team"), peer=ADAM)
    kept = host.cluster.members["alice", "team"]
    assert kept.info == MemberInfo(user="alice", account="team", from_group=True)
    assert usage > 4 * 3000 and kept.usage.value_at(3600, None) == usage
    assert refusal(host, submit(account="team"), ALICE).code == "not_member"
    assert account_of(host) == "other"
    assert refusal(host, client.RemoveMember(user="alice", account="team")).code == "not_added"
    add_member(host, "alice", "team", shares=2)
    assert (kept.info.shares, kept.usage.value_at(3600, None)) == (2, usage)
    assert account_of(host, account="team") == "team"


def test_what_was_used_in_a_removed_account_goes_on_counting_for_those_above_it() -> None:
    host = cluster(org={}, team={"parent": "org"}, lab={"parent": "team"}, other={})
    add_member(host, "alice", "lab")
    add_member(host, "bob", "team", shares=3)
    for peer in (ALICE, BOB):
        job_id = host.start(submit(gpus=4), peer=peer)
        host.finish(job_id, now=host.now + 3600)
    before = fair_tree(host.cluster, host.now).accounts["org"].usage
    bobs = host.cluster.members["bob", "team"].usage.value_at(host.now, host.cluster.half_life_s)
    assert before > bobs > 4 * 3000
    host.ask(client.RemoveMember(user="alice", account="lab"), peer=ADAM)
    host.ask(client.RemoveAccount(name="lab"), peer=ADAM)
    assert ("alice", "lab") not in host.cluster.members
    assert host.cluster.members["alice", "team"].info == MemberInfo(user="alice", account="team", from_group=True)
    assert refusal(host, submit(account="team"), ALICE).code == "not_member"
    add_member(host, "alice", "team", shares=2)
    for user in ("alice", "bob"):
        host.ask(client.RemoveMember(user=user, account="team"), peer=ADAM)
    host.ask(client.RemoveAccount(name="team"), peer=ADAM)
    assert fair_tree(host.cluster, host.now).accounts["org"].usage == pytest.approx(before)
    usage = host.cluster.members["bob", "org"].usage
    assert usage.value_at(host.now, host.cluster.half_life_s) == pytest.approx(bobs)
    host.ask(client.RemoveAccount(name="org"), peer=ADAM)
    assert not host.cluster.members, "there is nobody above it to count for"


def test_what_names_an_account_or_a_qos_keeps_it_and_its_limits_go_with_it() -> None:
    host = cluster(team={})
    add_qos(host, "high", accounts=("team",))
    change_account(host, "team", default_qos="high")
    assert "QOS high names account `team`" in refusal(host, client.RemoveAccount(name="team")).message
    assert "default of account team" in refusal(host, client.RemoveQos(name="high")).message
    add_qos(host, "high")
    for holder, name in ((Holder.ACCOUNT, "team"), (Holder.QOS, "high")):
        for resource in ("gpus", "gpu_hours_per_day"):
            limit = LimitInfo(holder=holder, name=name, resource=resource, most=1)
            host.ask(client.SetLimit(limit=limit), peer=ADAM)
    host.ask(client.RemoveAccount(name="team"), peer=ADAM)
    host.ask(client.RemoveQos(name="high"), peer=ADAM)
    assert not host.cluster.limits and not host.cluster.budgets


@pytest.mark.parametrize(
    "body",
    [client.RemoveAccount(name="root"), client.RemoveAccount(name="default"), client.RemoveQos(name="normal")],
)
def test_what_is_always_there_cannot_be_removed(body: client.RequestBody) -> None:
    assert refusal(cluster(), body).code == "always_there"


def test_there_are_only_so_many_accounts_qos_and_limits() -> None:
    host = cluster(msgspec.structs.replace(SHARED, limits=Limits(accounts=2)), a={})
    add_qos(host, "high")
    for body in (
        client.SetAccount(account=AccountInfo(name="b"), is_new=True),
        client.SetQos(qos=QosInfo(name="b"), is_new=True),
        client.SetLimit(limit=LimitInfo(holder=Holder.USER, name="alice", resource="gpus", most=1)),
    ):
        assert refusal(host, body).code == "too_many_accounts"


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"resource": "gpu"}, "unknown_resource"),
        ({"resource": "gpus:"}, "unknown_resource"),
        ({"most": -1}, "bad_number"),
        ({"most": float("nan")}, "bad_number"),
        ({"most": float("inf")}, "bad_number"),
        ({"most": 1.5}, "bad_number"),
        ({"holder": Holder.ACCOUNT, "name": "nobody"}, "unknown_account"),
        ({"holder": Holder.QOS, "name": "nobody"}, "unknown_qos"),
        ({"name": "a b"}, "bad_name"),
        ({"per_user": True}, "bad_limit"),
        ({"holder": Holder.QOS, "name": "normal", "resource": "time", "per_user": True}, "bad_limit"),
        ({"resource": "running_jobs", "at": LimitAt.SUBMIT}, "bad_limit"),
    ],
)
def test_a_limit_that_means_nothing_is_refused(fields: dict[str, Any], code: str) -> None:
    limit: dict[str, Any] = {"holder": Holder.USER, "name": "alice", "resource": "gpus", "most": 1.0, **fields}
    assert refusal(cluster(), client.SetLimit(limit=LimitInfo(**limit))).code == code


def test_a_listing_shows_all_or_what_names_those_asked_for_and_what_is_used() -> None:
    host = cluster(a={}, b={})
    add_member(host, "alice", "a")
    add_member(host, "bob", "b")
    for limit in (
        LimitInfo(holder=Holder.ACCOUNT, name="a", resource="gpus", most=8),
        LimitInfo(holder=Holder.ACCOUNT, name="root", resource="gpus", most=4, per_user=True, at=LimitAt.SUBMIT),
        LimitInfo(holder=Holder.USER, name="bob", resource="pending_jobs", most=5),
    ):
        host.ask(client.SetLimit(limit=limit), peer=ADAM)
    host.start(submit(gpus=2), peer=ALICE)
    host.submit(submit(gpus=1), peer=ALICE)
    host.submit(submit(gpus=1), peer=BOB)
    answer = host.ask(client.ListAccounts(), peer=BOB)
    assert isinstance(answer, client.Accounts)
    assert [one.name for one in answer.accounts] == ["root", "default", "a", "b"]
    assert [one.name for one in answer.qos] == ["high", "normal", "scavenger"]
    assert [(one.resource, one.used) for one in answer.limits] == [("gpus", 2), ("gpus", 3), ("pending_jobs", 1)]
    answer = host.ask(client.ListAccounts(users=("bob",)), peer=BOB)
    assert isinstance(answer, client.Accounts)
    assert [one.name for one in answer.accounts] == ["b"] and [one.user for one in answer.members] == ["bob"]
    assert [one.resource for one in answer.limits] == ["pending_jobs"] and not answer.qos


def many(policy: Policy = SHARED) -> CoreHost:
    """Three levels of accounts, members, QOS and limits: 13 lines."""
    host = cluster(policy, org={}, z={}, below={"parent": "org"})
    for user, account in (("bob", "z"), ("alice", "below"), ("alice", "org")):
        add_member(host, user, account)
    add_qos(host, "high")
    for holder, name in ((Holder.USER, "bob"), (Holder.ACCOUNT, "org"), (Holder.QOS, "high")):
        limit = LimitInfo(holder=holder, name=name, resource="gpus", most=8)
        host.ask(client.SetLimit(limit=limit), peer=ADAM)
    return host


def listed(host: CoreHost, **wanted: Any) -> client.Accounts:
    answer = host.ask(client.ListAccounts(**wanted), peer=BOB)
    assert isinstance(answer, client.Accounts)
    return answer


def lines(answer: client.Accounts) -> list[msgspec.Struct]:
    return [*answer.accounts, *answer.members, *answer.qos, *answer.limits]


@pytest.mark.parametrize("limit", [1, 2, 5, 12, 13, 2000])
@pytest.mark.parametrize("wanted", [{}, {"users": ("alice",), "qos": ("high",)}])
def test_the_pages_of_a_listing_come_to_what_is_answered_to_who_asks_for_no_pages(limit: int, wanted: Any) -> None:
    host = many()
    whole = listed(host, **wanted)
    assert not whole.more and len(lines(whole)) == (6 if wanted else 14)
    pages = [listed(host, limit=limit, **wanted)]
    while pages[-1].more:
        assert len(lines(pages[-1])) == limit
        pages.append(listed(host, limit=limit, after=pages[-1].last, **wanted))
    assert 0 < len(lines(pages[-1])) <= limit
    assert [one for page in pages for one in lines(page)] == lines(whole)
    assert [one for page in pages for one in page.past] == list(whole.past)
    assert whole.defaults == {user: account for page in pages for user, account in page.defaults.items()}


def test_a_listing_goes_on_where_it_was_though_that_line_is_gone() -> None:
    host = many()
    first = listed(host, limit=6)
    assert [one.user for one in first.members] == ["alice"] and first.more
    [gone] = first.members
    host.ask(client.RemoveMember(user=gone.user, account=gone.account), peer=ADAM)
    rest = listed(host, limit=2000, after=first.last)
    assert [(one.user, one.account) for one in rest.members] == [("alice", "org"), ("bob", "z")]
    assert lines(first)[:-1] + lines(rest) == lines(listed(host))


def test_a_page_of_a_listing_is_never_longer_than_pages_are() -> None:
    host = many(msgspec.structs.replace(SHARED, limits=Limits(page=4)))
    assert len(lines(listed(host, limit=10**9))) == 4
    assert len(lines(listed(host, limit=-1))) == 1


def test_a_listing_begins_with_accounts_those_above_first() -> None:
    host = many()
    change_account(host, "org", parent="z")
    assert [one.name for one in listed(host).accounts] == ["root", "default", "z", "org", "below"]


# ── coordinators ──────────────────────────────────────────────────────────────────────────────────────────────


def coordinated() -> CoreHost:
    """carl coordinates `team`, below which is `sub`; `other` is not one of his."""
    host = cluster(team={"coordinators": ("carl",)}, sub={"parent": "team"}, other={})
    add_member(host, "alice", "sub")
    add_member(host, "bob", "other")
    return host


def test_a_listing_says_where_jobs_go_that_name_no_account_and_what_users_may_not_use_any_more() -> None:
    host = cluster(a={}, b={}, ml={"group": "ml"}, old={"group": "ml"})
    seen = {account_of(host, ML, account="ml"), account_of(host, ALICE), account_of(host, BOB)}
    assert seen == {"ml", "default"}

    def listed(**wanted: Any) -> tuple[dict[str, str], set[tuple[str, str]]]:
        answer = host.ask(client.ListAccounts(**wanted), peer=ADAM)
        assert isinstance(answer, client.Accounts)
        return answer.defaults, set(answer.past)

    assert listed() == ({"alice": "ml", "bob": "default"}, {("alice", "default")})
    add_member(host, "alice", "b")
    add_member(host, "bob", "b")
    assert listed() == ({"alice": "b", "bob": "b"}, {("alice", "default"), ("bob", "default")})
    assert account_of(host, ML) == "b"
    add_member(host, "alice", "a", is_default=True)
    assert listed(users=("alice",)) == ({"alice": "a"}, {("alice", "default")})
    assert account_of(host, ML) == "a"
    change_account(host, "ml")
    add_member(host, "bob", "default")
    assert listed() == ({"alice": "a", "bob": "b"}, {("alice", "default"), ("alice", "ml")})


def test_a_coordinator_deals_out_what_is_below_and_nothing_else() -> None:
    host = coordinated()
    add_member(host, "dave", "team", peer=CARL)
    host.ask(client.SetAccount(account=AccountInfo(name="new", parent="sub", shares=3), is_new=True), peer=CARL)
    host.ask(client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="new", resource="gpus", most=1)), peer=CARL)
    not_his: list[client.RequestBody] = [
        client.SetAccount(account=AccountInfo(name="team", coordinators=("carl",), shares=99)),
        client.SetAccount(account=AccountInfo(name="sub", parent="other")),
        client.SetAccount(account=AccountInfo(name="other", parent="team")),
        client.SetAccount(account=AccountInfo(name="mine"), is_new=True),
        client.SetMember(member=MemberInfo(user="carl", account="other"), is_new=True),
        client.RemoveMember(user="bob", account="other"),
        client.RemoveAccount(name="team"),
        client.RemoveAccount(name="nowhere"),
        client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="team", resource="gpus", most=99)),
        client.SetLimit(limit=LimitInfo(holder=Holder.USER, name="alice", resource="gpus", most=99)),
        client.SetLimit(limit=LimitInfo(holder=Holder.QOS, name="normal", resource="gpus", most=99)),
        client.RemoveLimit(holder="nonsense", name="team", resource="gpus"),
        client.SetAccount(account=AccountInfo(name="default", parent="team")),
    ]
    for body in not_his:
        assert refusal(host, body, CARL).code == "not_coordinator", body
    for body in (
        client.SetAccount(account=AccountInfo(name="sub", parent="team", guaranteed_gpus=4)),
        client.SetAccount(account=AccountInfo(name="sub", parent="team", group="everybody")),
    ):
        assert refusal(host, body, CARL).code == "not_operator", body
    change_account(host, "team", coordinators=("carl",), guaranteed_gpus=4)
    change_account(host, "sub", CARL, parent="team", guaranteed_gpus=4)


def test_a_coordinator_does_not_take_away_the_default_account_of_others_users() -> None:
    host = coordinated()
    host.ask(client.SetMember(member=MemberInfo(user="bob", account="other", is_default=True)), peer=ADAM)
    taken = client.SetMember(member=MemberInfo(user="bob", account="sub", is_default=True), is_new=True)
    assert refusal(host, taken, CARL).code == "not_coordinator"
    add_member(host, "bob", "sub", peer=CARL)
    assert account_of(host, BOB) == "other"


def test_a_coordinator_steers_the_jobs_below_and_reads_neither_scripts_nor_output() -> None:
    host = coordinated()
    host.submit(submit(), peer=ALICE)
    host.submit(submit(), peer=BOB)
    host.ask(client.HoldJobs(job_ids=(1,)), peer=CARL)
    host.ask(client.UpdateJob(job_id=1, name="other"), peer=CARL)
    host.ask(client.ReleaseJobs(job_ids=(1,)), peer=CARL)
    refused = host.ask(client.HoldJobs(job_ids=(2,)), peer=CARL)
    assert isinstance(refused, client.JobsDone) and refused.refused == ((2, "it belongs to bob"),)
    assert refusal(host, client.UpdateJob(job_id=2, name="other"), CARL).code == "not_owner"
    for body in (client.GetScript(job_id=1), client.AccessLog(job_id=1), client.GetJobEnvironment(job_id=1)):
        assert refusal(host, body, CARL).code == "not_owner"
    assert refusal(host, client.UpdateJob(job_id=1, priority=5), CARL).code == "set_priority"
    done = host.ask(client.CancelJobs(filter=client.JobFilter(accounts=("sub", "other"))), peer=CARL)
    assert isinstance(done, client.JobsDone) and done.job_ids == (1,)
    change_account(host, "team")
    host.submit(submit(), peer=ALICE)
    refused = host.ask(client.HoldJobs(job_ids=(3,)), peer=CARL)
    assert isinstance(refused, client.JobsDone) and not refused.job_ids


# ── the audit trail ───────────────────────────────────────────────────────────────────────────────────────────


def test_every_change_is_noted_with_what_was_said() -> None:
    host = cluster(team={"guaranteed_gpus": 8, "coordinators": ("carl",)})
    add_member(host, "alice", "team", shares=3)
    host.ask(
        client.SetLimit(limit=LimitInfo(holder=Holder.ACCOUNT, name="team", resource="gpus", most=8, per_user=True)),
        peer=ADAM,
    )
    host.ask(client.RemoveLimit(holder="account", name="team", resource="gpus", per_user=True), peer=ADAM)
    add_qos(host, "high", priority=10)
    lines = [(one.action, one.object, one.outcome, one.detail) for one in host.trail]
    assert lines == [
        ("SetAccount", "account team", "done", "new, guaranteed_gpus=8, coordinators=carl"),
        ("SetMember", "user alice in account team", "done", "new, shares=3"),
        ("SetLimit", "limit gpus of each user of account team", "done", "8 at start"),
        ("RemoveLimit", "limit gpus of each user of account team", "done", ""),
        ("SetQos", "qos high", "done", "new, priority=10"),
    ]


# ── QOS that are always there ─────────────────────────────────────────────────────────────────────────────────


def test_one_that_is_always_there_is_added_changed_and_comes_back_when_it_is_removed() -> None:
    host = cluster()
    assert refusal(host, client.RemoveQos(name="scavenger")).code == "always_there"
    host.ask(client.SetQos(qos=QosInfo(name="high", priority=7), is_new=True), peer=ADAM)
    host.ask(client.SetQos(qos=QosInfo(name="scavenger", min_run_s=60)), peer=ADAM)
    assert refusal(host, client.SetQos(qos=QosInfo(name="high"), is_new=True)).code == "known_qos"
    for name in ("high", "scavenger"):
        answer = host.ask(client.RemoveQos(name=name), peer=ADAM)
        assert answer == client.Done(text=f"QOS {name} has its initial settings again")
    listed = host.ask(client.ListAccounts(), peer=ADAM)
    assert isinstance(listed, client.Accounts)
    assert {one.name: one for one in listed.qos} == BUILT_IN_QOS


def test_nobody_but_root_may_have_what_goes_first_until_an_administrator_says_who() -> None:
    host = cluster()
    assert refusal(host, submit(qos="high"), ALICE).code == "qos_access"
    changed = msgspec.structs.replace(BUILT_IN_QOS["high"], users=("root", "alice"))
    host.ask(client.SetQos(qos=changed), peer=ADAM)
    assert host.job(host.submit(submit(qos="high"), peer=ALICE)).qos == "high"
    assert host.job(host.submit(submit(qos="scavenger"), peer=ALICE)).qos == "scavenger"


@pytest.mark.parametrize(
    ("qos", "code"),
    [
        (QosInfo(name="new", preempts=("nothing",)), "unknown_qos"),
        (QosInfo(name="new", preempts=("new",)), "bad_preemption"),
        (QosInfo(name="scavenger", preempts=("high",)), "bad_preemption"),
        (QosInfo(name="new", min_run_s=2**31 + 1), "bad_number"),
    ],
)
def test_who_gives_way_never_comes_to_take_it_back(qos: QosInfo, code: str) -> None:
    host = cluster()
    assert refusal(host, client.SetQos(qos=qos, is_new=qos.name == "new")).code == code


def test_what_others_preempt_stays() -> None:
    host = cluster()
    add_qos(host, "low")
    add_qos(host, "urgent", preempts=("low",))
    assert "preempted by urgent" in refusal(host, client.RemoveQos(name="low")).message
