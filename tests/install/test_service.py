"""`gq install-service` and the units: what they say, where they go, and how they are started where systemd runs."""

from __future__ import annotations

import configparser
import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gq.host import service
from tests.clusters import BIN, clean_environment
from tests.requires import needs_program, needs_root
from tests.system.hosts import CONFIG_PATH, Host

DAEMONS = ("gqd", "gqnode")
OPTION = {"gqd": "--controller", "gqnode": "--node"}
FAKE_SYSTEMCTL = """#!/bin/sh
echo "$@" >> /run/systemctl.log
begin() { setsid "$1" --config /etc/gq/gq.toml > "/run/$1.log" 2>&1 < /dev/null & echo $! > "/run/pretended/$1.pid"; }
case $* in
"enable --now gqd.service") begin gqd ;;
"enable --now gqnode.service") kill -0 "$(cat /run/pretended/gqnode.pid)" 2>/dev/null || begin gqnode ;;
"restart gqnode.service") kill "$(cat /run/pretended/gqnode.pid)"; begin gqnode ;;
esac
"""


def on_hosts(test: Callable[..., None]) -> Callable[..., None]:
    """The test needs what hosts need."""
    for mark in (needs_root, needs_program("ip"), needs_program("nsenter"), pytest.mark.xdist_group("service")):
        test = mark(test)
    return test


def gq(*words: str) -> subprocess.CompletedProcess[str]:
    environ = clean_environment(os.environ)
    return subprocess.run(["gq", *words], capture_output=True, text=True, env=environ, timeout=60)


def unit(name: str) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names of settings keep their capitals
    parser.read_string(service.unit_text(name, CONFIG_PATH))
    return parser


@needs_program("systemd-analyze")
@pytest.mark.parametrize("name", DAEMONS)
def test_systemd_has_nothing_to_say_about_a_unit(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"gqtest-{name}.service"
    path.write_text(service.unit_text(name, CONFIG_PATH))

    done = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_program("systemd-analyze")
def test_the_controller_is_shut_in_as_far_as_systemd_thinks_right(tmp_path: Path) -> None:
    path = tmp_path / "gqtest-gqd.service"
    path.write_text(service.unit_text("gqd", CONFIG_PATH))

    words = ["systemd-analyze", "security", "--offline=true", "--threshold=30", path]
    done = subprocess.run(words, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout


def test_a_unit_starts_the_daemon_of_this_installation_with_the_systems_settings() -> None:
    assert unit("gqd")["Service"]["ExecStart"] == f"{BIN}/gqd --config {CONFIG_PATH}"
    assert unit("gqnode")["Service"]["ExecStart"] == f"{BIN}/gqnode --config {CONFIG_PATH}"


def test_jobs_outlive_the_daemon_of_their_node_and_are_not_shut_in_with_it() -> None:
    settings = unit("gqnode")["Service"]

    assert (settings["KillMode"], settings["Delegate"], settings["OOMPolicy"]) == ("process", "yes", "continue")
    assert settings["TasksMax"] == "infinity"
    forbidden = {"NoNewPrivileges", "PrivateTmp", "CapabilityBoundingSet", "ProtectSystem", "ProtectHome", "User"}
    assert not forbidden & set(settings)


@pytest.mark.parametrize("name", DAEMONS)
def test_what_one_daemon_leaves_in_the_directory_of_sockets_the_other_keeps(name: str) -> None:
    settings = unit(name)["Service"]

    assert (settings["RuntimeDirectory"], settings["RuntimeDirectoryPreserve"]) == ("gq", "yes")
    assert (settings["StateDirectory"], settings["StateDirectoryMode"]) == ("gq", "0711")
    assert settings["Restart"] == "on-failure"


# ── gq install-service ────────────────────────────────────────────────────────────────────────────────────────


def test_a_package_gets_the_units_below_its_own_directory(tmp_path: Path) -> None:
    done = gq("install-service", "--controller", "--node", f"--prefix={tmp_path}/root/")

    paths = [tmp_path / "root/etc/systemd/system" / f"{name}.service" for name in DAEMONS]
    assert (done.returncode, done.stdout.splitlines(), done.stderr) == (0, [str(path) for path in paths], "")
    for path, name in zip(paths, DAEMONS, strict=True):
        assert path.read_text() == service.unit_text(name, CONFIG_PATH)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_units_that_are_there_are_brought_up_to_date(tmp_path: Path) -> None:
    gq("install-service", "--node", f"--prefix={tmp_path}")
    same = gq("install-service", "--node", f"--prefix={tmp_path}")
    path = tmp_path / "etc/systemd/system/gqnode.service"
    path.write_text("old")
    changed = gq("install-service", "--node", f"--prefix={tmp_path}")

    assert same.stderr == f"{path} already exists\n"
    assert changed.stderr == ""
    assert path.read_text() == service.unit_text("gqnode", CONFIG_PATH)


@pytest.mark.parametrize("name", DAEMONS)
def test_a_unit_is_printed_without_being_written(name: str, tmp_path: Path) -> None:
    done = gq("install-service", OPTION[name], "--print", f"--prefix={tmp_path}")

    assert (done.returncode, done.stdout) == (0, service.unit_text(name, CONFIG_PATH))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no unit given"),
        (["gqd"], "unexpected argument `gqd`"),
        (["--node", "--start", "--prefix=/tmp/x"], "`--start` and `--prefix` exclude each other"),
    ],
)
def test_a_bad_command_line_writes_nothing(words: list[str], message: str) -> None:
    done = gq("install-service", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message}\nhint: ")


# ── starting ──────────────────────────────────────────────────────────────────────────────────────────────────


def pretend_systemd(host: Host) -> dict[str, str]:
    """systemctl notes what it is told, and starts gqd; the environment that finds it."""
    directory = host.path("/run/systemd/system")
    directory.mkdir(parents=True)
    program = host.path("/run/pretended/systemctl")
    program.parent.mkdir()
    program.write_text(FAKE_SYSTEMCTL)
    program.chmod(0o755)
    return {"PATH": f"/run/pretended:{clean_environment(os.environ)['PATH']}"}


@on_hosts
def test_gqd_becomes_a_service_of_it(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    environ = pretend_systemd(a)
    try:
        said = a.ok("gqd", "init", "--start", **environ)
        once_more = a.ok("gqd", "init", "--start", **environ)

        assert "gqd runs; its log: journalctl -u gqd" in said
        assert "gqd runs" not in once_more
        told = a.path("/run/systemctl.log").read_text().splitlines()
        assert told == ["daemon-reload", "enable --now gqd.service"]
        assert a.path("/etc/systemd/system/gqd.service").read_text() == service.unit_text("gqd", CONFIG_PATH)
        assert not a.path("/var/log/gq").exists()
    finally:
        a.run("sh", "-c", "kill $(cat /run/gq/gqd.lock); rm -r /run/pretended /run/systemctl.log")


@on_hosts
def test_gqnode_becomes_a_service_of_it_and_is_restarted_when_it_joins_anew(hosts: dict[str, Host]) -> None:
    a, b = hosts.values()
    environ = pretend_systemd(b)
    a.ok("gqd", "init", "--start")
    try:
        join = ("gqnode", "join", "tcp://a:7133", "--start")
        said = b.ok(*join, stdin=a.ok("gqctl", "token", "create"), **environ)
        a.ok("gqctl", "node", "remove", "b")
        b.ok(*join, "--force", stdin=a.ok("gqctl", "token", "create"), **environ)

        assert "gqnode runs; its log: journalctl -u gqnode" in said
        assert b.path("/run/systemctl.log").read_text().splitlines() == [
            "daemon-reload",
            "enable --now gqnode.service",
            "daemon-reload",
            "enable --now gqnode.service",
            "restart gqnode.service",
        ]
        assert b.path("/etc/systemd/system/gqnode.service").read_text() == service.unit_text("gqnode", CONFIG_PATH)
    finally:
        a.run("sh", "-c", "kill $(cat /var/lib/gq/gqd.pid)")
        b.run("sh", "-c", "kill $(cat /run/pretended/*.pid); rm -r /run/pretended /run/systemctl.log")


@on_hosts
def test_without_systemd_gqd_and_gqnode_are_started_stopped_and_restarted_as_processes(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init", "--node", "a", "--start")
    try:
        gqd = a.path("/var/lib/gq/gqd.pid").read_text().strip()
        restarted = a.ok("gqd", "restart").splitlines()
        assert restarted[0] == f"gqd (process {gqd}) has stopped"
        assert restarted[1].endswith("; its log: /var/log/gq/gqd.log")
        assert a.ok("gqnode", "stop").endswith(" has stopped\n")
        assert a.ok("gqnode", "start").startswith("gqnode runs (process ")
        assert a.ok("gqd", "stop").endswith(" has stopped\n")
        assert a.run("gqinfo").returncode == 3
        assert a.ok("gqd", "start").startswith("gqd runs (process ")
        assert a.path("/var/log/gq/gqd.log").read_text().count("gqd is ready") == 3, "each start appends to the log"
        other = a.run("setpriv", "--reuid=2001", "--regid=2001", "--clear-groups", "gqd", "stop")
        assert (other.returncode, "run it as root" in other.stderr) == (1, True)
    finally:
        a.run("gqnode", "stop")
        a.run("gqd", "stop")


@on_hosts
def test_where_systemd_runs_it_is_asked(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    environ = pretend_systemd(a)
    try:
        assert a.ok("gqd", "restart", **environ) == "gqd was restarted; its log: journalctl -u gqd\n"
        assert a.ok("gqd", "stop", **environ) == "gqd has stopped; its log: journalctl -u gqd\n"
        told = a.path("/run/systemctl.log").read_text().splitlines()
        assert told == ["daemon-reload", "restart gqd.service", "stop gqd.service"]
    finally:
        a.run("rm", "-r", "/run/pretended", "/run/systemctl.log")


@on_hosts
def test_what_systemctl_complains_of_is_said(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    environ = pretend_systemd(a)
    a.path("/run/pretended/systemctl").write_text("#!/bin/sh\necho Unit is masked. >&2; exit 1\n")
    try:
        done = a.run("gq", "install-service", "--controller", "--start", **environ)
    finally:
        shutil.rmtree(a.path("/run/pretended"))

    assert done.returncode == 1
    assert done.stderr == ("error: `systemctl daemon-reload` failed: Unit is masked.\nhint: see `journalctl -u gqd`\n")


@on_hosts
def test_no_service_is_started_and_the_other_way_is_named(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    done = a.run("gq", "install-service", "--node", "--start")

    assert (done.returncode, done.stdout) == (1, "")
    assert "systemd does not run on this host" in done.stderr and "`gqnode start`" in done.stderr
    assert not a.path("/etc/systemd/system/gqnode.service").exists()


@on_hosts
def test_units_are_installed_and_the_next_step_is_said(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    done = a.run("gq", "install-service", "--node")

    assert done.stdout == "/etc/systemd/system/gqnode.service\n"
    assert "systemctl daemon-reload && systemctl enable --now gqnode" in done.stderr


@on_hosts
def test_a_unit_of_an_earlier_version_is_named_when_it_keeps_gqd_from_becoming_its_user(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")

    done = a.run("setpriv", "--bounding-set=-all,+net_bind_service", "gqd", "--config", CONFIG_PATH)

    assert done.returncode == 1
    assert "gqd cannot become user gq: Operation not permitted" in done.stderr
    assert "`gq install-service --controller` writes it" in done.stderr


@on_hosts
def test_gqd_serves_with_no_more_rights_than_its_unit_leaves_it(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    left = unit("gqd")["Service"]["CapabilityBoundingSet"].lower().replace("cap_", "+").replace(" ", ",")
    bare = ["setpriv", f"--bounding-set=-all,{left}", "--inh-caps=-all", "--no-new-privs"]
    gqd = a.daemon("sh", "-c", f"umask 077; exec {' '.join(bare)} gqd --config {CONFIG_PATH}")
    gqd.await_log("gqd is ready")

    words = ["setpriv", "--reuid=alice", "--regid=alice", "--init-groups", "gqctl", "whoami", "--json"]
    assert '"user":"alice"' in a.ok(*words)
    gqd.kill()


# ── manual pages ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_for_manual_pages_makes_man_find_them_and_is_given_only_where_it_is_needed(tmp_path: Path) -> None:
    opt, local = tmp_path / "opt/gq", tmp_path / "usr/local"
    page = opt / "share/man/man1/gqsub.1"
    for directory in (page.parent, local / "bin", local / "share"):
        directory.mkdir(parents=True)
    search_path = f"{local}/sbin:{local}/bin"
    assert service.manual_hint(str(opt), search_path) == "", "no pages are installed"
    page.write_text(".Dt GQSUB 1\n")
    assert service.manual_hint(str(opt), f"{opt}/bin:{search_path}") == "", "man looks beside the commands"

    said, command = service.manual_hint(str(opt), search_path).splitlines()

    assert said.startswith(f"the manual pages are in {opt}/share/man;")
    assert command == f"  cp -rsf {opt}/share/man /usr/local/share"
    for _ in range(2):  # an upgrade repeats it
        subprocess.run(command.replace("/usr/local/share", str(local / "share")).split(), check=True)
    assert (local / "share/man/man1/gqsub.1").resolve() == page
    assert service.manual_hint(str(opt), search_path) == ""
