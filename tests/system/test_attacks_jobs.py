"""Users against the jobs of others, and against the limits of their own rights."""

from __future__ import annotations

import msgspec
import pytest

from gq.model.job import JobSpec
from gq.wire import client as wire
from tests.integration.jobs import submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import CAROL
from tests.system.attacks import CONTAINED, NOTHING, REFUSED, attack
from tests.system.stage import Stage

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

SECRET = "s3cret"


def held(stage: Stage, *options: str) -> int:
    """A job of Alice's that waits, with something in it that nobody else may know."""
    hidden = ("--comment", SECRET, "--output", f"{SECRET}.out", "--error", f"{SECRET}.err")
    return int(submit(stage.alice, "-H", *hidden, *options, wrap=f"echo {SECRET}"))


def is_untouched(stage: Stage, job: int) -> bool:
    """Nothing has happened to the job since Alice queued it."""
    return stage.facts(str(job)).state == "PENDING"


def answer(stage: Stage, body: wire.RequestBody) -> bytes:
    """All that Bob is told."""
    return msgspec.json.encode(stage.ask(stage.bob, body))


# ── reading ───────────────────────────────────────────────────────────────────────────────────────────────────


@attack("Read the script of another user's job", REFUSED, "GetScript: not_owner")
def test_read_the_script_of_another_users_job(stage: Stage) -> None:
    assert stage.refusal(stage.bob, wire.GetScript(job_id=held(stage))) == "not_owner"


@attack("Read the environment of another user's job", REFUSED, "GetJobEnvironment: not_owner")
def test_read_the_environment_of_another_users_job(stage: Stage) -> None:
    assert stage.refusal(stage.bob, wire.GetJobEnvironment(job_id=held(stage))) == "not_owner"


@attack("Look for secrets in the listed fields of another user's job", CONTAINED, NOTHING)
def test_look_for_secrets_in_the_listed_fields_of_another_users_job(stage: Stage) -> None:
    job = held(stage, "-J", "of-alice")
    asked: list[wire.RequestBody] = [
        wire.ListJobs(with_steps=True),
        wire.QueryHistory(),
        wire.WaitJobs(job_ids=(job,), timeout_s=0.0),
        wire.Explain(job_id=job),
    ]
    told = [answer(stage, body) for body in asked]

    assert b"of-alice" in told[0] and b"of-alice" in told[1] and b"of-alice" in told[2]
    assert not [one for one in told if SECRET.encode() in one]


@attack("Read the output of another user's job", REFUSED, "AccessLog: not_owner")
def test_read_the_output_of_another_users_job(stage: Stage) -> None:
    job = submit(stage.alice, wrap=f"echo {SECRET}")
    stage.await_state(job, "COMPLETED")
    done = stage.bob.run("gqlog", job)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"job {job} belongs to alice" in done.stderr
    for owner_or_root in (stage.alice, stage.root):
        assert owner_or_root.ok("gqlog", job) == f"{SECRET}\n"


@attack("Read other users' files through the log of an own job", REFUSED, NOTHING)
def test_read_other_users_files_through_the_log_of_an_own_job(stage: Stage) -> None:
    on_n1 = stage.user(stage.alice.account, "n1")
    of_alice = on_n1.write("private", SECRET)
    of_root = "/run/of-root"
    stage.host("n1").ok("sh", "-c", f"umask 077; echo {SECRET} > {of_root}")
    on_n1.ok("chmod", "711", ".")
    for path in (of_alice, of_root):
        job = submit(stage.bob, "-w", "n1", wrap="echo mine")
        stage.await_state(job, "COMPLETED")
        assert stage.bob.ok("gqlog", job) == "mine\n"
        stage.user(stage.bob.account, "n1").ok("ln", "-sf", path, f"gq-{job}.out")

        done = stage.bob.run("gqlog", job)
        assert (done.returncode, done.stdout) == (1, "")
        assert "cannot be read: Permission denied" in done.stderr


@attack("Read the audit trail as a user", REFUSED, "QueryAudit: not_operator")
def test_read_the_audit_trail_as_a_user(stage: Stage) -> None:
    done = stage.bob.run("gqctl", "audit")

    assert (done.returncode, done.stdout) == (1, "")
    assert "bob is not one" in done.stderr


@attack("Get the answer to another user's request by its id", CONTAINED, "Submit: done")
def test_get_the_answer_to_another_users_request_by_its_id(stage: Stage) -> None:
    spec = JobSpec(name="x", is_held=True)
    body = wire.Submit(spec=spec, script=b"#!/bin/sh\ntrue\n")
    first, second = (stage.ask(user, body, bytes(range(16))) for user in (stage.alice, stage.bob))

    assert isinstance(first, wire.Submitted) and isinstance(second, wire.Submitted)
    assert [stage.facts(str(one.job_id)).user for one in (first, second)] == ["alice", "bob"]


# ── acting ────────────────────────────────────────────────────────────────────────────────────────────────────


@attack("Cancel another user's job", REFUSED, "CancelJobs: not_owner")
def test_cancel_another_users_job(stage: Stage) -> None:
    job = stage.running_job()
    done = stage.bob.run("gqdel", job)

    assert done.returncode == 1
    assert f"job {job}: it belongs to alice" in done.stderr
    assert stage.facts(job).state == "RUNNING"


@attack("Signal another user's job", REFUSED, "CancelJobs: not_owner")
def test_signal_another_users_job(stage: Stage) -> None:
    job = stage.running_job()

    assert stage.bob.run("gqdel", "-s", "KILL", job).returncode == 1
    assert stage.facts(job).state == "RUNNING"


@attack("Cancel another user's jobs by the user's name", REFUSED, "CancelJobs: not_owner")
def test_cancel_another_users_jobs_by_the_users_name(stage: Stage) -> None:
    job = held(stage)

    assert stage.bob.run("gqdel", "-u", "alice").returncode == 1
    assert is_untouched(stage, job)


@attack("Cancel all users' jobs by partition and state", CONTAINED, "CancelJobs: done")
def test_cancel_all_users_jobs_by_partition_and_state(stage: Stage) -> None:
    job = held(stage)
    own = submit(stage.bob, "-H", wrap="true")

    stage.bob.ok("gqdel", "-p", "main", "-t", "PENDING")
    assert is_untouched(stage, job)
    assert stage.facts(own).state == "CANCELLED"


@attack(
    "Hold, release and requeue another user's job",
    REFUSED,
    "HoldJobs: not_owner",
    "ReleaseJobs: not_owner",
    "RequeueJobs: not_owner",
)
def test_hold_release_and_requeue_another_users_job(stage: Stage) -> None:
    waits, runs = str(held(stage)), stage.running_job()

    for verb, job in (("hold", runs), ("release", waits), ("requeue", runs)):
        done = stage.bob.run("gqctl", verb, job)
        assert done.returncode == 1
        assert f"job {job}: it belongs to alice" in done.stderr
    assert is_untouched(stage, int(waits))
    assert (stage.facts(runs).state, stage.facts(runs).restart_count) == ("RUNNING", 0)


@attack("Change another user's job", REFUSED, "UpdateJob: not_owner")
def test_change_another_users_job(stage: Stage) -> None:
    job = held(stage)

    assert stage.refusal(stage.bob, wire.UpdateJob(job_id=job, name="mine")) == "not_owner"
    assert is_untouched(stage, job)


@attack("Write into the output of another user's job", REFUSED, "NotifyJob: not_owner")
def test_write_into_the_output_of_another_users_job(stage: Stage) -> None:
    job = stage.running_job(wrap="echo began; sleep 1000")

    assert stage.refusal(stage.bob, wire.NotifyJob(job_id=int(job), text="pay here")) == "not_owner"
    assert "pay here" not in stage.alice.ok("gqlog", job)


@attack("Run a step in another user's job", REFUSED, "CreateStep: not_owner")
def test_run_a_step_in_another_users_job(stage: Stage) -> None:
    job = stage.running_job()
    done = stage.bob.run("gqrun", "--jobid", job, "--overlap", "id", GQ_JOB_ID=job)

    assert done.returncode not in (0, 2)
    assert done.stdout == ""
    assert f"job {job} belongs to alice" in done.stderr


@attack("Enter another user's running job by gq ssh", REFUSED, "GetJobEnvironment: not_owner")
def test_enter_another_users_running_job_by_gq_ssh(stage: Stage) -> None:
    job = stage.running_job()
    done = stage.bob.run("gq", "ssh", job, "id")

    assert (done.returncode != 0, done.stdout) == (True, "")
    assert f"job {job} belongs to alice" in done.stderr


@attack("Signal a step of another user's job", REFUSED, "SignalStep: not_owner")
def test_signal_a_step_of_another_users_job(stage: Stage) -> None:
    job = int(stage.running_job(wrap="gqrun sleep 1000"))

    assert stage.refusal(stage.bob, wire.SignalStep(job_id=job, step=0)) == "not_owner"


@attack("End or keep another user's interactive job", REFUSED, "EndInteractive: not_owner", "KeepAlive: not_owner")
def test_end_or_keep_another_users_interactive_job(stage: Stage) -> None:
    job = held(stage)

    assert stage.refusal(stage.bob, wire.EndInteractive(job_id=job)) == "not_owner"
    assert stage.refusal(stage.bob, wire.KeepAlive(job_id=job)) == "not_owner"
    assert is_untouched(stage, job)


# ── what one's own rights end at ──────────────────────────────────────────────────────────────────────────────


@attack("Release a job that an administrator holds", REFUSED, "ReleaseJobs: admin_hold")
def test_release_a_job_that_an_administrator_holds(stage: Stage) -> None:
    job = submit(stage.alice, "--begin=now+1hour", wrap="true")
    stage.operator.ok("gqctl", "hold", job)

    assert stage.alice.run("gqctl", "release", job).returncode == 1
    assert stage.facts(job).reason == "JobHeldAdmin"


@attack("Raise the priority with a negative nice", REFUSED, "Submit: negative_nice", "UpdateJob: negative_nice")
def test_raise_the_priority_with_a_negative_nice(stage: Stage) -> None:
    done = stage.alice.run("gqsub", "--nice=-1", "--wrap", "true")

    assert (done.returncode, done.stdout) == (1, "")
    assert stage.refusal(stage.alice, wire.UpdateJob(job_id=held(stage), nice=-1)) == "negative_nice"


@attack("Raise the time limit of a running job", REFUSED, "UpdateJob: raised_limit")
def test_raise_the_time_limit_of_a_running_job(stage: Stage) -> None:
    job = int(stage.running_job("-t", "10"))

    for seconds in (660, 0):
        assert stage.refusal(stage.alice, wire.UpdateJob(job_id=job, time_limit_s=seconds)) == "raised_limit"
    assert stage.facts(str(job)).time_limit_s == 600


@attack("Submit a job as root", REFUSED, "Submit: root_jobs")
def test_submit_a_job_as_root(stage: Stage) -> None:
    for host in ("ctl", "login", "n1"):
        done = stage.host(host).run("gqsub", "--wrap", "id")
        assert (done.returncode, done.stdout) == (1, ""), host


@attack("Submit as another user by the environment", CONTAINED, "Submit: done")
def test_submit_as_another_user_by_the_environment(stage: Stage) -> None:
    lies = {"USER": "root", "LOGNAME": "root", "HOME": "/root", "SUDO_UID": "0", "GQ_JOB_USER": "root", "UID": "0"}
    job = submit(stage.bob, "-w", "n1", "-o", f"{stage.bob.home}/who", wrap="id -un; id -u", **lies)

    assert stage.await_state(job, "COMPLETED").user == "bob"
    assert stage.user(stage.bob.account, "n1").path("who").read_text().split() == ["bob", f"{stage.bob.account.uid}"]


@attack("Drain a node as a user", REFUSED, "UpdateNodes: not_operator")
def test_drain_a_node_as_a_user(stage: Stage) -> None:
    assert stage.bob.run("gqctl", "node", "drain", "n1", "--reason", "mine").returncode == 1


@attack("Be an operator by a group that only the own host knows", REFUSED, "UpdateNodes: not_operator")
def test_be_an_operator_by_a_group_that_only_the_own_host_knows(stage: Stage) -> None:
    assert "gqops" in stage.bob.ok("id", "-Gn").split()

    assert stage.bob.run("gqctl", "node", "down", "n1", "--reason", "mine").returncode == 1


@attack("Use an operator's rights from within a job", REFUSED, "UpdateNodes: not_operator")
def test_use_an_operators_rights_from_within_a_job(stage: Stage) -> None:
    drain = "gqctl node drain n2 --reason mine"
    job = submit(stage.user(CAROL), "-w", "n1", wrap=f"{drain}; echo $?")
    stage.await_state(job, "COMPLETED")

    assert "carol is not one" in stage.user(CAROL).ok("gqlog", job)


@attack("Admit a host as a user", REFUSED, "CreateToken: not_administrator")
def test_admit_a_host_as_a_user(stage: Stage) -> None:
    done = stage.bob.run("gqctl", "token", "create")

    assert (done.returncode, done.stdout) == (1, "")


@attack("Admit a host as an operator", REFUSED, "CreateToken: not_administrator")
def test_admit_a_host_as_an_operator(stage: Stage) -> None:
    assert stage.operator.run("gqctl", "token", "create").returncode == 1


@attack("Remove a node as an operator", REFUSED, "RemoveNode: not_administrator")
def test_remove_a_node_as_an_operator(stage: Stage) -> None:
    assert stage.refusal(stage.operator, wire.RemoveNode(name="n1")) == "not_administrator"


@attack("Add a key for another user", REFUSED, "AddKey: not_owner")
def test_add_a_key_for_another_user(stage: Stage) -> None:
    body = wire.AddKey(public="0" * 40, user="alice")

    assert stage.refusal(stage.bob, body) == "not_owner"


@attack("Add an own key from within a job", REFUSED, "AddKey: not_vouched")
def test_add_an_own_key_from_within_a_job(stage: Stage) -> None:
    stage.running_job("-w", "n1", user=stage.bob)

    assert stage.refusal(stage.user(stage.bob.account, "n1"), wire.AddKey(public="0" * 40)) == "not_vouched"
