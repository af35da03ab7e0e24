"""Questions of `gq doctor` about a host whose answers no test can have the machine give: clocks, releases, units."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from gq.cli.doctor import machine_checks, network_checks, private_checks, system, system_checks
from gq.cli.doctor.private_checks import CheckContext, CheckResult, Verdict, last_error, partitions, recent_errors
from gq.cli.doctor.system import Answer, Host, Process
from gq.cli.gq import doctor
from gq.config.config import parse_config
from gq.connection.locate import Location, system_location
from gq.errors import Refusal
from gq.host.daemons import started_at
from gq.model.audit import AuditEntry
from gq.model.node import ClusterInfo, IsolationLevels, NodeInfo
from gq.version import VERSION
from gq.wire.client import Identity
from tests.cli.conftest import Run
from tests.requires import needs_root

NOW = 1_800_000_000.0
CONFIG = """
[controller]
listen = "tcp://*:7133"
[[node]]
name = "n1"
controller = "tcp://head:7133"
"""


def host(**changes: object) -> Host:
    """A node `n1` that is well; the controller's clock is the same as ours."""
    config = parse_config(CONFIG, "/etc/gq/gq.toml")
    well = Host(
        location=system_location("/etc/gq/gq.toml"),
        config=config,
        config_error=None,
        name="n1",
        is_controller=False,
        node=config.nodes[0],
        processes=(Process(program="gqnode", pid=4711, since=NOW, node="n1"),),
        identity=Identity(user="ada", uid=1000, role="user", origin="node n1", cluster="gq", now=NOW),
        answer=Answer(ClusterInfo(cluster="gq", gq_version=VERSION, started_at=0.0), {"n1": node(VERSION)}),
        asked_at=NOW,
        answer_took_s=0.02,
    )
    return msgspec.structs.replace(well, **changes)


def node(version: str, **levels: str) -> NodeInfo:
    isolation = IsolationLevels(**levels)
    return NodeInfo(
        node="n1", state="IDLE", cpus=1, cpus_free=1, memory_mib=1, memory_free_mib=1, gq_version=version,
        isolation=isolation,
    )  # fmt: skip


def only(check: Callable[[Host], Iterator[CheckResult]], context: Host) -> CheckResult:
    [found] = check(context)
    return found


# ── clocks ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ahead_s", "verdict", "words"),
    [
        (0.5, Verdict.OK, ""),
        (-1.9, Verdict.OK, ""),
        (5.0, Verdict.WARN, "this clock is 5 s ahead of the controller's"),
        (-20.0, Verdict.WARN, "this clock is 20 s behind the controller's"),
        (90.0, Verdict.FAIL, "this clock is 90 s ahead of the controller's"),
        (-3600.0, Verdict.FAIL, "this clock is 3600 s behind the controller's"),
    ],
)
def test_a_clock_that_differs_from_the_controllers_is_told_with_its_direction(
    ahead_s: float, verdict: Verdict, words: str
) -> None:
    found = only(system_checks.clock, host(asked_at=NOW + ahead_s))
    assert found.verdict is verdict
    assert words in found.message
    assert found.fix.startswith("date -s @") or verdict is Verdict.OK


def test_a_slow_answer_is_not_taken_for_a_clock_that_differs() -> None:
    assert only(system_checks.clock, host(asked_at=NOW + 3.0, answer_took_s=3.0)).verdict is Verdict.OK


# ── releases ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_controller_of_another_release_is_told() -> None:
    info = ClusterInfo(cluster="gq", gq_version="0.0.1", started_at=0.0)
    found = only(system_checks.versions, host(answer=Answer(info, {"n1": node("0.0.1")})))
    assert (found.verdict, found.message) == (Verdict.FAIL, f"gqd is 0.0.1, the commands here are {VERSION}")


def test_a_node_daemon_that_was_not_restarted_after_an_upgrade_is_told() -> None:
    info = ClusterInfo(cluster="gq", gq_version=VERSION, started_at=0.0)
    found = only(system_checks.versions, host(answer=Answer(info, {"n1": node("0.0.1")})))
    assert (found.verdict, found.message) == (Verdict.FAIL, f"gqnode of n1 is 0.0.1, gqd is {VERSION}")
    assert "gqnode" in found.fix


def test_a_daemon_that_speaks_another_version_of_the_protocol_is_told_to_be_of_another_release() -> None:
    error = Refusal("wrong_version", "this controller speaks versions 1 to 1 of the protocol, not 2")
    found = only(system_checks.answering, host(identity=None, answer=None, answer_error=error))
    assert found.verdict is Verdict.FAIL
    assert "of different releases: this controller speaks versions 1 to 1" in found.message


def test_the_nodes_of_gq_toml_are_counted_in_plain_english() -> None:
    [found] = system_checks.configuration(host())

    assert found.message == "/etc/gq/gq.toml: 1 node"


# ── partitions ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_partition_that_names_nodes_which_never_registered_is_told() -> None:
    text = '[[partition]]\nname = "main"\ndefault = true\n[[partition]]\nname = "a"\nnodes = ["n1", "n[7-8]"]\n'
    well = host()
    context = CheckContext(
        location=well.location, config=parse_config(text, "gq.toml"), config_error=None, answer=well.answer, now=NOW
    )

    [found] = partitions(context)
    assert (found.check, found.verdict) == ("partition a", Verdict.WARN)
    assert found.message == "names nodes that have never registered: n[7-8]"
    assert "gqctl config reload" in found.fix


# ── units ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("program", ["gqd", "gqnode"])
def test_what_starts_a_daemon_is_its_own_command_with_systemd_and_without(program: str) -> None:
    elsewhere = host(location=system_location("/srv/gq.toml"))

    assert system.start_command(host(), program) == f"{program} start"
    assert system.restart_command(host(), program) == f"{program} restart"
    assert system.restart_command(elsewhere, program) == f"{program} --config /srv/gq.toml restart"


def test_a_unit_that_takes_the_control_groups_away_is_told_and_the_edit_mends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "UNIT_DIRS", (str(tmp_path),))
    unit = tmp_path / "gqnode.service"
    unit.write_text("[Unit]\nDescription=x\n[Service]\nKillMode=process\n")

    found = only(system_checks.unit, host())
    assert found.verdict is Verdict.FAIL
    assert "has no Delegate=yes" in found.message
    edit = found.fix.partition(" && ")[0]
    subprocess.run(["sh", "-c", edit], check=True)

    assert unit.read_text() == "[Unit]\nDescription=x\n[Service]\nDelegate=yes\nKillMode=process\n"
    assert list(system_checks.unit(host())) == []


# ── isolation ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_not_enforced_is_told_with_its_reason() -> None:
    config = parse_config(CONFIG + 'isolation = {memory = "watched"}\n', "/etc/gq/gq.toml")
    full = dict.fromkeys(("cpu", "cpuset", "devices", "pids", "kill"), "cgroup2")
    info = ClusterInfo(cluster="gq", gq_version=VERSION, started_at=0.0)
    context = host(
        config=config, node=config.nodes[0], answer=Answer(info, {"n1": node(VERSION, memory="watched", **full)})
    )

    first, second = machine_checks.isolation(context)

    assert first.verdict is Verdict.OK
    assert (second.verdict, second.message) == (
        Verdict.WARN,
        "memory is `watched` because [[node]] isolation in gq.toml says memory = 'watched'",
    )


# ── what jobs leave ───────────────────────────────────────────────────────────────────────────────────────────


def leaving(settings: str, tmp: str, why: str, monkeypatch: pytest.MonkeyPatch, path: str = "/etc/gq/gq.toml") -> Host:
    monkeypatch.setattr(machine_checks.job_tmp, "why_not", lambda state_dir: why)
    config = parse_config(CONFIG + settings, path)
    info = ClusterInfo(cluster="gq", gq_version=VERSION, started_at=0.0)
    answer = Answer(info, {"n1": node(VERSION, tmp=tmp)})
    return host(config=config, node=config.nodes[0], answer=answer, location=system_location(path), processes=())


@pytest.mark.parametrize(
    ("settings", "tmp", "why", "verdict", "words"),
    [
        ("private_tmp = true", "private", "", Verdict.OK, "emptied when it ends"),
        ("private_tmp = true", "shared", "", Verdict.WARN, "was started before it did"),
        ("private_tmp = true", "shared", "no mounts", Verdict.FAIL, "gqnode cannot start: no mounts"),
        ("private_tmp = false", "shared", "", Verdict.OK, "as /etc/gq/gq.toml says"),
        ("", "shared", "no mounts", Verdict.OK, "jobs share /tmp and /dev/shm: no mounts"),
        ("", "shared", "", Verdict.WARN, "what one leaves there, or fills, the next one finds"),
    ],
)
def test_jobs_that_share_tmp_are_told_with_the_way_to_hold_them_apart(
    settings: str, tmp: str, why: str, verdict: Verdict, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = only(machine_checks.leftovers, leaving(settings, tmp, why, monkeypatch))
    assert found.verdict is verdict
    assert words in found.message
    assert bool(found.fix) == (verdict is not Verdict.OK)


@pytest.mark.parametrize(("settings", "why", "after"), [("", "", True), ("private_tmp = true\n", "no mounts", False)])
def test_the_edit_that_the_doctor_prints_for_tmp_can_be_read_again(
    settings: str, why: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gq.toml"
    path.write_text(CONFIG + settings)

    found = only(machine_checks.leftovers, leaving(settings, "shared", why, monkeypatch, str(path)))
    subprocess.run(["sh", "-c", found.fix.partition("; ")[0]], check=True)

    assert parse_config(path.read_text(), str(path)).node("n1").private_tmp is after


# ── outside of the cluster ────────────────────────────────────────────────────────────────────────────────────


def test_a_machine_outside_the_cluster_is_no_node_that_has_not_joined() -> None:
    text = f'[client]\ncontroller = "tcp://127.0.0.1:9"\nserver_key = "{"x" * 40}"\n'
    outside = host(config=parse_config(text, "/etc/gq/gq.toml"), node=None, processes=())

    assert only(system_checks.role, outside).verdict is Verdict.OK
    assert list(system_checks.running(outside)) == []
    network = only(network_checks.controller_port, outside)
    assert network.verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("words", "is_so"),
    [
        (["0100007F"], True),
        (["0000000000000000FFFF00000100007F"], True),
        (["00000000000000000000000001000000"], True),
        (["00000000"], False),
        (["0100007F", "0200140A"], False),
        ([], False),
    ],
)
def test_a_port_on_loopback_is_known_by_the_kernels_words(words: list[str], is_so: bool) -> None:
    assert network_checks.only_loopback(words) is is_so


# ── what was mended since ─────────────────────────────────────────────────────────────────────────────────────


def instant(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().isoformat(timespec="milliseconds")


@pytest.mark.parametrize("as_json", [False, True])
def test_errors_of_a_former_life_of_a_daemon_that_runs_are_not_told(tmp_path: Path, as_json: bool) -> None:
    log = tmp_path / "gqd.log"
    began = started_at(os.getpid())

    def line(at: float, level: str, message: str) -> str:
        if as_json:
            return json.dumps({"at": instant(at), "level": level, "message": message})
        return f"{instant(at)} {level:7} {message}"

    old, serves, fresh = (
        line(began - 60, "error", "the disk is full"),
        line(began + 1, "info", "gqd is ready"),
        line(began + 2, "error", "the hook fails"),
    )
    log.write_text("\n".join([old, "error: the database is damaged", serves, fresh, ""]))

    assert recent_errors(log, os.getpid()) == [fresh]
    assert recent_errors(log) == [old, "error: the database is damaged", fresh], "it does not run"
    log.write_text(f"{old}\n")
    assert recent_errors(log, os.getpid()) == []


def test_a_gq_toml_that_was_wrong_is_told_until_a_good_one_was_read(tmp_path: Path) -> None:
    log = tmp_path / "gqd.log"
    wrong = "2026-01-01T00:00:00.000+00:00 error   gq.toml was not reloaded, and nothing has changed: no"
    log.write_text(f"{wrong}\n")
    assert recent_errors(log) == [wrong]

    log.write_text(f"{wrong}\n2026-01-01T00:01:00.000+00:00 info    gq.toml was reloaded: in force: limits.jobs\n")
    assert recent_errors(log) == []


@pytest.mark.parametrize(
    "refused",
    [
        "does not accept this node's key: add its public key to keys/nodes there",
        "breaks off the handshake: is keys/gqd.pub here its public key?",
    ],
)
def test_a_key_that_was_not_accepted_is_told_until_the_node_is_part_of_the_cluster(
    tmp_path: Path, refused: str
) -> None:
    log = tmp_path / "gqnode.log"
    wrong = f"2026-01-01T00:00:00.000+00:00 error   the controller at tcp://head:7133 {refused}"
    joined = "2026-01-01T00:01:00.000+00:00 info    node n1 is part of cluster lab"
    log.write_text(f"{wrong}\n")
    assert recent_errors(log) == [wrong]
    log.write_text(f"{wrong}\n{joined}\n{wrong}\n")
    assert recent_errors(log) == [wrong]
    log.write_text(f"{wrong}\n{joined}\n")
    assert recent_errors(log) == []


# ── why a daemon does not run ─────────────────────────────────────────────────────────────────────────────────

DAMAGED = "/srv/gq.db cannot be used as the database: database disk image is malformed"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"some line\nerror: {DAMAGED}\nhint: restore a copy\n", (DAMAGED, "restore a copy")),
        (f"error: {DAMAGED}\n", (DAMAGED, "")),
        (f"error: {DAMAGED}\n2026-01-01T00:01:00.000+00:00 info    gqd stops\n", None),
        ("", None),
    ],
)
def test_the_error_that_a_daemon_ended_with_is_the_end_of_its_log(
    tmp_path: Path, text: str, expected: tuple[str, str] | None
) -> None:
    (tmp_path / "gqd.log").write_text(text)

    assert last_error(tmp_path / "gqd.log") == expected
    assert last_error(tmp_path / "missing.log") is None


def test_a_damaged_database_is_told_before_all_that_follows_from_it(tmp_path: Path) -> None:
    (tmp_path / "gqd.log").write_text(f"error: {DAMAGED}\nhint: restore a copy\n")
    location = Location(f"{tmp_path}/gq.toml", str(tmp_path), str(tmp_path), is_private=True)
    context = CheckContext(location=location, config=None, config_error=None, answer=None, now=NOW)

    found = [*private_checks.running(context), *private_checks.answering(context), *private_checks.logs(context)]

    assert [(one.check, one.verdict, one.message, one.fix) for one in found] == [
        ("gqd", Verdict.FAIL, f"{DAMAGED} (gqd does not run)", "restore a copy; then `gq up`"),
        ("controller", Verdict.FAIL, "gqd does not answer", "see the finding gqd"),
        ("logs", Verdict.OK, "no other errors", ""),
    ]


def test_on_a_host_of_the_system_a_damaged_database_is_the_finding_about_gqd(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system_checks, "LOG_DIR", str(tmp_path))
    (tmp_path / "gqd.log").write_text(f"error: {DAMAGED}\nhint: restore a copy\n")
    silent = host(is_controller=True, node=None, processes=(), identity=None, answer=None)

    found = only(system_checks.running, silent)

    assert (found.message, found.fix) == (f"{DAMAGED} (gqd does not run)", "restore a copy; then gqd start")
    assert only(system_checks.answering, silent).fix == "see the finding gqd"
    assert list(system_checks.logs(silent)) == [], "it is told once"


# ── where there is no cluster ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uid", "message", "fix"),
    [
        (0, "does not exist", "`gqd init --start` sets up a cluster for all users"),
        (1000, "does not exist, and you have no private cluster", "`gq up` starts a private cluster; as root, "),
    ],
)
def test_a_host_without_a_cluster_is_told_to_belong_to_none(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, message: str, fix: str
) -> None:
    for name in ("GQ_DIR", "GQ_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("gq.connection.locate.SYSTEM_CONFIG", f"{tmp_path}/gq.toml")
    monkeypatch.setattr(os, "geteuid", lambda: uid)

    done = run("gq", "doctor", "--json")

    [found] = [one for one in json.loads(done.out) if one["verdict"] == "fail"]
    assert done.status == 1 and found["check"] == "cluster"
    assert found["message"].startswith("this host belongs to no cluster") and found["message"].endswith(message)
    assert found["mend"].startswith(fix)


def test_on_a_terminal_no_line_of_the_doctor_is_wider_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")

    doctor._write([CheckResult("partition main", Verdict.WARN, "some words " * 20, "other words " * 20)])

    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) > 6
    assert all(line.startswith(" " * 22) for line in lines[1:-1])
    assert " ".join(" ".join(lines[1:-1]).split()).count("other words") == 20


def test_a_host_that_has_joined_since_it_was_turned_away_is_not_told() -> None:
    refused = AuditEntry(at=10.0, user="", origin="192.0.2.7", action="HandshakeRefused", outcome="refused")
    impostor = msgspec.structs.replace(refused, action="Impostor")

    assert system._is_fixed(refused, {"192.0.2.7": 20.0})
    assert not system._is_fixed(refused, {"192.0.2.7": 5.0}), "it was turned away again"
    assert not system._is_fixed(refused, {"192.0.2.8": 20.0})
    assert not system._is_fixed(impostor, {"192.0.2.7": 20.0}), "no mistake that joining mends"


# ── a private cluster of another user ─────────────────────────────────────────────────────────────────────────


@needs_root
def test_root_looks_over_the_cluster_of_another_user_without_a_false_failure(tmp_path: Path) -> None:
    directory, sockets = tmp_path / "c", tmp_path / "run"
    for path in (directory, sockets):
        path.mkdir(mode=0o700)
        os.chown(path, 4321, 4321)
    location = Location(f"{directory}/gq.toml", str(directory), str(sockets), is_private=True)
    context = CheckContext(location=location, config=None, config_error=None, answer=None, now=0.0)

    found = [*private_checks.directory(context), *private_checks.sockets(context)]

    assert [one.verdict for one in found] == [Verdict.OK, Verdict.OK]
    assert found[0].message == f"{directory} is uid 4321's alone"
    os.chown(sockets, 0, 0)
    [wrong] = private_checks.sockets(context)
    assert wrong.verdict is Verdict.FAIL
