"""What gq.toml wants of every process of a job: resource limits, PAM's session, no_new_privs, a /tmp of its own."""

from __future__ import annotations

import os
import resource
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gq.config.config import NodeSettings
from gq.errors import UsageError
from gq.host.job_tmp import own_programs
from gq.model.state import Outcome
from gq.wire import step as wire
from gqnode.daemon.job_settings import check_private_tmp, read_confinement, system_min_uid
from gqnode.daemon.rlimits import KERNEL_LIMITS, parse_rlimits
from tests.clusters import wait_until
from tests.node.shared_node import SPOOL, SharedNode, shared_node
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB, Account
from tests.system.hosts import Network

on_a_host = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("job_settings"),  # so that the host is set up once
    pytest.mark.timeout(120),
]
INFINITY = resource.RLIM_INFINITY


def marked(test: Callable[..., None]) -> Callable[..., None]:
    for mark in on_a_host:
        test = mark(test)
    return test


def output(node: SharedNode, account: Account = ALICE) -> list[str]:
    return node.user(account).path("out").read_text().splitlines()


# ── resource limits ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("nofile", "64", (resource.RLIMIT_NOFILE, 64, 64)),
        ("nofile", "64:128", (resource.RLIMIT_NOFILE, 64, 128)),
        ("core", "0", (resource.RLIMIT_CORE, 0, 0)),
        ("core", "10:20", (resource.RLIMIT_CORE, 10240, 20480)),
        ("cpu", "2:3", (resource.RLIMIT_CPU, 120, 180)),
        ("stack", "8192:unlimited", (resource.RLIMIT_STACK, 8192 * 1024, INFINITY)),
    ],
)
def test_a_limit_is_written_as_in_limits_conf(
    name: str, text: str, expected: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda number: (INFINITY, INFINITY))  # whatever this test may raise

    assert parse_rlimits({name: text}, "node.n1.rlimits") == (expected,)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("nofiles", "64", "node.n1.rlimits.nofiles: limits.conf has no limit `nofiles`"),
        ("nofile", "many", "node.n1.rlimits.nofile: `many` is not a limit"),
        ("nofile", "", "node.n1.rlimits.nofile: `` is not a limit"),
        ("nofile", "64:", "node.n1.rlimits.nofile: `64:` is not a limit"),
        ("nofile", "1:2:3", "node.n1.rlimits.nofile: `1:2:3` is not a limit"),
        ("core", "5G", "node.n1.rlimits.core: `5G` is not a limit"),
        ("core", "99999999999999999999", "node.n1.rlimits.core: `99999999999999999999` is not a limit"),
        ("core", "2:1", "node.n1.rlimits.core: in `2:1` the soft limit is above the hard limit"),
        ("core", "unlimited:1", "node.n1.rlimits.core: in `unlimited:1` the soft limit is above the hard limit"),
        ("nofile", "9000000000", "node.n1.rlimits.nofile: this daemon may not raise the hard limit above"),
    ],
)
def test_a_limit_that_is_none_is_refused_by_name(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_rlimits({name: text}, "node.n1.rlimits")

    assert refused.value.message.startswith(message)
    assert refused.value.hint


def test_the_names_of_limits_are_those_of_the_kernel_each_once() -> None:
    numbers = [number for number, _ in KERNEL_LIMITS.values()]

    assert len(set(numbers)) == len(numbers)
    assert all(len(resource.getrlimit(number)) == 2 for number in numbers)


@marked
def test_scripts_and_tasks_have_the_limits_of_the_settings(net: Network) -> None:
    limits = 'rlimits = {nofile = "100:200", core = "0", memlock = "64"}'
    show = "ulimit -Sn; ulimit -Hn; ulimit -c; grep -i locked.memory /proc/self/limits"
    with shared_node(net, limits) as node:
        node.run(ALICE, show)
        attempt_id = node.submit(ALICE, "", is_interactive=True)
        node.started(attempt_id)
        of_task = node.task_output(attempt_id, ALICE, "sh", "-c", show)

        assert output(node)[:3] == ["100", "200", "0"]
        assert output(node)[3].split() == ["Max", "locked", "memory", "65536", "65536", "bytes"]
        assert of_task.splitlines() == output(node)


@marked
def test_a_daemon_does_not_start_on_a_limit_that_it_cannot_set(net: Network) -> None:
    with shared_node(net, 'rlimits = {nofiles = "1"}', starts=False) as node:
        daemon = node.start_alone()
        wait_until(daemon.has_ended)

        assert "error: node.n1.rlimits.nofiles: limits.conf has no limit `nofiles`" in daemon.log
        assert "hint: did you mean `nofile`?" in daemon.log


# ── rights ────────────────────────────────────────────────────────────────────────────────────────────────────


@marked
@pytest.mark.parametrize(("setting", "flag", "uid"), [("", "0", "0"), ("no_new_privs = true", "1", "2001")])
def test_set_uid_programs_give_rights_only_without_no_new_privs(
    net: Network, setting: str, flag: str, uid: str
) -> None:
    with shared_node(net, setting) as node:
        node.host.ok("sh", "-c", "cp $(command -v id) /run/suid-id; chmod 4755 /run/suid-id")

        node.run(ALICE, "grep NoNewPrivs /proc/self/status; /run/suid-id -u")

        assert [line.split()[-1] for line in output(node)] == [flag, uid]


FORBIDDEN_CALLS = """
import ctypes, errno, os, subprocess, threading
from gqnode.shepherd.seccomp import ARCHITECTURES, CLONE3, DENIED, UNSHARE
libc = ctypes.CDLL(None, use_errno=True)
column = list(ARCHITECTURES).index(os.uname().machine)
def call(numbers, *arguments):
    libc.syscall(numbers[column], *arguments)
    return errno.errorcode[ctypes.get_errno()]
print({name for name in DENIED if call(DENIED[name], -1, None, -1, -1, -1) != "EPERM"} or "denied")
print(call(UNSHARE, 0x10000000), call(CLONE3, None, 0))
thread = threading.Thread(target=lambda: print(subprocess.run(["true"]).returncode))
thread.start()
thread.join()
"""


@marked
def test_the_seccomp_filter_denies_the_listed_system_calls_and_leaves_threads_and_processes(net: Network) -> None:
    with shared_node(net, "no_new_privs = true\nseccomp = true") as node:
        command = shlex.join([sys.executable, "-I", "-c", FORBIDDEN_CALLS])
        node.run(ALICE, f"grep ^Seccomp: /proc/self/status; {command}")
        attempt_id = node.submit(ALICE, "", is_interactive=True)
        node.started(attempt_id)
        of_task = node.task_output(attempt_id, ALICE, "grep", "^Seccomp:", "/proc/self/status")

        assert output(node) == ["Seccomp:\t2", "denied", "EPERM ENOSYS", "0"]
        assert of_task.split() == ["Seccomp:", "2"]


@marked
def test_a_daemon_does_not_start_with_seccomp_alone(net: Network) -> None:
    with shared_node(net, "seccomp = true", starts=False) as node:
        daemon = node.start_alone()
        wait_until(daemon.has_ended)

        assert "error: node.n1.seccomp: the kernel filters system calls only of processes that cannot" in daemon.log
        assert "hint: set no_new_privs = true, too" in daemon.log


# ── PAM ───────────────────────────────────────────────────────────────────────────────────────────────────────


def pam_service(net: Network, text: str) -> None:
    (host,) = net.hosts.values()
    host.path("/etc/pam.d/gqtest").write_text(text)
    host.path("/etc/gq").mkdir(exist_ok=True)
    host.path("/etc/gq/limits").write_text("alice soft nofile 66\nalice hard nofile 77\n@bob - nofile 88\n")


@marked
def test_jobs_have_the_limits_that_pam_gives_their_user(net: Network) -> None:
    pam_service(net, "session required pam_limits.so conf=/etc/gq/limits\n")
    show = "ulimit -Sn; ulimit -Hn; id -u; ls /proc/self/fd | wc -l"
    with shared_node(net, 'pam = "gqtest"') as node:
        node.run(ALICE, show)
        node.run(BOB, show)

        assert output(node) == ["66", "77", "2001", "4"]
        assert output(node, BOB) == ["88", "88", "2002", "4"]


@marked
def test_the_settings_have_the_last_word_over_pam(net: Network) -> None:
    pam_service(net, "session required pam_limits.so conf=/etc/gq/limits\n")
    with shared_node(net, 'pam = "gqtest"\nrlimits = {nofile = "55"}') as node:
        node.run(ALICE, "ulimit -n")

        assert output(node) == ["55"]


@marked
def test_a_session_that_pam_denies_is_a_job_that_cannot_start(net: Network) -> None:
    pam_service(net, "session required pam_deny.so\n")
    with shared_node(net, 'pam = "gqtest"') as node:
        ended = node.run(ALICE, "echo evil")

        assert ended.outcome is Outcome.BOOT_FAIL
        assert ended.why.startswith("PAM cannot open a session of `gqtest` for alice: ")


@needs_root
@pytest.mark.parametrize(
    ("service", "message"),
    [
        ("no-such-service", "the PAM service `no-such-service` has no file"),
        ("../passwd", "`../passwd` is not a valid name of a PAM service"),
    ],
)
def test_a_service_that_pam_does_not_have_is_refused_at_start(service: str, message: str) -> None:
    with pytest.raises(UsageError, match=r"node\.n1\.pam") as refused:
        read_confinement(NodeSettings(name="n1", pam=service))

    assert message in refused.value.message


def test_without_libpam_the_option_is_refused_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gqnode.shepherd.pam.LIBRARY", "libpam-not-here.so")
    monkeypatch.setattr("gqnode.shepherd.pam.SERVICE_DIRECTORIES", ("/",))
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    with pytest.raises(UsageError, match=r"node\.n1\.pam: libpam-not-here\.so cannot be loaded"):
        read_confinement(NodeSettings(name="n1", pam="proc"))


# ── a /tmp of its own ─────────────────────────────────────────────────────────────────────────────────────────

PRIVATE = "private_tmp = true"
KEPT = [place.split("/")[2] for place in own_programs()]
"""Where gq's own commands are shows in a job's /tmp, if this checkout is below /tmp."""


@marked
def test_a_job_has_a_tmp_and_a_shm_of_its_own_which_its_steps_share_and_nobody_else_sees(net: Network) -> None:
    with shared_node(net, PRIVATE) as node:
        node.host.path("/tmp/of-the-host").write_text("")
        see = "ls -A /tmp /dev/shm; stat -c %a /tmp /dev/shm; df --output=fstype /dev/shm | tail -1"
        attempt_id = node.submit(ALICE, f"{see}; touch /tmp/mine /dev/shm/mine up; exec sleep 1000")
        wait_until(lambda: node.user(ALICE).path("up").exists())
        of_step = node.task_output(attempt_id, ALICE, "ls", "/tmp", "/dev/shm")
        node.run(BOB, see)
        inside = f"{SPOOL}/{attempt_id}/private"

        assert output(node) == ["/dev/shm:", "", "/tmp:", *KEPT, "1777", "1777", "tmpfs"] == output(node, BOB)
        assert of_step.split() == ["/dev/shm:", "mine", "/tmp:", *sorted([*KEPT, "mine"])]
        assert not node.host.path("/tmp/mine").exists() and not node.host.path("/dev/shm/mine").exists()
        assert node.host.path(f"{inside}/tmp/mine").exists()
        for account in (ALICE, BOB):
            assert "Permission denied" in node.user(account).run("ls", f"{inside}/tmp").stderr
        node.stop(attempt_id)
        node.end_of(attempt_id)
        assert not node.host.path(inside).exists(), "emptied before the node said that the cell is empty"


@marked
def test_a_shepherd_that_is_killed_leaves_no_mount_and_no_file_behind(net: Network) -> None:
    with shared_node(net, PRIVATE) as node:
        mounts = node.host.ok("cat", "/proc/mounts")
        attempt_id = node.submit(ALICE, "mkdir -p /tmp/a/b; touch /tmp/a/b/c; touch up; exec sleep 1000")
        wait_until(lambda: node.user(ALICE).path("up").exists())

        node.host.ok("sh", "-c", "kill -9 $(grep -l '^Name:.gq-shepherd' /proc/[0-9]*/status | cut -d/ -f3)")

        ended = node.end_of(attempt_id)
        assert ended.outcome is Outcome.NODE_FAIL
        assert not node.host.path(f"{SPOOL}/{attempt_id}/private").exists()
        assert node.host.ok("cat", "/proc/mounts") == mounts


@marked
def test_a_tree_that_is_too_deep_for_python_is_removed_too(net: Network) -> None:
    with shared_node(net, PRIVATE) as node:
        deep = "import os\nos.chdir('/tmp')\nfor _ in range(3000):\n os.mkdir('d'); os.chdir('d')\nopen('f', 'w')"
        node.user(ALICE).write("deep.py", deep)

        ended = node.run(ALICE, "python3 deep.py; ls /tmp")
        again = node.run(ALICE, "ls -A /tmp")

        assert (ended.outcome, again.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED)
        assert output(node) == KEPT
        assert node.host.run("sh", "-c", f"ls -d {SPOOL}/*/private").stdout == ""


@marked
def test_root_is_told_whose_namespace_a_session_has_to_join(net: Network) -> None:
    with shared_node(net, PRIVATE) as node:
        attempt_id = node.submit(ALICE, "touch /tmp/mine up; exec sleep 1000")
        wait_until(lambda: node.user(ALICE).path("up").exists())

        (cells,) = node.say(wire.FindCells(uid=ALICE.uid))

        assert isinstance(cells, wire.Cells)
        pid = cells.cells[0].namespace_pid
        assert node.host.ok("nsenter", f"--target={pid}", "--mount", "ls", "/tmp").split() == sorted([*KEPT, "mine"])
        node.stop(attempt_id)
        node.end_of(attempt_id)


@needs_root
@pytest.mark.parametrize("place", ["/tmp/cluster/nodes/n1", "/dev/shm/spool"])
def test_a_spool_that_jobs_would_not_see_any_more_is_refused(place: str) -> None:
    with pytest.raises(UsageError, match="where jobs would not see it"):
        check_private_tmp(NodeSettings(name="n1", private_tmp=True), place)


def test_only_root_can_give_jobs_a_tmp_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    with pytest.raises(UsageError, match=r"node\.n1\.private_tmp: only root can"):
        check_private_tmp(NodeSettings(name="n1", private_tmp=True), str(tmp_path))
    check_private_tmp(NodeSettings(name="n1"), str(tmp_path))


# ── users ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("UID_MAX 60000\n#UID_MIN 300\nUID_MIN\t\t  500\n", 500),
        ("SYS_UID_MIN 100\n", 1000),
        ("UID_MIN many\n", 1000),
        ("UID_MIN 0\n", 1),
        (None, 1000),
    ],
)
def test_the_smallest_uid_of_jobs_is_the_first_that_the_machine_gives_to_people(
    tmp_path: Path, text: str | None, expected: int
) -> None:
    if text is not None:
        (tmp_path / "login.defs").write_text(text)

    assert system_min_uid(tmp_path / "login.defs") == expected
