"""A real gqnode with real processes, against a controller that a test speaks for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.connection.locate import Location
from gq.model.ids import AttemptId, JobId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.wire import node as wire
from tests.node.controller import CONFIG, NodeProcess, ScriptedController, launch_of, private_cluster

ATTEMPT = AttemptId(JobId(7), 1)


@pytest.fixture
def location(tmp_path: Path) -> Iterator[Location]:
    with private_cluster(tmp_path / "cluster") as found:
        yield found


@pytest.fixture
def controller(location: Location) -> Iterator[ScriptedController]:
    controller = ScriptedController(location.node_endpoint)
    controller.bind()
    yield controller
    controller.close()


@pytest.fixture
def node(location: Location) -> Iterator[NodeProcess]:
    process = NodeProcess(location)
    yield process
    process.close()


def _until(path: Path, text: str, within_s: float = 20.0) -> None:
    deadline = time.monotonic() + within_s
    while not (path.exists() and text in path.read_text()):
        assert time.monotonic() < deadline, f"{text!r} is not in {path}: {path.exists() and path.read_text()!r}"
        time.sleep(0.01)


def _spool_is_empty(location: Location) -> bool:
    return not [entry for entry in Path(location.state_dir, "nodes", "n1").iterdir() if entry.name[0].isdigit()]


def test_a_job_runs_and_its_end_is_reported_with_its_exit_code(
    location: Location, controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    hello = controller.hear(lambda: controller.hellos and controller.hellos[0])
    assert (hello.node, hello.inventory.cpus, hello.inventory.memory_mib) == ("n1", 4, 4096)
    assert hello.step_endpoint == location.step_endpoint("n1")
    output = tmp_path / "out.txt"
    script = b"#!/bin/sh\necho job $GQ_JOB_ID on $GQ_NODELIST gpus=[$CUDA_VISIBLE_DEVICES] $GREETING $GQ_DIR\nexit 3\n"
    launch, blobs = launch_of(script, {"GREETING": "hi", "PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")

    controller.launch(launch, blobs)

    started = controller.report(wire.Started)
    ended = controller.report(wire.AttemptEnded)
    assert started.attempt_id == ATTEMPT
    assert 20000 <= started.master_port <= 20999
    assert (ended.outcome, ended.exit, ended.cell_emptied) == (Outcome.FAILED, ExitStatus(code=3), True)
    assert output.read_text() == f"job 7 on n1 gpus=[] hi {location.state_dir}\n"
    kinds = [type(report) for report in controller.reports]
    assert kinds == [wire.PrepareReceived, wire.Prepared, wire.GoReceived, wire.Started, wire.AttemptEnded]
    controller.hear(lambda: _spool_is_empty(location))


def test_a_job_outlives_its_killed_daemon_and_its_exit_is_reported_by_the_next(
    location: Location, controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"#!/bin/sh\necho begun\nread line < {gate}\necho $line\nexit 5\n".encode()
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    controller.report(wire.Started)
    _until(tmp_path / "out.txt", "begun")

    node.kill()
    controller.reports.clear()
    node.start()

    again = controller.hear(lambda: controller.hellos[1:] and controller.hellos[1])
    assert again.incarnation != controller.hellos[0].incarnation
    assert [(status.attempt_id, status.phase) for status in again.attempts] == [(ATTEMPT, "running")]
    gate.write_text("gone on\n")
    ended = controller.report(wire.AttemptEnded)
    assert (ended.outcome, ended.exit) == (Outcome.FAILED, ExitStatus(code=5))
    assert (tmp_path / "out.txt").read_text() == "begun\ngone on\n"


def test_an_end_that_happened_while_no_daemon_ran_is_reported_by_the_next(
    location: Location, controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"#!/bin/sh\necho begun\nread line < {gate}\necho over\n".encode()
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    controller.report(wire.Started)
    _until(tmp_path / "out.txt", "begun")
    assert node.kill(signal.SIGTERM) == 0
    gate.write_text("go\n")
    _until(tmp_path / "out.txt", "over")

    node.start()

    ended = controller.report(wire.AttemptEnded)
    assert (ended.outcome, ended.exit, ended.cell_emptied) == (Outcome.COMPLETED, ExitStatus(), True)


def test_a_report_is_repeated_to_a_controller_that_was_away(
    location: Location, node: NodeProcess, tmp_path: Path
) -> None:
    first = ScriptedController(location.node_endpoint, acknowledges=False)
    first.bind()
    node.start()
    first.hear(lambda: first.hellos)
    launch, blobs = launch_of(b"#!/bin/sh\nexit 0\n", {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    first.launch(launch, blobs)
    first.report(wire.AttemptEnded)
    first.close()

    second = ScriptedController(location.node_endpoint)
    second.bind()
    hello = second.hear(lambda: second.hellos and second.hellos[0])
    second.report(wire.AttemptEnded)
    second.hear(lambda: _spool_is_empty(location))
    second.close()

    assert [status.phase for status in hello.attempts] == ["ended"]


def test_the_time_limit_ends_a_job_that_ignores_term_after_its_grace(
    location: Location, controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    script = b"#!/bin/sh\ntrap '' TERM\nwhile :; do sleep 0.1; done\n"
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt", time_limit_s=1, grace_s=1)

    controller.launch(launch, blobs)

    ended = controller.report(wire.AttemptEnded)
    assert (ended.outcome, ended.exit) == (Outcome.TIMEOUT, ExitStatus(signal=9))
    assert ended.started_at is not None
    assert 1.9 <= ended.ended_at - ended.started_at <= 10
    _until(tmp_path / "out.txt", "*** JOB 7 ON n1 CANCELLED AT 2")
    assert "DUE TO TIME LIMIT ***" in (tmp_path / "out.txt").read_text()


def test_a_stop_ends_the_job_and_all_that_it_left_behind(
    location: Location, controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    script = f"#!/bin/sh\nsetsid sleep 1000 &\necho $! > {tmp_path}/pid\necho up\nwait\n".encode()
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    _until(tmp_path / "out.txt", "up")

    controller.order(wire.Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, text="CANCELLED AT {time}"))

    ended = controller.report(wire.AttemptEnded)
    assert (ended.outcome, ended.exit, ended.cell_emptied) == (Outcome.CANCELLED, ExitStatus(signal=15), True)
    _until(tmp_path / "out.txt", "*** JOB 7 ON n1 CANCELLED AT 2")
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


def test_what_a_script_runs_may_finish_its_work_within_the_grace_though_the_shell_has_died(
    controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    worker = tmp_path / "worker"
    worker.write_text("#!/bin/sh\ntrap 'sleep 1; echo saved; exit 0' TERM\necho up\nwhile :; do sleep 0.1; done\n")
    worker.chmod(0o755)
    script = f"#!/bin/sh\n{worker}\necho never\n".encode()
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    _until(tmp_path / "out.txt", "up")

    controller.order(wire.Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=600))

    ended = controller.report(wire.AttemptEnded)
    assert (ended.outcome, ended.exit, ended.cell_emptied) == (Outcome.CANCELLED, ExitStatus(signal=15), True)
    lines = (tmp_path / "out.txt").read_text().splitlines()
    assert (lines[0], lines[-1]) == ("up", "saved")


def test_a_stop_for_an_attempt_that_is_not_here_is_answered_at_once(
    controller: ScriptedController, node: NodeProcess
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)

    controller.order(wire.Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED))

    assert controller.report(wire.CellEmptied).attempt_id == ATTEMPT


def test_heartbeats_go_on_and_an_unwelcome_node_ends_with_the_reason(
    controller: ScriptedController, node: NodeProcess
) -> None:
    node.start()
    controller.hear(lambda: controller.heartbeats >= 2)

    controller.say(wire.Unwelcome(why="this name is taken"))

    assert node.wait() == 1
    assert "this name is taken" in node.log()


def test_a_node_that_is_removed_ends_what_it_runs_though_it_does_not_listen_before_it_ends_itself(
    tmp_path: Path,
) -> None:
    config = CONFIG.replace("[timers]", "[timers]\ngrace_s = 1")
    with private_cluster(tmp_path / "cluster", config) as location:
        controller, node = ScriptedController(location.node_endpoint), NodeProcess(location)
        controller.bind()
        try:
            pid = _run_deaf(controller, node, tmp_path)
            controller.say(wire.Unwelcome(why="it was removed by adam", is_removed=True))

            assert node.wait() == 1
            assert not Path(f"/proc/{pid}").exists()
            assert "all jobs of this node have ended" in node.log()
        finally:
            node.close()
            controller.close()


def test_a_node_that_is_only_not_let_in_leaves_its_jobs_alone(
    controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    pid = _run_deaf(controller, node, tmp_path)

    controller.say(wire.Unwelcome(why="it speaks version 1; this controller speaks 2 to 3"))

    assert node.wait() == 1
    assert Path(f"/proc/{pid}").exists()
    node.start()
    controller.hear(lambda: len(controller.hellos) > 1)
    controller.order(wire.Stop(attempt_id=ATTEMPT, outcome=Outcome.CANCELLED, grace_s=0))
    assert controller.report(wire.AttemptEnded).outcome is Outcome.CANCELLED


def _run_deaf(controller: ScriptedController, node: NodeProcess, tmp_path: Path) -> int:
    """Process id of a part of a running job, in a session of its own, which ignores TERM."""
    node.start()
    controller.hear(lambda: controller.hellos)
    script = f"#!/bin/sh\ntrap '' TERM\nsetsid sleep 1000 &\necho $! > {tmp_path}/pid\necho up\nwait\n".encode()
    launch, blobs = launch_of(script, {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    _until(tmp_path / "out.txt", "up")
    return int((tmp_path / "pid").read_text())


def test_an_end_that_nobody_heard_is_said_by_the_next_daemon(
    controller: ScriptedController, node: NodeProcess, tmp_path: Path
) -> None:
    controller.acknowledges = False
    node.start()
    controller.hear(lambda: controller.hellos)
    launch, blobs = launch_of(b"#!/bin/sh\nexit 3\n", {"PATH": os.environ["PATH"]}, f"{tmp_path}/out.txt")
    controller.launch(launch, blobs)
    ended = controller.report(wire.AttemptEnded)
    assert node.kill(signal.SIGTERM) == 0

    controller.reports.clear()
    controller.acknowledges = True
    node.start()

    assert controller.report(wire.AttemptEnded) == ended


def test_a_second_daemon_of_the_same_name_is_refused(
    location: Location, controller: ScriptedController, node: NodeProcess
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    second = NodeProcess(location)
    second.start()

    assert second.wait() == 1

    assert "error: a gqnode for n1 is already running" in node.log()
    controller.hear(lambda: controller.heartbeats >= 2)


def test_random_bytes_from_the_controller_are_dropped_and_the_node_goes_on(
    controller: ScriptedController, node: NodeProcess
) -> None:
    node.start()
    controller.hear(lambda: controller.hellos)
    controller.socket.send_multipart([controller._peer, os.urandom(200)])
    controller.socket.send_multipart([controller._peer, b"two", b"frames"])
    before = controller.heartbeats

    controller.hear(lambda: controller.heartbeats > before + 1)

    assert len(controller.hellos) == 1
