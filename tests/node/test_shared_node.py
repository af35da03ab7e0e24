"""Jobs of a shared cluster run as who submitted them, with that user's rights and no others."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.wire import node as wire
from gqnode.control.account import UserRule
from gqnode.daemon import users
from gqnode.daemon.users import UserError, Users
from tests.clusters import wait_until
from tests.node.controller import launch_of
from tests.node.shared_node import BLANK_ENVIRONMENT, SPOOL, SharedNode, shared_node
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB, CAROL, Account
from tests.system.hosts import Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    needs_program("ps"),
    pytest.mark.xdist_group("shared_node"),  # so that the host is set up once
    pytest.mark.timeout(120),
]
MALLORY = Account("mallory", 2001)
"""Not known on the host; another user's number."""
ROOT = Account("root", 0)
RULE = UserRule(node="n1", min_uid=1000)


@pytest.fixture
def node(net: Network) -> Iterator[SharedNode]:
    with shared_node(net) as node:
        yield node


def output(node: SharedNode, account: Account = ALICE, name: str = "out") -> list[str]:
    return node.user(account).path(name).read_text().splitlines()


def spool_of(node: SharedNode) -> list[str]:
    return sorted(path.name for path in node.host.path(SPOOL).iterdir() if path.name[0].isdigit())


def uids_of(node: SharedNode) -> set[str]:
    """Of all processes that live on the host."""
    lines = node.host.ok("ps", "-e", "-o", "uid=,stat=").splitlines()
    return {uid for uid, state in map(str.split, lines) if not state.startswith("Z")}


# ── who it runs as ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_batch_script_runs_as_its_submitter_with_all_groups_and_nothing_of_root(node: SharedNode) -> None:
    ended = node.run(CAROL, "id -u; id -g; id -G; grep -E 'Uid|Gid|CapEff|CapPrm|CapInh' /proc/self/status")

    assert (ended.outcome, ended.why) == (Outcome.COMPLETED, "")
    uid, gid, groups, uids, gids, *capabilities = output(node, CAROL)
    assert (uid, gid, groups.split()) == ("2003", "2003", ["2003", "3000"])
    assert uids.split()[1:] == ["2003"] * 4 and gids.split()[1:] == ["2003"] * 4
    assert [line.split()[1] for line in capabilities] == ["0" * 16] * 3
    assert node.user(CAROL).path("out").stat().st_uid == CAROL.uid


def test_tasks_of_a_step_run_as_the_submitter_too_and_may_open_their_output_by_name(node: SharedNode) -> None:
    attempt_id = node.submit(ALICE, "", is_interactive=True)
    node.started(attempt_id)

    said = node.task_output(attempt_id, ALICE, "sh", "-c", "id -u; echo again > /dev/stdout; echo $HOME")

    assert said == "2001\nagain\n/run/home/alice\n"


@pytest.mark.parametrize(("gid", "becomes"), [(3000, "3000"), (0, "2003"), (2001, "2003")])
def test_a_group_of_the_submitters_process_counts_only_if_the_user_is_in_it(
    node: SharedNode, gid: int, becomes: str
) -> None:
    node.run(CAROL, "id -g; id -G", gid=gid)

    assert output(node, CAROL)[0] == becomes
    assert set(output(node, CAROL)[1].split()) == {"2003", "3000"}


def test_a_user_who_is_not_known_here_is_refused_before_anything_is_made(node: SharedNode) -> None:
    refused = node.refusal_of(node.submit(MALLORY, "touch /tmp/ran", chdir="/", output_path="/dev/null"))

    assert (refused.why, refused.is_job_fault) == ("user mallory is not known on n1", False)
    wait_until(lambda: spool_of(node) == [])
    assert not node.host.path("/tmp/ran").exists()


def test_a_user_with_another_number_here_is_refused_with_both_numbers(node: SharedNode) -> None:
    refused = node.refusal_of(node.submit(ALICE, "touch /tmp/ran", uid=2002))

    assert refused.why == "user alice has uid 2001 on n1 and 2002 on the controller"
    assert not node.host.path("/tmp/ran").exists()


def test_roots_jobs_run_as_root_where_the_gq_toml_of_the_node_says_so(net: Network) -> None:
    with shared_node(net, settings="[access]\nroot_jobs = true") as node:
        ended = node.run(ROOT, "id -u; echo $HOME", chdir="/", output_path="/run/out-of-root")

        assert ended.exit == ExitStatus()
        assert node.host.path("/run/out-of-root").read_text() == "0\n/root\n"


@pytest.mark.slow
def test_a_uid_below_the_smallest_runs_only_where_the_account_is_named(net: Network) -> None:
    with shared_node(net, settings='min_uid = 2002\nallowed_users = ["carol"]') as node:
        refused = node.refusal_of(node.submit(ALICE, "touch /tmp/ran"))
        assert refused.why == (
            "n1 runs no jobs of uids below 2002, and alice has uid 2001; "
            'allowed_users = ["alice"] or a smaller min_uid of [[node]] in its own gq.toml allows it'
        )
        assert not node.host.path("/tmp/ran").exists()
        assert node.run(BOB, "id -u").exit == ExitStatus()
    with shared_node(net, settings='min_uid = 5000\nallowed_users = ["carol"]') as node:
        assert node.run(CAROL, "id -u").exit == ExitStatus()
        assert "no jobs of uids below 5000" in node.refusal_of(node.submit(BOB, "id")).why


def test_a_root_daemon_of_a_cluster_that_is_not_shared_runs_nothing_of_others(net: Network) -> None:
    with shared_node(net, is_shared=False) as node:
        refused = node.refusal_of(node.submit(ALICE, "id"))

        assert "gqnode on n1 runs as uid 0 and this cluster is not shared" in refused.why
        assert "no jobs of alice (uid 2001)" in refused.why


def test_who_a_job_runs_as_is_kept_through_a_restart_though_the_user_is_unknown_by_then(node: SharedNode) -> None:
    attempt_id = node.submit(ALICE, "", is_interactive=True)
    node.started(attempt_id)
    passwd = node.host.path("/etc/passwd")
    known = passwd.read_text()
    try:
        assert node.daemon is not None
        node.daemon.kill()
        passwd.write_text("root:x:0:0:root:/root:/bin/sh\n")
        node.start()

        heard = node.say(node.attach(node.expect_step(attempt_id), "id", "-u"), None, until="TaskExited")
    finally:
        passwd.write_text(known)

    assert any(getattr(one, "data", b"") == b"2001\n" for one in heard), heard


def test_a_name_service_that_hangs_refuses_the_job_and_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    monkeypatch.setattr(users, "ANSWER_S", 0.2)
    monkeypatch.setattr(users, "_look_up", lambda user: gate.wait(20) and None)

    async def ask() -> str:
        asked = Users("n1", chooses=True, rule=RULE)
        asked.hear(is_shared=True)
        try:
            await asked.account_of(launch_of(b"", {}, "")[0])
        except UserError as error:
            return error.message
        finally:
            gate.set()
            asked.close()
        return "no error"

    assert asyncio.run(ask()) == "the name service of n1 did not answer within 0.2 s for user tester"


@pytest.mark.parametrize(
    ("is_shared", "uid", "is_refused"),
    [(False, 1001, False), (False, 0, False), (False, 1002, True), (True, 1001, False), (True, 0, True)],
)
def test_a_daemon_of_an_ordinary_user_runs_nothing_of_others(
    monkeypatch: pytest.MonkeyPatch, is_shared: bool, uid: int, is_refused: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1001)

    async def ask() -> str:
        asked = Users("n1", chooses=False, rule=RULE)
        asked.hear(is_shared)
        try:
            launch = msgspec.structs.replace(launch_of(b"", {}, "")[0], uid=uid)
            assert await asked.account_of(launch) is None
        except UserError as error:
            return error.message
        finally:
            asked.close()
        return ""

    why = f"gqnode on n1 runs as uid 1001 and cannot become another user: it runs no jobs of tester (uid {uid})"
    assert asyncio.run(ask()) == (why if is_refused else "")


# ── its surroundings ──────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_the_daemons_environment_reaches_a_job(net: Network, node: SharedNode) -> None:
    assert node.daemon is not None
    node.daemon.kill()
    evil = {"LD_PRELOAD": "/run/none.so", "BASH_ENV": "/run/evil", "ENV": "/run/evil", "PYTHONHASHSEED": "7"}
    node.host.path("/run/evil").write_text("echo evil\n")
    node.start("env", *(f"{name}={value}" for name, value in evil.items()))

    node.run(ALICE, "/usr/bin/env", environment={**BLANK_ENVIRONMENT, "MINE": "1"})

    environment = dict(line.split("=", 1) for line in output(node))
    assert not evil.keys() & environment.keys()
    assert [environment[name] for name in ("HOME", "USER", "LOGNAME", "SHELL", "MINE")] == [
        "/run/home/alice", "alice", "alice", "/bin/sh", "1"
    ]  # fmt: skip
    own = {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "PWD", "MINE", "_", "OLDPWD", "SHLVL"}
    prefixes = ("GQ_", "SLURM_", "SLURMD_", "CUDA_", "MASTER_", "RANK", "WORLD_", "LOCAL_", "GROUP_")
    assert [name for name in environment if name not in own and not name.startswith(prefixes)] == []


def test_a_job_does_not_inherit_that_the_daemon_is_killed_last(node: SharedNode) -> None:
    assert node.daemon is not None
    node.daemon.kill()
    node.start("sh", "-c", 'echo -700 > /proc/self/oom_score_adj; exec "$@"', "sh")

    node.run(ALICE, "cat /proc/self/oom_score_adj")

    assert output(node) == ["0"]


# ── files that the user names ─────────────────────────────────────────────────────────────────────────────────


def secret_of_root(node: SharedNode) -> Path:
    path = node.host.path("/run/secret")
    path.write_text("of root\n")
    path.chmod(0o600)
    return path


def test_output_through_a_link_to_a_file_of_roots_fails_with_the_users_rights(node: SharedNode) -> None:
    secret = secret_of_root(node)
    node.user(ALICE).ok("ln", "-s", "/run/secret", "out")

    ended = node.run(ALICE, "echo overwritten")

    assert ended.outcome is Outcome.BOOT_FAIL
    assert ended.why == "cannot open the output file `/run/home/alice/out`: Permission denied"
    assert secret.read_text() == "of root\n"


def test_a_line_of_the_daemons_does_not_follow_a_link_either(node: SharedNode) -> None:
    secret = secret_of_root(node)
    attempt_id = node.submit(ALICE, "ln -sf /run/secret out; touch linked; exec sleep 1000")
    wait_until(lambda: node.user(ALICE).path("linked").exists())

    node.controller.order(wire.Stop(attempt_id=attempt_id, outcome=Outcome.CANCELLED, grace_s=0, text="CANCELLED"))

    node.end_of(attempt_id)
    assert secret.read_text() == "of root\n"


@pytest.mark.parametrize("place", ["/run/home/bob/out", "/etc/cron.d/evil", "/var/lib/gq/nodes/n1/evil", "/root/evil"])
def test_output_where_the_user_may_not_write_fails(node: SharedNode, place: str) -> None:
    ended = node.run(ALICE, "echo evil", output_path=place)

    assert ended.outcome is Outcome.BOOT_FAIL
    assert ended.why.startswith(f"cannot open the output file `{place}`: ")
    assert node.host.run("test", "-e", place).returncode == 1


def test_a_job_whose_output_is_a_pipe_that_nobody_reads_can_be_ended(node: SharedNode) -> None:
    node.user(ALICE).ok("mkfifo", "pipe")
    attempt_id = node.submit(ALICE, "echo never", output_path="/run/home/alice/pipe")
    other = node.run(ALICE, "echo others go on")

    node.stop(attempt_id)

    assert other.exit == ExitStatus()
    node.controller.hear(lambda: any(getattr(one, "attempt_id", None) == attempt_id
                                     and isinstance(one, wire.AttemptEnded | wire.CellEmptied)
                                     for one in node.controller.reports))  # fmt: skip


def test_a_directory_that_is_closed_to_the_user_is_a_clear_failure(node: SharedNode) -> None:
    node.host.ok("mkdir", "-m", "700", "/run/closed")

    ended = node.run(ALICE, "pwd", chdir="/run/closed")

    assert ended.why == "cannot change to the directory `/run/closed`: Permission denied"


def test_a_name_with_newlines_escapes_and_parents_writes_nowhere_else(node: SharedNode) -> None:
    name = "../../../run/evil\n\x1b[31m$(touch /run/home/alice/evil);%j"

    ended = node.run(ALICE, "echo never", job_name=name, output_path="/run/home/alice/of-%x.txt")
    other = node.run(ALICE, 'printf %s "$GQ_JOB_NAME"', job_name=name)

    shown = name.replace("\n", "\\n").replace("\x1b", "\\x1b")
    assert ended.why == f"cannot open the output file `/run/home/alice/of-{shown}.txt`: No such file or directory"
    assert other.exit == ExitStatus() and node.user(ALICE).path("out").read_text() == name
    assert not node.host.path("/run/home/alice/evil").exists()


def test_a_process_that_waits_for_a_pipe_ends_with_its_shepherd_though_no_cell_holds_it(net: Network) -> None:
    nothing = ", ".join(f'{function} = "none"' for function in ("cpu", "cpuset", "memory", "devices", "pids", "kill"))
    with shared_node(net, f"isolation = {{{nothing}}}") as node:
        node.user(ALICE).ok("mkfifo", "pipe")
        attempt_id = node.submit(ALICE, "echo never", output_path="/run/home/alice/pipe")
        wait_until(lambda: str(ALICE.uid) in uids_of(node), what="the child has become alice")

        node.host.ok(
            "sh", "-c", "kill -9 $(ps -e -o pid=,uid=,comm= | awk '$2 == 0 && $3 == \"gq-shepherd\" {print $1}')"
        )

        wait_until(lambda: str(ALICE.uid) not in uids_of(node), 5, "the child has ended")
        assert node.end_of(attempt_id).outcome is Outcome.NODE_FAIL


# ── the spool ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_only_its_user_reads_a_script_and_nobody_but_root_changes_anything_in_the_spool(node: SharedNode) -> None:
    attempt_id = node.submit(ALICE, "# secret words\ntouch up\nexec sleep 1000")
    wait_until(lambda: node.user(ALICE).path("up").exists())
    directory = f"{SPOOL}/{attempt_id}"

    assert "secret words" in node.user(ALICE).ok("cat", f"{directory}/script")
    for command in (f"cat {directory}/script", f"ls {directory}", f"ls {SPOOL}", f"cat {directory}/record.json"):
        assert "Permission denied" in node.user(BOB).run("sh", "-c", command).stderr, command
    for command in (
        f"echo more >> {directory}/script", f"rm -f {directory}/script", f"touch {directory}/new", f"ls {directory}",
        f"mv {directory} {SPOOL}/9.9", f"cat {directory}/record.json", f"cat {directory}/blobs", f"touch {SPOOL}/new",
        f"chmod 777 {directory}/script",
    ):  # fmt: skip
        assert node.user(ALICE).run("sh", "-c", command).returncode != 0, command
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{directory}/ctl')"
    assert "PermissionError" in node.user(ALICE).run("python3", "-c", connect).stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in node.host.path(directory).iterdir()}
    assert {mode & 0o007 for mode in modes.values()} == {0}, modes
    node.stop(attempt_id)
    node.end_of(attempt_id)


def test_without_access_control_lists_the_script_is_its_users_to_read(node: SharedNode) -> None:
    node.host.ok("mount", "-t", "ramfs", "none", SPOOL)  # knows none
    node.host.ok("chmod", "711", SPOOL)
    try:
        node.run(ALICE, "stat -c '%u %a' $0")
    finally:
        node.host.ok("umount", "-l", SPOOL)

    assert output(node) == ["2001 500"]


# ── what is left ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_left_its_session_is_gone_before_the_node_says_that_the_cell_is_empty(node: SharedNode) -> None:
    ended = node.run(ALICE, "setsid -f sleep 1000; (setsid sh -c 'sleep 1000 & sleep 1000' &) & exit 0")

    assert ended.cell_emptied
    assert str(ALICE.uid) not in uids_of(node)
