"""Where gqalloc runs its command, on a host that is no node of the allocation."""

from __future__ import annotations

import subprocess

import msgspec
import pytest

from gq.model.resource import Grant
from gq.wire import client as wire
from tests.cli.scripted import ScriptedController, a_job
from tests.clusters import BIN

JOB = a_job(7, state="RUNNING", grants=(Grant(node="g1", cpus=(0, 1), gpus=(1,)), Grant(node="g2")))
ENVIRONMENT = wire.JobEnvironment(job_id=7, variables={"GQ_JOB_ID": "7"}, chdir="/")
COMMAND = ("sh", "-c", "echo [$CUDA_VISIBLE_DEVICES] $GQ_JOB_ID; exit 3")


@pytest.fixture(autouse=True)
def _job(controller: ScriptedController, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is granted at once, to a user who has set what GPUs to use outside of any job."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3")
    monkeypatch.setenv("SHELL", "/bin/sh")
    controller.on(wire.Submit, wire.Submitted(job_id=7))
    controller.on(wire.WaitJobs, lambda body: wire.Waited(jobs=(JOB,), is_done=body.until == "started"))
    controller.on(wire.KeepAlive, wire.Done())
    controller.on(wire.EndInteractive, wire.Done())


def allocate(controller: ScriptedController, *words: str, interactive: bool) -> subprocess.CompletedProcess[str]:
    answer = msgspec.structs.replace(ENVIRONMENT, use_interactive_step=interactive)
    controller.on(wire.GetJobEnvironment, answer)
    argv = [BIN / "gqalloc", "--gpus=1", *words]
    return subprocess.run(argv, input="echo [$CUDA_VISIBLE_DEVICES]", capture_output=True, text=True, check=False)


@pytest.mark.parametrize("interactive", [False, True])
def test_a_command_runs_here_and_sees_no_gpu(controller: ScriptedController, interactive: bool) -> None:
    done = allocate(controller, *COMMAND, interactive=interactive)

    assert (done.stdout, done.returncode, controller.the(wire.EndInteractive).exit_code) == ("[] 7\n", 3, 3)
    assert done.stderr.splitlines() == [
        "gqalloc: Granted job allocation 7",
        "gqalloc: this host is not a node of job 7: CUDA_VISIBLE_DEVICES is empty here",
        "gqalloc: `gqrun` runs commands on g[1-2], `gq ssh 7` opens a shell on g1",
        "gqalloc: Relinquishing job allocation 7",
    ]


def test_a_shell_runs_here_and_sees_no_gpu(controller: ScriptedController) -> None:
    done = allocate(controller, interactive=False)

    assert (done.stdout, done.returncode) == ("[]\n", 0)
    assert "`gq ssh 7` opens a shell on g1" in done.stderr


def test_a_shell_opens_on_the_first_node_where_the_cluster_says_so(controller: ScriptedController) -> None:
    controller.on(wire.CreateStep, wire.Refused(code="full", message="no step today"))

    done = allocate(controller, interactive=True)

    assert (done.stdout, done.returncode) == ("", 1)
    assert "gqalloc: opening a shell on g1\n" in done.stderr and "no step today" in done.stderr
    step = controller.the(wire.CreateStep).step
    assert (step.nodelist, step.overlap, step.ntasks, step.cpus_per_task) == (("g1",), True, 1, 2)
