"""Shepherds that rest after an attempt and hold the next one."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.model.ids import AttemptId
from gq.model.job import ExitStatus
from gqnode.control.input import ProcessEnded, ProcessStarted, StepTasksEnded
from gqnode.daemon import shepherds as pool_module
from gqnode.daemon.shepherds import TreeEmpty, connect_in
from gqnode.shepherd.processes import read_process
from tests.node.shepherd_host import ShepherdHost, shepherd_host, shepherds


@pytest.fixture
def host(tmp_path: Path) -> Iterator[ShepherdHost]:
    with shepherd_host(tmp_path) as host:
        yield host


def is_there(pid: int) -> bool:
    return read_process(pid) is not None


def start(host: ShepherdHost, job: int, script: str) -> tuple[AttemptId, int]:
    """With the process that holds it."""
    attempt_id = host.start(job, script=f"#!/bin/sh\n{script}\n", chdir=str(host.root))
    host.await_event(ProcessStarted, attempt_id=attempt_id)
    return attempt_id, host.pool.shepherd_pid(attempt_id)


def over(host: ShepherdHost, attempt_id: AttemptId) -> ProcessEnded:
    """How the script ended, once its shepherd holds nothing of it any more."""
    host.do(host.pool.empty, attempt_id)
    ended = host.await_event(ProcessEnded, attempt_id=attempt_id)
    host.await_event(TreeEmpty, attempt_id=attempt_id)
    host.until(lambda: host.pool.shepherd_pid(attempt_id) == 0, "the shepherd to have done with it")
    return ended


def rested(host: ShepherdHost, job: int = 1) -> int:
    """A shepherd that has held an attempt and is free."""
    attempt_id, pid = start(host, job, "exec sleep 1000")
    over(host, attempt_id)
    assert is_there(pid)
    return pid


def test_one_shepherd_holds_one_attempt_after_the_other_and_knows_each_alone(host: ShepherdHost) -> None:
    pid = rested(host)
    attempt_id, same = start(host, 2, 'test "$GQ_CELL" = "$PWD/2.1" && test -e 2.1/ctl && until test -e go; do :; done')
    assert same == pid
    assert len(host.processes(attempt_id)) >= 1
    (host.root / "go").touch()
    assert host.await_event(ProcessEnded, attempt_id=attempt_id).exit == ExitStatus(code=0)
    over(host, attempt_id)
    another, same = start(host, 3, "kill -KILL $$")
    assert over(host, another).exit == ExitStatus(signal=signal.SIGKILL)
    assert len([event for event in host.events if isinstance(event, TreeEmpty)]) == 3


def test_no_door_of_an_attempt_that_is_over_leads_to_the_next_one(host: ShepherdHost) -> None:
    rested(host)
    start(host, 2, "exec sleep 1000")
    assert connect_in(str(host.root / "1.1"), "ctl") is None
    door = connect_in(str(host.root / "2.1"), "ctl")
    assert door is not None
    door.close()


def test_an_attempt_is_not_started_again_when_its_shepherd_has_gone_on_to_another(host: ShepherdHost) -> None:
    attempt_id, _ = start(host, 1, "echo run >> runs")
    host.await_event(ProcessEnded, attempt_id=attempt_id)
    over(host, attempt_id)
    start(host, 2, "exec sleep 1000")
    host.events.clear()
    host.start(1, script="#!/bin/sh\necho run >> runs\n", chdir=str(host.root))
    assert host.await_event(ProcessEnded, attempt_id=attempt_id).exit == ExitStatus(code=0)
    assert (host.root / "runs").read_text() == "run\n"


def test_shepherds_that_are_gone_leave_no_door(host: ShepherdHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 0.1)
    pid = rested(host)
    host.until(lambda: not is_there(pid), "the shepherd to end")
    assert sorted(path.name for path in host.root.iterdir()) == ["1.1"]


def test_what_is_ordered_right_behind_the_begin_reaches_the_next_attempt(host: ShepherdHost) -> None:
    pid = rested(host)
    attempt_id = host.start(2, script="#!/bin/sh\nsleep 1000\n")
    host.do(host.pool.signal, attempt_id, signal.SIGKILL, "all")
    host.do(host.pool.empty, attempt_id)
    assert host.await_event(ProcessEnded, attempt_id=attempt_id).exit == ExitStatus(signal=signal.SIGKILL)
    host.await_event(TreeEmpty, attempt_id=attempt_id)
    assert is_there(pid)


def test_a_shepherd_that_died_at_rest_is_replaced_by_a_new_one(host: ShepherdHost) -> None:
    pid = rested(host)
    os.kill(pid, signal.SIGSTOP)  # it cannot take the attempt, and the daemon cannot know
    os.kill(pid, signal.SIGKILL)
    attempt_id, other = start(host, 2, "exec sleep 1000")
    assert is_there(other) and not is_there(pid)
    assert not over(host, attempt_id).why


def test_a_shepherd_that_was_stopped_at_rest_is_woken_for_the_next_attempt(host: ShepherdHost) -> None:
    pid = rested(host)
    os.kill(pid, signal.SIGSTOP)
    attempt_id, same = start(host, 2, "exec sleep 1000")
    assert same == pid
    assert not over(host, attempt_id).why


def test_nobody_rests_without_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 1e6)
    with shepherd_host(tmp_path) as first:
        pid = rested(first)
        first.end()
        with shepherd_host(tmp_path) as second:
            second.until(lambda: not is_there(pid), "the shepherd to end")
            assert shepherds(tmp_path) == []


def test_a_shepherd_that_is_idle_for_long_ends(host: ShepherdHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 0.1)
    pid = rested(host)
    host.until(lambda: not is_there(pid), "the shepherd to end")
    attempt_id, _ = start(host, 2, "exit 4")
    assert host.await_event(ProcessEnded, attempt_id=attempt_id).exit == ExitStatus(code=4)


def test_a_shepherd_of_steps_holds_no_other_attempt(host: ShepherdHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_S", 1e6)  # it is not let go for having rested
    attempt_id, pid = start(host, 1, "exec sleep 1000")
    step_id = host.start_tasks(attempt_id, ["true"])
    host.await_event(StepTasksEnded, step_id=step_id)
    host.do(host.pool.steps.detach, step_id)
    over(host, attempt_id)
    host.until(lambda: not is_there(pid), "the shepherd to end")
    _, other = start(host, 2, "exec sleep 1000")
    assert other != pid
