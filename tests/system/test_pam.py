"""`gq pam-check` as pam_exec runs it, on a node of a shared cluster: who may log in, and where the session goes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.clusters import wait_until
from tests.conftest import MARK
from tests.integration.jobs import LONG_S
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB, CAROL, DORA, Account
from tests.system.hosts import CONFIG_PATH, Host, HostCluster, config_of, network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("pam"),  # so that the cluster is set up once
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def cluster(pytestconfig: pytest.Config) -> Iterator[HostCluster]:
    with network("ab", pytestconfig.stash[MARK]) as net:
        cluster = HostCluster(net, config_of(net, "b", timers="heartbeat_s = 1\nprepare_ack_s = 10\ngrace_s = 2\n"))
        cluster.add("b")
        yield cluster


@pytest.fixture
def b(cluster: HostCluster) -> Iterator[Host]:
    """The node; no job is left there."""
    yield cluster.net.hosts["b"]
    cluster.head.ok("gqctl", "node", "show", "b")
    for account in (ALICE, BOB):
        cluster.head.user(account).run("gqdel", "--me")
    wait_until(lambda: not cluster.head.ok("gqstat", "-h").strip(), LONG_S, "all jobs are gone")


def begin(cluster: HostCluster, account: Account) -> str:
    """A job of this user runs on the node."""
    user = cluster.head.user(account)
    job = user.ok("gqsub", "--parsable", "-D/", "-o/dev/null", "--wrap", "sleep 600").strip()
    wait_until(lambda: user.ok("gqstat", "-h", "-j", job, "-o", "%t").strip() == "R", LONG_S, f"job {job} runs")
    return job


def account_phase(host: Host, name: str, *options: str) -> subprocess.CompletedProcess[str]:
    return host.run("gq", "pam-check", *options, PAM_TYPE="account", PAM_USER=name)


def test_a_user_may_log_in_while_a_job_of_theirs_runs_there_and_no_longer(cluster: HostCluster, b: Host) -> None:
    before = account_phase(b, "alice")
    assert before.returncode == 1
    assert "You cannot log in here: alice has no job on b." in before.stdout

    job = begin(cluster, ALICE)
    assert account_phase(b, "alice").returncode == 0
    assert account_phase(b, "bob").returncode == 1

    cluster.head.user(ALICE).ok("gqdel", job)
    wait_until(lambda: account_phase(b, "alice").returncode == 1, LONG_S, "alice has nothing there any more")


def test_root_and_those_that_are_allowed_may_always_log_in(cluster: HostCluster, b: Host) -> None:
    config = b.path(CONFIG_PATH)
    text = config.read_text()
    config.write_text(text.replace("[access]\n", '[access]\nadministrators = ["dora"]\n', 1))
    try:
        assert account_phase(b, "dora").returncode == 0
    finally:
        config.write_text(text)
    assert account_phase(b, "dora").returncode == 1
    assert account_phase(b, "root").returncode == 0
    assert account_phase(b, "dora", "--allow=carol,dora").returncode == 0
    assert account_phase(b, "carol", "--allow=%gqops").returncode == 0
    assert account_phase(b, "bob", "--allow=%gqops").returncode == 1
    assert {CAROL.name, DORA.name} == {"carol", "dora"}


def test_a_node_daemon_that_is_away_lets_only_root_in(cluster: HostCluster) -> None:
    a = cluster.head  # no node daemon runs there
    refused = account_phase(a, "alice")
    assert (refused.returncode, refused.stdout) == (1, "You cannot log in here: no node daemon runs on a.\n")
    assert account_phase(a, "root").returncode == 0


def test_a_session_goes_into_the_cell_of_the_newest_job_and_ends_with_it(cluster: HostCluster, b: Host) -> None:
    older, newer = begin(cluster, ALICE), begin(cluster, ALICE)
    script = (
        "gq pam-check && cat /proc/self/cgroup && exec setpriv --reuid=alice --regid=alice --clear-groups sleep 600"
    )
    session = b.start("sh", "-c", script, PAM_TYPE="open_session", PAM_USER="alice")
    assert session.stdout is not None

    cells = []
    while not (line := session.stdout.readline()).startswith("0::"):
        assert line, "no line of v2"
        cells.append(line)
    cells.append(line)
    assert any(f"/{newer}.1" in cell for cell in cells), cells
    assert not any(f"/{older}.1" in cell for cell in cells)
    assert session.poll() is None

    cluster.head.user(ALICE).ok("gqdel", newer)
    assert session.wait(LONG_S) != 0
    assert account_phase(b, "alice").returncode == 0, "the older job is still there"


def test_a_session_of_root_or_of_one_without_a_job_stays_where_it_is(cluster: HostCluster, b: Host) -> None:
    script = 'before=$(cat /proc/self/cgroup); gq pam-check && [ "$(cat /proc/self/cgroup)" = "$before" ]'
    for name in ("root", "bob"):
        session = b.run("sh", "-c", script, PAM_TYPE="open_session", PAM_USER=name)
        assert session.returncode == 0, f"{name}: {session.stderr}"
    closed = b.run("gq", "pam-check", PAM_TYPE="close_session", PAM_USER="bob")
    assert closed.returncode == 0, closed.stderr


def test_a_user_is_not_told_the_cells_of_others(cluster: HostCluster, b: Host) -> None:
    begin(cluster, ALICE)
    asked = (
        "import sys; from gq.cli.gq.pam_check import find_cells; from gq.connection.locate import system_location\n"
        "print(*find_cells(system_location('/etc/gq/gq.toml'), int(sys.argv[1])))"
    )
    own = b.user(ALICE).ok("python", "-c", asked, str(ALICE.uid))
    assert "attempt_id" in own and "cgroup" not in own

    others = b.user(BOB).run("python", "-c", asked, str(ALICE.uid))
    assert others.returncode == 1
    assert f"the cells of uid {ALICE.uid} are another user's" in others.stderr


@pytest.mark.parametrize(
    ("environ", "code", "words"),
    [
        ({"PAM_TYPE": "auth", "PAM_USER": "alice"}, 2, "PAM_TYPE is `auth`"),
        (
            {"PAM_TYPE": "account", "PAM_USER": "nosuchuser"},
            1,
            "user `nosuchuser` (PAM_USER) does not exist on this host",
        ),
    ],
)
def test_what_pam_would_not_say_is_refused(b: Host, environ: dict[str, str], code: int, words: str) -> None:
    done = b.run("gq", "pam-check", **environ)
    assert done.returncode == code
    assert words in done.stderr
