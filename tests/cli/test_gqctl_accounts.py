"""`gqctl account`, `user`, `qos`, `limit`, `config`: what is asked, what is shown, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from gq.connection.locate import Location
from gq.model.account import AccountInfo, Holder, LimitAt, LimitInfo, MemberInfo, PreemptMode, QosInfo
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import ScriptedController

RESEARCH = AccountInfo(name="research")
NLP = AccountInfo(
    name="nlp", parent="research", shares=2, guaranteed_gpus=8, borrow_gpus=4, group="nlp", coordinators=("anna",),
    default_qos="high", description="language",
)  # fmt: skip
ALICE = MemberInfo(user="alice", account="nlp", is_default=True)
BOB = MemberInfo(user="bob", account="nlp", shares=3, from_group=True)
HIGH = QosInfo(name="high", priority=100, usage_factor=2, max_time_s=86400, accounts=("nlp",))
NORMAL = QosInfo(name="normal", preempts=("scavenger",), min_run_s=600)
GPUS = LimitInfo(holder=Holder.USER, name="alice", resource="gpus", most=4, used=3)
HOURS = LimitInfo(
    holder=Holder.ACCOUNT, name="nlp", resource="gpu_hours_per_month", most=2000, per_user=True, at=LimitAt.SUBMIT,
    used=12.3456,
)  # fmt: skip
MEMORY = LimitInfo(holder=Holder.QOS, name="high", resource="memory", most=512 * 1024)
EVERYTHING = wire.Accounts(
    accounts=(RESEARCH, NLP), members=(ALICE, BOB), qos=(NORMAL, HIGH), limits=(GPUS, HOURS, MEMORY)
)


# ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_account_is_added_with_all_that_its_options_say(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetAccount, wire.Done())

    done = run(
        "gqctl", "account", "add", "nlp", "--parent=research", "--shares=2", "--guarantee", "8", "--borrow", "4",
        "--group=nlp", "--coordinator", "anna", "--default-qos=high", "--description=language",
    )  # fmt: skip

    assert done == (0, "", "")
    assert controller.heard == [wire.SetAccount(account=NLP, is_new=True)]


def test_what_is_not_named_stays_as_it_is(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)
    controller.on(wire.SetAccount, wire.Done())

    assert run("gqctl", "account", "set", "nlp", "--guarantee=none", "--borrow=idle", "--coordinator=").status == 0

    changed = AccountInfo(
        name="nlp", parent="research", shares=2, group="nlp", default_qos="high", description="language"
    )
    assert controller.the(wire.SetAccount) == wire.SetAccount(account=changed)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["set", "nlp"], 2, "no change given"),
        (["set", "speech", "--shares=1"], 1, "account `speech` does not exist"),
        (["add"], 2, "NAME is missing"),
        (["add", "nlp", "shares=2"], 2, "unexpected argument `shares=2`"),
        (["add", "nlp", "--shares=x"], 2, "`--shares`: `x` is not a whole number"),
        (["add", "nlp", "--guarantee=many"], 2, "`--guarantee`: `many` is not a whole number"),
        (["show", "speech"], 1, "account `speech` does not exist"),
    ],
)
def test_a_wrong_word_about_an_account_changes_nothing(
    run: Run, controller: ScriptedController, words: list[str], status: int, message: str
) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    done = run("gqctl", "account", *words)

    assert (done.status, controller.all(wire.SetAccount)) == (status, [])
    assert done.err.startswith(f"error: {message}")


def test_accounts_are_shown_as_a_table_and_as_json(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    assert run("gqctl", "account", "show").lines == [
        "ACCOUNT  PARENT   SHARES GUARANTEED BORROWS GROUP QOS  COORDINATORS DESCRIPTION",
        "research root          1          -    idle -     -    -",
        "nlp      research      2          8       4 nlp   high anna         language",
    ]
    [nlp] = json.loads(run("gqctl", "account", "show", "nlp", "--json").out)
    assert (nlp["account"], nlp["guaranteed_gpus"], nlp["coordinators"]) == ("nlp", 8, ["anna"])


def test_accounts_are_removed_one_by_one(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.RemoveAccount, wire.Done())

    assert run("gqctl", "account", "remove", "nlp,research").status == 0
    assert controller.heard == [wire.RemoveAccount(name="nlp"), wire.RemoveAccount(name="research")]


# ── users ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_users_are_added_changed_and_taken_out(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)
    controller.on(wire.SetMember, wire.Done())
    controller.on(wire.RemoveMember, wire.Done())

    assert run("gqctl", "user", "add", "carol", "dave", "--account=nlp", "--shares=2", "--default").status == 0
    assert run("gqctl", "user", "set", "bob", "-A", "nlp", "--default").status == 0
    assert run("gqctl", "user", "remove", "bob", "--account", "nlp").status == 0

    assert controller.all(wire.SetMember) == [
        *(
            wire.SetMember(member=MemberInfo(user=user, account="nlp", shares=2, is_default=True), is_new=True)
            for user in ("carol", "dave")
        ),
        wire.SetMember(member=MemberInfo(user="bob", account="nlp", shares=3, from_group=True, is_default=True)),
    ]
    assert controller.the(wire.RemoveMember) == wire.RemoveMember(user="bob", account="nlp")


STRANGER = "warning: user `no-such-user` does not exist on this host: check the name\n"


def test_of_a_user_that_this_host_does_not_know_it_warns_and_goes_on(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetMember, wire.Done())
    controller.on(wire.SetLimit, wire.Done())

    assert run("gqctl", "user", "add", "root", "no-such-user", "-A", "nlp") == (0, "", STRANGER)
    assert run("gqctl", "limit", "set", "-u", "root,no-such-user", "gpus=4", "cpus=8") == (0, "", STRANGER)
    assert run("gqctl", "limit", "set", "-A", "no-such-user", "gpus=4") == (0, "", "")
    assert len(controller.heard) == 2 + 4 + 1


def test_of_a_user_who_was_refused_it_does_not_warn(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetMember, wire.Refused(code="unknown_account", message="account `nlp` does not exist"))

    done = run("gqctl", "user", "add", "no-such-user", "-A", "nlp")

    assert done == (1, "", "error: account `nlp` does not exist\n")


def test_users_are_shown_with_their_accounts(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    assert run("gqctl", "user", "show", "-A", "nlp").lines == [
        "USER  ACCOUNT SHARES DEFAULT FROM",
        "alice nlp          1 yes     hand",
        "bob   nlp          3 no      group",
    ]
    assert [one["user"] for one in json.loads(run("gqctl", "user", "show", "bob", "--json").out)] == ["bob"]
    assert run("gqctl", "user", "show", "eve").err.startswith("error: user `eve` does not exist")


def test_who_is_shown_only_for_their_jobs_is_not_said_to_be_of_a_group(
    run: Run, controller: ScriptedController
) -> None:
    member = MemberInfo(user="bob", account="research", from_group=True)
    controller.on(wire.ListAccounts, wire.Accounts(accounts=EVERYTHING.accounts, members=(member,)))

    assert run("gqctl", "user", "show").lines[1:] == ["bob  research      1 no      jobs"]


def test_accounts_are_shown_that_users_may_use_and_which_of_them_their_jobs_go_to(
    run: Run, controller: ScriptedController
) -> None:
    """The first is the default one where none was named; what somebody merely had jobs in is not theirs."""
    had = MemberInfo(user="bob", account="default", from_group=True)
    answer = wire.Accounts(
        accounts=EVERYTHING.accounts,
        members=(ALICE, BOB, had),
        defaults={"alice": "nlp", "bob": "nlp"},
        past=(("bob", "default"),),
    )
    controller.on(wire.ListAccounts, answer)
    controller.on(wire.SetMember, wire.Done())

    assert run("gqctl", "user", "show").lines[1:] == [
        "alice nlp          1 yes     hand",
        "bob   nlp          3 yes     group",
    ]
    shown = json.loads(run("gqctl", "user", "show", "bob", "--json").out)
    assert [(one["account"], one["is_default"]) for one in shown] == [("nlp", True)]
    run("gqctl", "user", "set", "bob", "--account=nlp", "--shares=5")
    assert not controller.the(wire.SetMember).member.is_default, "being the first is not being named"


def test_an_account_is_needed_and_a_stranger_to_it_cannot_be_changed(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    assert run("gqctl", "user", "add", "carol").err.startswith("error: no account given")
    assert run("gqctl", "user", "set", "eve", "-A", "nlp", "--shares=2").err == (
        "error: user `eve` is not in account `nlp`\nhint: add the user with `gqctl user add eve --account=nlp`\n"
    )


# ── QOS ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_qos_is_added_and_changed(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)
    controller.on(wire.SetQos, wire.Done())
    controller.on(wire.RemoveQos, wire.Done())

    giving = ("--preempts", "scavenger,normal", "--preempt-mode=cancel", "--min-run=10m", "--borrows-reserved=yes")
    words = ("--priority", "100", "--usage-factor", "2", "--max-time", "1d", "--accounts", "nlp")
    assert run("gqctl", "qos", "add", "high", *words, *giving).status == 0
    assert (
        run(
            "gqctl", "qos", "set", "high", "--max-time=unlimited", "--accounts=", "--users=ada,bob", "--preempts="
        ).status
        == 0
    )
    assert run("gqctl", "qos", "remove", "high").status == 0

    added = msgspec.structs.replace(
        HIGH, preempts=("scavenger", "normal"), preempt_mode=PreemptMode.CANCEL, min_run_s=600, borrows_reserved=True
    )
    changed = QosInfo(name="high", priority=100, usage_factor=2, users=("ada", "bob"))
    assert controller.all(wire.SetQos) == [wire.SetQos(qos=added, is_new=True), wire.SetQos(qos=changed)]
    assert controller.the(wire.RemoveQos).name == "high"


def test_classes_of_service_are_shown_with_who_may_have_them(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    assert run("gqctl", "qos", "show").lines == [
        "QOS    PRIORITY USAGE FACTOR   MAX TIME PREEMPTS  WHEN PREEMPTED      BORROWS WHO          DESCRIPTION",
        "normal        0            1  unlimited scavenger requeue after 10:00 -       all",
        "high        100            2 1-00:00:00 -         requeue             -       accounts nlp",
    ]
    [high] = json.loads(run("gqctl", "qos", "show", "high", "--json").out)
    [normal] = json.loads(run("gqctl", "qos", "show", "normal", "--json").out)
    assert (normal["preempts"], normal["preempt_mode"], normal["min_run_s"]) == (["scavenger"], "requeue", 600)
    assert (high["qos"], high["usage_factor"], high["max_time_s"], high["accounts"]) == ("high", 2.0, 86400, ["nlp"])


@pytest.mark.parametrize("factor", ["x", "-1", "nan", "inf"])
def test_a_usage_factor_is_a_number_that_is_not_negative(run: Run, controller: ScriptedController, factor: str) -> None:
    done = run("gqctl", "qos", "add", "high", f"--usage-factor={factor}")

    assert (done.status, controller.heard) == (2, [])
    assert done.err.startswith(f"error: `--usage-factor`: `{factor}` is not a factor")


# ── limits ────────────────────────────────────────────────────────────────────────────────────────────────────


def limits_set(controller: ScriptedController) -> list[LimitInfo]:
    return [request.limit for request in controller.all(wire.SetLimit)]


def test_limits_are_set_for_all_who_are_named(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.SetLimit, wire.Done())

    assert run("gqctl", "limit", "set", "--user", "alice,bob", "gpus=4").status == 0
    words = ("gpus:A100=8", "gpu_hours_per_month=2000", "--per-user", "--at=submit")
    assert run("gqctl", "limit", "set", "--account=nlp", *words).status == 0

    nlp = {"holder": Holder.ACCOUNT, "name": "nlp", "per_user": True, "at": LimitAt.SUBMIT}
    assert limits_set(controller) == [
        LimitInfo(holder=Holder.USER, name="alice", resource="gpus", most=4),
        LimitInfo(holder=Holder.USER, name="bob", resource="gpus", most=4),
        LimitInfo(resource="gpus:a100", most=8, **nlp),
        LimitInfo(resource="gpu_hours_per_month", most=2000, **nlp),
    ]


@pytest.mark.parametrize(
    ("word", "most", "at"),
    [
        ("memory=512G", 524288, LimitAt.START),
        ("time=2d", 172800, LimitAt.SUBMIT),
        ("running-jobs=10", 10, LimitAt.START),
        ("pending_jobs=1000", 1000, LimitAt.SUBMIT),
        ("gpu_hours_per_day=0.5", 0.5, LimitAt.START),
        ("gpus=0", 0, LimitAt.START),
    ],
)
def test_an_amount_has_the_unit_of_its_resource_and_binds_where_it_can(
    run: Run, controller: ScriptedController, word: str, most: float, at: LimitAt
) -> None:
    controller.on(wire.SetLimit, wire.Done())

    run("gqctl", "limit", "set", "--qos=high", word)

    [limit] = limits_set(controller)
    assert (limit.most, limit.at, limit.holder) == (most, at, Holder.QOS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["set", "gpus=4"], "no user, account or QOS given"),
        (["set", "-u", "ada"], "RESOURCE=MOST is missing"),
        (["set", "-u", "ada", "gpus"], "`gpus` is not RESOURCE=MAXIMUM"),
        (["set", "-u", "ada", "gpu=4"], "`gpu` is not a resource that can be limited"),
        (["set", "-u", "ada", "gpus:=4"], "`gpus:` is not a resource that can be limited"),
        (["set", "-u", "ada", "gpus=-1"], "-1 is too small"),
        (["set", "-u", "ada", "gpus=1.5"], "`1.5` is not a whole number"),
        (["set", "-u", "ada", "time=unlimited"], "`unlimited` is not a limit"),
        (["set", "-u", "ada", "gpu_hours_per_day=nan"], "`nan` is not a number of GPU-hours"),
        (["set", "-u", "ada", "gpus=1", "--per-user"], "`--user` and `--per-user` exclude each other"),
        (["set", "-u", "ada", "gpus=1", "--at=end"], "`--at`: `end` is not a point where a limit applies"),
        (["set", "-u", "ada", "pending_jobs=1", "--at=start"], "a limit of pending jobs applies at submit only"),
        (["set", "-u", "ada", "running_jobs=1", "--at=submit"], "a limit of running jobs applies at start only"),
        (["remove", "-u", "ada", "gpus=4"], "`gpus=4` is not a resource that can be limited"),
    ],
)
def test_a_wrong_limit_is_refused_before_anything_is_asked(
    run: Run, controller: ScriptedController, words: list[str], message: str
) -> None:
    done = run("gqctl", "limit", *words)

    assert (done.status, controller.heard) == (2, [])
    assert done.err.startswith(f"error: {message}")


def test_limits_are_shown_with_what_is_used_and_left(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListAccounts, EVERYTHING)

    assert run("gqctl", "limit", "show").lines == [
        "OF      NAME  RESOURCE            MOST USED   LEFT EACH USER AT",
        "user    alice gpus                   4    3      1 no        start",
        "account nlp   gpu_hours_per_month 2000 12.3 1987.7 yes       submit",
        "qos     high  memory              512G    -      - no        start",
    ]
    assert len(run("gqctl", "limit", "show", "--user=alice").lines) == 2
    assert controller.all(wire.ListAccounts)[-1] == wire.ListAccounts(users=("alice",), limit=2000)
    [hours] = json.loads(run("gqctl", "limit", "show", "--account=nlp", "--json").out)
    assert (hours["most"], hours["used"], hours["per_user"], hours["at"]) == (2000.0, 12.3456, True, "submit")


def test_a_list_of_many_pages_is_shown_whole(run: Run, controller: ScriptedController) -> None:
    pages = {
        (): wire.Accounts(accounts=(RESEARCH,), more=True, last=("a",)),
        ("a",): wire.Accounts(accounts=(NLP,), members=(ALICE,), defaults={"alice": "nlp"}, more=True, last=("b",)),
        ("b",): wire.Accounts(
            accounts=(), members=(BOB,), qos=(HIGH,), limits=(GPUS,), defaults={"bob": "nlp"}, last=("c",)
        ),
    }
    controller.on(wire.ListAccounts, lambda query: pages[query.after])

    assert [one["account"] for one in json.loads(run("gqctl", "account", "show", "--json").out)] == ["research", "nlp"]
    asked = [wire.ListAccounts(after=after, limit=2000) for after in pages]
    assert controller.heard == asked
    members = json.loads(run("gqctl", "user", "show", "--json").out)
    assert [(one["user"], one["is_default"]) for one in members] == [("alice", True), ("bob", True)]
    assert [one["qos"] for one in json.loads(run("gqctl", "qos", "show", "--json").out)] == ["high"]
    assert [one["name"] for one in json.loads(run("gqctl", "limit", "show", "--json").out)] == ["alice"]
    assert controller.heard == asked * 4


def test_a_limit_is_taken_away_by_all_that_makes_it_that_one(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.RemoveLimit, wire.Done())

    assert run("gqctl", "limit", "remove", "-A", "nlp", "--per-user", "gpus", "gpus:a100").status == 0
    assert controller.heard == [
        wire.RemoveLimit(holder="account", name="nlp", resource=of, per_user=True) for of in ("gpus", "gpus:a100")
    ]


# ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────

TOML = """
[limits]
jobs = 12
[[partition]]
name = "main"
default = true
max_time = "2h"
"""


def test_settings_are_shown_with_where_they_come_from(run: Run, location: Location) -> None:
    path = Path(location.config_path)
    path.write_text(TOML)

    assert run("gqctl", "config", "show", "--set").lines == [
        "SETTING                 VALUE FROM",
        "limits.jobs             12    gq.toml",
        "partition.main.name     main  gq.toml",
        "partition.main.default  true  gq.toml",
        "partition.main.max_time 7200  gq.toml",
    ]
    assert "limits.page                  2000" in run("gqctl", "config", "show", "limits").out
    [jobs] = json.loads(run("gqctl", "config", "show", "limits.jobs", "--json").out)
    assert jobs == {"setting": "limits.jobs", "value": 12, "from": str(path)}
    assert run("gqctl", "config", "show", "limit").err.startswith("error: `limit` is not a setting")


def test_the_controller_says_what_reading_again_has_changed(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ReloadConfig, wire.Done(text="limits.jobs is 12 now; controller.listen needs a restart"))

    assert run("gqctl", "config", "reload").out == "limits.jobs is 12 now; controller.listen needs a restart\n"
    controller.on(wire.ReloadConfig, wire.Refused(code="bad_config", message="gq.toml: `limits.jbos` is not a setting"))
    assert run("gqctl", "config", "reload") == (1, "", "error: gq.toml: `limits.jbos` is not a setting\n")
