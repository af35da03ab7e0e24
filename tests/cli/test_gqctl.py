"""`gqctl`: verbs for jobs and nodes, with and without the noun, and what a later version brings."""

from __future__ import annotations

import json

import pytest

from gq.cli.gqctl import COMMAND
from gq.model.node import ClusterInfo, GpuInfo, GpuSummary, NodeInfo, PartitionInfo
from gq.model.resource import Grant, ResourceRequest
from gq.wire import client as wire
from tests.cli.conftest import Run
from tests.cli.scripted import SUBMITTED_AT, ScriptedController, a_job, jobs

NODE = NodeInfo(
    node="n1", state="DRAINED", reason="fan", partitions=("main",), cpus=8, cpus_free=8, memory_mib=100,
    memory_free_mib=100,
    gpus=(GpuInfo(index=0, uuid="GPU-0", type="a100", memory_mib=81920, state="ALLOCATED", job_id=7),),
    last_heard_at=SUBMITTED_AT,
)  # fmt: skip


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("verb", "kind"), [("hold", wire.HoldJobs), ("release", wire.ReleaseJobs), ("requeue", wire.RequeueJobs)]
)
@pytest.mark.parametrize("noun", [[], ["job"]])
def test_a_verb_reaches_all_its_jobs_in_silence(
    run: Run,
    controller: ScriptedController,
    noun: list[str],
    verb: str,
    kind: type[wire.HoldJobs | wire.ReleaseJobs | wire.RequeueJobs],
) -> None:
    controller.on(kind, wire.JobsDone(job_ids=(7, 8)))

    assert run("gqctl", *noun, verb, "7,8", "9") == (0, "", "")
    assert controller.the(kind).job_ids == (7, 8, 9)


def test_jobs_that_cannot_be_changed_are_named(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.HoldJobs, wire.JobsDone(job_ids=(7,), refused=((8, "it is running"),), skipped=(9,)))

    assert run("gqctl", "hold", "7", "8", "9") == (
        1,
        "",
        "error: job 8: it is running\nerror: job 9 is unknown or has ended\n",
    )


def test_tasks_that_are_refused_alike_are_one_line(controller: ScriptedController, run: Run) -> None:
    refused = ((8, "it is running"), (9, "it is running"), (10, "it is completed"), (11, "it is running"))
    labels = ((8, "7_1"), (9, "7_2"), (10, "7_5"))
    controller.on(wire.HoldJobs, wire.JobsDone(refused=refused, labels=labels))
    told = "error: job 7_[1-2]: it is running\nerror: job 7_5: it is completed\nerror: job 11: it is running\n"
    assert run("gqctl", "hold", "7_[1-5]", "11").err == told


def test_an_update_says_only_what_is_to_change(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.UpdateJob, wire.Done())

    assert run("gqctl", "update", "7", "--time=2h", "-J", "new", "--no-requeue", "--comment=", "--nice=5") == (
        0,
        "",
        "",
    )
    assert run("gqctl", "update", "8", "--requeue-on=timeout", "--max-requeue=3").status == 0
    assert controller.heard == [
        wire.UpdateJob(job_id=7, time_limit_s=7200, name="new", requeue=False, comment="", nice=5),
        wire.UpdateJob(job_id=8, requeue_on=("timeout",), max_requeue=3),
    ]


def test_an_update_of_resources_keeps_those_it_does_not_name(run: Run, controller: ScriptedController) -> None:
    base = ResourceRequest(nodes_min=4, gpus_per_node=8, mem_per_cpu_mib=100)
    controller.on(wire.ListJobs, jobs(a_job(7, resources=base)))
    controller.on(wire.UpdateJob, wire.Done())

    run("gqctl", "update", "7", "-N2", "--mem=1G")

    expected = ResourceRequest(nodes_min=2, gpus_per_node=8, mem_per_node_mib=1024)
    assert controller.the(wire.UpdateJob) == wire.UpdateJob(job_id=7, resources=expected)


def test_the_limit_can_be_taken_away(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.UpdateJob, wire.Done())
    run("gqctl", "update", "7", "-t", "unlimited")

    assert controller.the(wire.UpdateJob).time_limit_s == 0


def test_a_job_is_shown_with_everything_that_is_known(run: Run, controller: ScriptedController) -> None:
    held = (Grant(node="n1", cpus=(0, 1), gpus=(2, 3)),)
    controller.on(wire.ListJobs, jobs(a_job(7, state="RUNNING", grants=held, args=("a", "b"), is_held=False)))

    lines = {line.split()[0]: line.split()[1:] for line in run("gqctl", "show", "7").lines}

    assert (lines["job_id"], lines["state"], lines["args"], lines["is_held"]) == (
        ["7"],
        ["RUNNING"],
        ["a", "b"],
        ["no"],
    )
    assert lines["grants"] == ["node=n1", "cpus=0-1", "gpus=2-3", "memory_mib=0"]
    [shown] = json.loads(run("gqctl", "show", "--json", "7").out)
    assert (shown["submit_at"], shown["args"]) == ("2027-01-15T08:00:00+00:00", ["a", "b"])


def test_a_job_that_left_memory_is_shown_from_the_history(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())
    controller.on(wire.QueryHistory, jobs(a_job(7, state="COMPLETED")))

    assert "COMPLETED" in run("gqctl", "show", "7").out


def test_a_job_that_never_was_is_an_error(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListJobs, jobs())
    controller.on(wire.QueryHistory, jobs())

    assert run("gqctl", "show", "7").err.startswith("error: job 7 does not exist\n")


def test_a_note_reaches_its_job_as_one_line(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.NotifyJob, wire.Done())

    assert run("gqctl", "notify", "7", "please", "--save", "now") == (0, "", "")
    assert controller.the(wire.NotifyJob) == wire.NotifyJob(job_id=7, text="please --save now")


# ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["drain", "n[1-2]", "n4", "-r", "fan"],
         [wire.UpdateNodes(names=("n1", "n2", "n4"), action="drain", reason="fan")]),
        (["drain", "n1:2", "--reason=ecc"], [wire.UpdateNodes(names=("n1",), action="drain", reason="ecc", gpu=2)]),
        (["resume", "n1", "n2:0"],
         [wire.UpdateNodes(names=("n1",), action="resume"), wire.UpdateNodes(names=("n2",), action="resume", gpu=0)]),
        (["down", "n1", "-r", "gone"], [wire.UpdateNodes(names=("n1",), action="down", reason="gone")]),
    ],
)  # fmt: skip
def test_nodes_and_single_gpus_are_taken_out_and_given_back(
    run: Run, controller: ScriptedController, words: list[str], expected: list[wire.UpdateNodes]
) -> None:
    controller.on(wire.UpdateNodes, wire.Done())

    assert run("gqctl", "node", *words) == (0, "", "")
    assert controller.heard == expected


def test_nodes_are_removed_one_by_one_with_the_reason(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.RemoveNode, wire.Done())

    assert run("gqctl", "node", "remove", "n[1-2]", "--reason=sold") == (0, "", "")
    assert controller.heard == [wire.RemoveNode(name=name, reason="sold") for name in ("n1", "n2")]


def test_a_node_is_shown_with_everything_that_is_known(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListNodes, wire.Nodes(nodes=(NODE,)))

    lines = run("gqctl", "node", "show", "n1").lines

    assert "gpus              0 a100 81920 MiB ALLOCATED job 7 GPU-0" in lines
    assert "last_heard_at     2027-01-15T08:00:00" in lines
    assert json.loads(run("gqctl", "node", "show", "--json").out)[0]["reason"] == "fan"


def test_a_node_that_does_not_exist_is_named(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListNodes, wire.Nodes(nodes=(NODE,)))

    assert run("gqctl", "node", "show", "n1,n9").err.startswith("error: node `n9` does not exist\n")


# ── bad input ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([], 2, "missing command after `gqctl`"),
        (["node"], 2, "missing command after `gqctl node`"),
        (["hodl", "7"], 2, "`gqctl` does not know `hodl`"),
        (["hold"], 2, "JOB is missing"),
        (["hold", "x"], 2, "`x` is not a job id"),
        (["update", "7"], 2, "no change given"),
        (["update", "7", "--mem=lots"], 2, "`--mem`: `lots` is not a memory size"),
        (["update", "7", "--output=x"], 2, "unknown option `--output`"),
        (["notify", "7"], 2, "JOB and TEXT are required"),
        (["node", "drain", "n1"], 2, "`gqctl node drain` needs a reason"),
        (["node", "drain", "-r", "x"], 2, "NODE is missing"),
        (["node", "drain", "n[1-2]:0", "-r", "x"], 2, "`n[1-2]:0` is a GPU of several nodes"),
        (["node", "drain", "n1:x", "-r", "x"], 2, "`x` is not a whole number"),
        (["node", "down", "n1:0", "-r", "x"], 2, "a single GPU cannot be set to down"),
        (["node", "remove"], 2, "NODE is missing"),
        (["node", "remove", "n1:0"], 2, "a single GPU cannot be removed"),
        (["giveback", "7"], 1, "`gqctl giveback` is not available in this version"),
        (["job", "giveback", "7"], 1, "`gqctl job giveback` is not available in this version"),
        (["node", "reboot", "n1"], 1, "`gqctl node reboot` is not available in this version"),
        (["gpu", "show"], 1, "`gqctl gpu` is not available in this version"),
    ],
)
def test_a_bad_command_line_is_refused_before_anything_is_done(
    run: Run, controller: ScriptedController, words: list[str], status: int, message: str
) -> None:
    result = run("gqctl", *words)

    assert (result.status, result.out, controller.heard) == (status, "", [])
    assert result.err.startswith(f"error: {message}")


def test_every_verb_of_the_contract_is_there_or_refused_as_not_available() -> None:
    assert COMMAND.verbs is not None
    verbs = COMMAND.verbs()
    nodes = verbs["node"].verbs
    assert nodes is not None

    of_jobs = {
        "hold",
        "release",
        "requeue",
        "update",
        "show",
        "notify",
        "suspend",
        "resume",
        "extend",
        "ask",
        "answer",
        "asks",
    }
    assert set(verbs) == {
        *of_jobs, "job", "node", "partition", "account", "user", "qos", "limit", "config", "token", "key", "notice",
        "audit", "whoami", "events",
    }  # fmt: skip
    assert COMMAND.unbuilt == (
        "giveback", "gpu",
    )  # fmt: skip
    assert (set(nodes()), verbs["node"].unbuilt) == ({"show", "drain", "resume", "down", "remove"}, ("reboot",))


@pytest.mark.parametrize(
    ("words", "named"),
    [(["--reservation=night"], "night"), (["ReservationName=night"], "night"), (["--reservation=none"], "")],
)
def test_a_waiting_job_is_moved_into_a_reservation_and_out_of_it(
    run: Run, controller: ScriptedController, words: list[str], named: str
) -> None:
    controller.on(wire.UpdateJob, wire.Done())

    assert run("gqctl", "update", "7", *words).status == 0
    assert controller.the(wire.UpdateJob) == wire.UpdateJob(job_id=7, reservation=named)


@pytest.mark.parametrize("verb", ["reconfigure", "reload"])
def test_the_words_of_slurm_for_reading_settings_again_name_ours(run: Run, verb: str) -> None:
    assert run("gqctl", verb).err.splitlines()[1] == "hint: did you mean `gqctl config reload`?"


# ── show, as scontrol has it ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("noun", [[], ["job"], ["jobs"]])
def test_a_job_is_shown_with_or_without_its_noun(run: Run, controller: ScriptedController, noun: list[str]) -> None:
    controller.on(wire.ListJobs, jobs(a_job(7, state="RUNNING")))

    assert run("gqctl", "show", *noun, "7").lines[0].split() == ["job_id", "7"]


def test_a_node_is_shown_as_scontrol_shows_it(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.ListNodes, wire.Nodes(nodes=(NODE,)))

    assert run("gqctl", "show", "node", "n1") == run("gqctl", "node", "show", "n1")
    assert run("gqctl", "show", "node", "n1").lines[0].split() == ["node", "n1"]


MAIN = PartitionInfo(
    partition="main", is_default=True, state="UP", nodes=("n1",), default_time_s=None, max_time_s=7200, cpus=8,
    cpus_free=6, gpus=(GpuSummary(type="a100", total=4, free=1),),
)  # fmt: skip
CLUSTER = wire.Cluster(info=ClusterInfo(cluster="c", gq_version="1", started_at=0.0, partitions=(MAIN,)))


@pytest.mark.parametrize(
    "words", [["show", "partition", "main"], ["partition", "show", "main"], ["show", "partitions"]]
)
def test_a_partition_is_shown(run: Run, controller: ScriptedController, words: list[str]) -> None:
    controller.on(wire.GetCluster, CLUSTER)

    shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in run("gqctl", *words).lines}
    assert shown == {
        "partition": "main", "is_default": "yes", "state": "UP", "default_time": "none", "max_time": "2:00:00",
        "nodes": "n1", "cpus": "8", "cpus_free": "6", "gpus": "a100: 1 of 4 free",
    }  # fmt: skip
    [found] = json.loads(run("gqctl", *words, "--json").out)
    assert (found["max_time_s"], found["gpus"]) == (7200, [{"type": "a100", "total": 4, "free": 1}])


def test_a_partition_that_does_not_exist_is_refused(run: Run, controller: ScriptedController) -> None:
    controller.on(wire.GetCluster, CLUSTER)

    told = "error: partition `gpu` does not exist\nhint: there are `main`\n"
    assert run("gqctl", "show", "partition", "gpu") == (1, "", told)


def test_what_another_command_shows_is_named(run: Run) -> None:
    told = "error: `gqctl show` cannot show `config`\nhint: use `gqctl config show`\n"
    assert run("gqctl", "show", "config") == (2, "", told)
