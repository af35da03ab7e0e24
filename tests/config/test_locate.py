"""Which cluster a command means, and where its sockets are."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gq.connection import locate
from gq.connection.client import Client
from gq.connection.locate import (
    MAX_SOCKET_PATH,
    Location,
    crashed_private_cluster,
    explain_choice,
    find_cluster,
    make_run_dir,
    make_state_dir,
    private_location,
    system_location,
    why_chosen,
)
from gq.errors import Refusal, Unreachable
from gq.wire.client import Ping
from tests.requires import needs_root
from tests.shell.rig import short_directory
from tests.shell.shared import as_uid

NOBODY = 65534


@pytest.fixture
def no_system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a system cluster, until the file is written."""
    config = tmp_path / "etc.toml"
    monkeypatch.setattr(locate, "SYSTEM_CONFIG", str(config))
    return config


def test_the_order_is_gq_dir_then_gq_config_then_the_users_own_then_the_systems(
    no_system: Path, tmp_path: Path
) -> None:
    own = tmp_path / "state" / "gq"
    own.mkdir(parents=True)
    environ = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    no_system.touch()
    assert find_cluster(environ).config_path == str(no_system)
    (own / "gq.toml").touch()
    assert find_cluster(environ).config_path == str(no_system), "the user's own is down"
    no_system.unlink()
    assert find_cluster(environ).state_dir == str(own)
    assert find_cluster({**environ, "GQ_CONFIG": "/x/y.toml"}).config_path == "/x/y.toml"
    both = {**environ, "GQ_CONFIG": "/x/y.toml", "GQ_DIR": str(tmp_path / "d")}
    assert find_cluster(both).state_dir == str(tmp_path / "d")


def test_where_there_is_no_cluster_the_way_out_is_said(no_system: Path, tmp_path: Path) -> None:
    with pytest.raises(Unreachable) as caught:
        find_cluster({"HOME": str(tmp_path)})
    assert caught.value.exit_status == 3
    assert "gq up" in caught.value.hint
    assert str(tmp_path / ".local/state/gq") in caught.value.message
    assert "as root, `gqd init --start` sets up a cluster for all users" in caught.value.hint


def test_a_home_that_is_closed_to_this_user_holds_no_private_cluster(no_system: Path, tmp_path: Path) -> None:
    """As under `runuser -u ada`, which leaves HOME as it was."""
    home = tmp_path / "home"
    home.mkdir(mode=0o000)
    system = system_location("/nowhere/gq.toml")

    def said() -> str:
        reason = why_chosen(system, {"HOME": str(home)})
        with pytest.raises(Unreachable) as caught:
            find_cluster({"HOME": str(home)})
        return f"{caught.value.code}: {reason}"

    told = said() if os.geteuid() else asyncio.run(as_uid(NOBODY, NOBODY, said))

    assert told == "no_cluster: this cluster was chosen because you have no private one"


def test_a_job_finds_the_cluster_that_started_it(tmp_path: Path, no_system: Path) -> None:
    for location in (private_location(str(tmp_path / "d"), {}), locate.system_location("/x/y.toml")):
        assert find_cluster(location.environment()) == location


def test_a_directory_that_cannot_be_looked_into_is_refused(tmp_path: Path) -> None:
    too_long = f"{tmp_path}/{'x' * 300}"
    with pytest.raises(Refusal, match=f"cannot look into {too_long}: File name too long") as caught:
        private_location(too_long, {})
    assert "GQ_DIR" in caught.value.hint


def test_a_private_cluster_is_found_under_any_environment_once_its_sockets_are_made() -> None:
    with short_directory() as directory, short_directory() as runtime:
        made = private_location(directory, {"XDG_RUNTIME_DIR": runtime})
        assert made.run_dir.startswith(f"{runtime}/gq/")
        make_run_dir(made)
        assert private_location(directory, {}) == made
        assert private_location(directory, {"XDG_RUNTIME_DIR": "/nowhere"}) == made
        assert Path(made.run_dir).stat().st_mode & 0o777 == 0o700


def test_a_long_runtime_directory_is_not_used_for_sockets(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    location = private_location(str(tmp_path / "d"), {"XDG_RUNTIME_DIR": str(long)})
    assert location.run_dir.startswith("/tmp/")
    endpoint = location.step_endpoint("n1")
    assert len(endpoint.removeprefix("ipc://")) <= MAX_SOCKET_PATH


def test_two_directories_never_share_sockets(tmp_path: Path) -> None:
    one, other = (private_location(str(tmp_path / name), {}).run_dir for name in ("a", "b"))
    assert one != other


def test_after_a_reboot_the_directory_of_the_sockets_is_made_anew() -> None:
    with short_directory() as directory, short_directory() as gone, short_directory() as now:
        first = private_location(directory, {"XDG_RUNTIME_DIR": gone})
        make_run_dir(first)
        Path(first.run_dir).rmdir()
        second = private_location(directory, {"XDG_RUNTIME_DIR": now})
        make_run_dir(second)
        assert second.run_dir.startswith(now)
        assert private_location(directory, {}) == second


def test_a_directory_that_others_can_reach_into_is_shut_and_a_link_is_refused() -> None:
    with short_directory() as directory, short_directory() as runtime:
        location = private_location(directory, {"XDG_RUNTIME_DIR": runtime})
        Path(location.run_dir).mkdir(parents=True, mode=0o755)
        make_run_dir(location)
        assert Path(location.run_dir).stat().st_mode & 0o077 == 0
    with short_directory() as directory, short_directory() as runtime, short_directory() as elsewhere:
        location = private_location(directory, {"XDG_RUNTIME_DIR": runtime})
        Path(location.run_dir).parent.mkdir()
        Path(location.run_dir).symlink_to(elsewhere)
        with pytest.raises(Refusal) as caught:
            make_run_dir(location)
        assert caught.value.code == "unsafe_directory"


def test_a_node_name_that_makes_a_socket_too_long_is_refused(tmp_path: Path) -> None:
    location = Location("/c", "/s", f"/{'r' * 60}", is_private=True)
    assert location.step_endpoint("n1").endswith("/step-n1.sock")
    with pytest.raises(Refusal) as caught:
        location.step_endpoint("n" * 60)
    assert caught.value.code == "path_too_long"


def test_finding_a_cluster_imports_nothing_heavy() -> None:
    import subprocess
    import sys

    heavy = "{'zmq', 'msgspec', 'tomllib', 'asyncio', 'hashlib', 'typer', 'gq.wire', 'gq.config.config'}"
    code = f"import sys, gq.connection.locate; print(sorted({heavy} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert ended.stdout.strip() == "[]"


# ── machines outside the cluster ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("toml", "is_remote"),
    [
        ('[client]\ncontroller = "tcp://10.0.0.1:7134"\n', True),
        ("cluster = 'x'\n  [client]   # by key\n", True),
        ("# [client]\n[controller]\nlisten = 'tcp://*:1'\n", False),
        ("[clients]\n", False),
        ("", False),
    ],
)
def test_commands_go_by_tcp_where_the_file_has_a_client_table(tmp_path: Path, toml: str, is_remote: bool) -> None:
    path = tmp_path / "gq.toml"
    path.write_text(toml)
    assert find_cluster({"GQ_CONFIG": str(path)}).is_remote == is_remote
    assert not system_location(str(path)).is_remote, "daemons never do"


def test_a_file_that_is_not_there_is_complained_of_later(tmp_path: Path) -> None:
    assert not find_cluster({"GQ_CONFIG": str(tmp_path / "nowhere")}).is_remote


# ── whose sockets ─────────────────────────────────────────────────────────────────────────────────────────────


@needs_root
@pytest.mark.parametrize("is_linked", [True, False])
def test_sockets_of_somebody_else_are_not_spoken_to(is_linked: bool) -> None:
    with short_directory() as directory, short_directory() as runtime:
        environ = {"XDG_RUNTIME_DIR": runtime}
        location = private_location(directory, environ)
        if is_linked:
            make_run_dir(location)
        else:
            Path(location.run_dir).mkdir(parents=True)
        os.chown(location.run_dir, 4321, -1)
        with pytest.raises(Refusal) as caught:
            private_location(directory, environ)
        assert caught.value.code == "unsafe_directory"
        assert "4321" in caught.value.message


@needs_root
def test_a_cluster_of_somebody_else_has_sockets_of_its_own_owner() -> None:
    with short_directory() as directory, short_directory() as runtime:
        location = private_location(directory, {"XDG_RUNTIME_DIR": runtime})
        make_run_dir(location)
        for path in (directory, location.run_dir):
            os.chown(path, 4321, -1)
        assert private_location(directory, {}) == location


@needs_root
def test_directories_of_a_shared_cluster_are_made_so_that_others_can_go_through() -> None:
    with short_directory() as directory:
        location = Location(f"{directory}/gq.toml", f"{directory}/state", f"{directory}/run", is_private=False)
        make_state_dir(location)
        make_run_dir(location)
        modes = [Path(path).stat().st_mode & 0o777 for path in (location.state_dir, location.run_dir)]
        assert modes == [0o711, 0o755]
        assert not Path(location.state_dir, "run").exists()


# ── which cluster, and why ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own(no_system: Path) -> Iterator[Path]:
    """The directory of the user's private cluster, and its sockets: made, and nobody listens."""
    with short_directory() as base:
        directory = Path(base, "state", "gq")
        directory.mkdir(parents=True, mode=0o700)
        (directory / "gq.toml").touch()
        make_run_dir(private_location(str(directory), environ_of(directory)))
        yield directory


def environ_of(own: Path) -> dict[str, str]:
    base = own.parent.parent
    return {"HOME": str(base), "XDG_STATE_HOME": str(base / "state"), "XDG_RUNTIME_DIR": str(base)}


@contextmanager
def listening(path: str) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen()
        yield


def test_a_private_cluster_hides_the_systems_only_while_its_controller_runs(no_system: Path, own: Path) -> None:
    no_system.touch()
    private = private_location(str(own), {})
    with listening(private.client_socket):
        assert find_cluster(environ_of(own)) == private
    assert Path(private.client_socket).exists(), "as after a crash"

    assert find_cluster(environ_of(own)) == system_location(str(no_system))


def test_without_a_system_cluster_the_private_one_is_meant_also_while_it_is_down(own: Path) -> None:
    assert find_cluster(environ_of(own)).state_dir == str(own)


def test_a_private_cluster_that_crashed_is_named_and_one_that_was_taken_down_is_not(no_system: Path, own: Path) -> None:
    no_system.touch()
    environ = environ_of(own)
    system = find_cluster(environ)

    assert crashed_private_cluster(system, environ) == str(own)
    assert crashed_private_cluster(system, {**environ, "GQ_CONFIG": str(no_system)}) == ""
    (own / "run").unlink()  # as `gq down` does
    assert crashed_private_cluster(system, environ) == ""


def test_the_reason_for_the_choice_is_said_and_gq_up_only_where_no_system_cluster_is(
    no_system: Path, own: Path
) -> None:
    environ = environ_of(own)
    private = private_location(str(own), environ)
    by_name = {**environ, "GQ_DIR": str(own)}
    assert explain_choice(private, environ) == "this is your own cluster; `gq up` starts it"
    assert explain_choice(private, by_name) == "GQ_DIR names this cluster; `gq up` starts it"

    no_system.touch()
    system = system_location(str(no_system))
    doctor = "run `gq doctor` to find which daemon does not run and how to start it"
    assert explain_choice(private, by_name) == (
        f"GQ_DIR names this cluster; unset GQ_DIR to use the system's cluster, {no_system}"
    )
    assert explain_choice(private, environ) == (
        f"this is your own cluster; `gq status --dir {own}` shows which daemons do not run"
    )
    assert explain_choice(system, environ) == (
        f"this cluster was chosen because your private one in {own} is down; {doctor}"
    )
    assert explain_choice(system, {**environ, "GQ_CONFIG": str(no_system)}) == f"GQ_CONFIG names this cluster; {doctor}"
    (own / "gq.toml").unlink()
    assert explain_choice(system, environ) == f"this cluster was chosen because you have no private one; {doctor}"


@pytest.mark.parametrize("has_system", [False, True])
def test_every_failure_to_reach_a_controller_names_the_cluster_and_the_reason(
    no_system: Path, own: Path, monkeypatch: pytest.MonkeyPatch, has_system: bool
) -> None:
    if has_system:
        no_system.touch()
    monkeypatch.setenv("GQ_DIR", str(own))
    location = private_location(str(own), {})
    with Client(location) as client, pytest.raises(Unreachable) as refused:
        client.ask(Ping())
    with (
        listening(location.client_socket),
        Client(location, timeout_s=0.1) as client,
        pytest.raises(Unreachable) as late,
    ):
        client.ask(Ping())

    assert (refused.value.code, late.value.code) == ("unreachable", "timeout")
    for error in (refused.value, late.value):
        assert f"the private cluster in {own}" in error.message
        assert "GQ_DIR names this cluster" in error.hint
        assert "gq up" not in error.hint or not has_system
