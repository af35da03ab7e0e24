"""What the version before wrote: its database is brought up to date with all jobs, and they go on.

``upgrade/*.sql`` are dumps of the files that a controller left when it was killed: job 1 has failed, 2 had a step, 3
runs on two nodes, 4 waits with a comment, 5 begins later, 6 is held.
"""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from gq.model.account import BUILT_IN_QOS, DEFAULT_ACCOUNT, NORMAL_QOS, PreemptMode, QosInfo, with_built_in
from gq.model.ids import JobId
from gq.model.state import JobState
from gq.wire import client as wire
from gqd.state import invariants
from gqd.store.protocol import HistoryQuery
from gqd.store.sqlite import SqliteStore
from tests.clusters import PrivateCluster, wait_until
from tests.shell.rig import running
from tests.wire.record import read_golden

DUMPS = Path(__file__).parent / "upgrade"
FORMS = sorted({path.name.partition(".")[0] for path in DUMPS.glob("*.sql")})
"""Named after the last migration that the version knew."""
ENDED, RUNNING, WAITS, LATER, HELD = (JobId(one) for one in (1, 3, 4, 5, 6))


def lay_down(form: str, name: str, path: Path) -> None:
    """The database of that version, its jobs this user's."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript((DUMPS / f"{form}.{name}.sql").read_text())
        if name == "gq":
            me = pwd.getpwuid(os.geteuid())
            db.execute("UPDATE jobs SET user = ?, uid = ?, gid = ?", (me.pw_name, me.pw_uid, me.pw_gid))
            if form != "keys_and_audit":
                db.execute("UPDATE members SET user = ?", (me.pw_name,))
            db.commit()


@pytest.mark.parametrize("form", FORMS)
def test_a_database_of_the_version_before_is_loaded_with_every_job(form: str, tmp_path: Path) -> None:
    lay_down(form, "gq", tmp_path / "gq.db")
    store = SqliteStore(str(tmp_path / "gq.db"))
    try:
        cluster = store.load()
        invariants.check(cluster)
        history = {one.job_id: one.state for one in store.history(HistoryQuery(filter=wire.JobFilter()))}
    finally:
        store.close()

    jobs = cluster.jobs
    assert {one: jobs[one].state for one in (RUNNING, WAITS, LATER, HELD)} == {
        RUNNING: JobState.RUNNING,
        WAITS: JobState.PENDING,
        LATER: JobState.PENDING,
        HELD: JobState.PENDING,
    }
    waits = jobs[WAITS]
    assert (waits.spec.comment, waits.spec.nice, waits.qos, waits.accrue_at) == (
        "as it was",
        5,
        NORMAL_QOS,
        waits.submit_at,
    )
    if form != "reservations":  # which had learned how long jobs run
        limits = {one: job.time_limit_s for one, job in jobs.items()}
        assert {one: job.expected_s for one, job in jobs.items()} == limits
    assert {one for one in jobs if one in cluster.queue} == {WAITS, LATER, HELD}
    assert not cluster.parked
    assert not cluster.claims and not any(job.preempted for job in jobs.values())
    runs = cluster.attempts[jobs[RUNNING].attempt_id]
    assert (runs.checkpoint_at, runs.preemption, runs.lost_gpu_s) == (None, None, 0.0)
    assert history[ENDED] == "FAILED"
    assert cluster.next_job_id == HELD + 1


@pytest.mark.parametrize("has_guarantees", [False, True])
def test_what_nobody_disturbed_gives_way_to_nobody_after_an_upgrade(has_guarantees: bool, tmp_path: Path) -> None:
    lay_down("reservations", "gq", tmp_path / "gq.db")
    with closing(sqlite3.connect(tmp_path / "gq.db")) as db:
        db.execute("INSERT INTO qos VALUES ('scavenger', '', 0, 1, NULL, '[]', '[]', '[]')")
        guaranteed = 4 if has_guarantees else None
        db.execute("INSERT INTO accounts VALUES ('lab', '', '', 1, ?, NULL, '', '[]', '')", (guaranteed,))
        db.commit()

    store = SqliteStore(str(tmp_path / "gq.db"))
    try:
        known = with_built_in(store.load().qos)
    finally:
        store.close()

    assert known["scavenger"].preempt_mode is PreemptMode.OFF
    normal = BUILT_IN_QOS[NORMAL_QOS]
    assert known[NORMAL_QOS] == (
        msgspec.structs.replace(normal, preempt_mode=PreemptMode.OFF) if has_guarantees else normal
    )


@pytest.mark.parametrize("is_changed", [False, True])
def test_no_qos_borrows_what_is_reserved_after_an_upgrade(is_changed: bool, tmp_path: Path) -> None:
    lay_down("reservations", "gq", tmp_path / "gq.db")
    if is_changed:
        with closing(sqlite3.connect(tmp_path / "gq.db")) as db:
            db.execute("INSERT INTO qos VALUES ('scavenger', 'mine', 0, 1, NULL, '[]', '[]', '[]')")
            db.commit()
    assert not any(one.borrows_reserved for one in qos_of(tmp_path / "gq.db").values())
    assert qos_of(tmp_path / "new.db")["scavenger"].borrows_reserved, "on a cluster that is new"


def test_cpus_of_a_job_that_became_narrower_are_counted_for_as_long_as_it_had_them(tmp_path: Path) -> None:
    """Of one that changed before the upgrade, and of one that never did, the CPUs that it held last."""
    lay_down("reservations", "gq", tmp_path / "gq.db")
    SqliteStore(str(tmp_path / "gq.db")).close()
    with closing(sqlite3.connect(tmp_path / "gq.db")) as db:
        held = "SELECT cpu_hours_held FROM usage_by_user"
        db.execute("UPDATE attempts SET cpus = 2, allocated_at = 0, start_at = 0, end_at = 0")
        own = "UPDATE attempts SET end_at = 7200, changed_at = 3600, elastic = ? WHERE job_id = ?"
        db.execute(own, ('{"most":3,"gpu_s_before":3600.0,"cpu_s_before":36000.0}', ENDED))
        assert db.execute(held).fetchall() == [(12.0,)], "10 CPUs for an hour, then 2"
        db.execute(own, ('{"most":3,"gpu_s_before":3600.0}', ENDED))
        assert db.execute(held).fetchall() == [(4.0,)]
        db.execute("UPDATE attempts SET changed_at = NULL, elastic = NULL")
        assert db.execute(held).fetchall() == [(4.0,)]


def qos_of(path: Path) -> dict[str, QosInfo]:
    store = SqliteStore(str(path))
    try:
        return with_built_in(store.load().qos)
    finally:
        store.close()


@pytest.mark.slow
def test_jobs_of_the_version_before_go_on(private_cluster: Callable[..., PrivateCluster]) -> None:
    cluster = private_cluster(nodes=2, fake_gpus=2, cpus=4)
    for form in FORMS:
        print(f"form {form}")
        cluster.ok("gq", "down", "--yes")
        for name in ("gq", "blobs"):
            for path in cluster.directory.glob(f"{name}.db*"):
                path.unlink()
            lay_down(form, name, cluster.directory / f"{name}.db")
        cluster.up()
        assert ends_of_jobs(cluster) == {ENDED: "FAILED", RUNNING: "COMPLETED", WAITS: "COMPLETED", LATER: "COMPLETED"}
        see_that_the_queue_goes_on(cluster)


def ends_of_jobs(cluster: PrivateCluster) -> dict[JobId, str]:
    """Of those that are not held."""
    waited = cluster.run("gqwait", *(str(one) for one in (RUNNING, WAITS, LATER)))
    assert waited.returncode == 0, waited.stderr
    states = {
        one["job_id"]: one["state"] for one in json.loads(cluster.ok("gqacct", "-X", "--json", "-S", "2020-01-01"))
    }
    return {one: states[one] for one in (ENDED, RUNNING, WAITS, LATER)}


def see_that_the_queue_goes_on(cluster: PrivateCluster) -> None:
    assert "JobHeldUser" in cluster.ok("gqstat")
    cluster.ok("gqctl", "release", str(HELD))
    wait_until(lambda: cluster.run("gqwait", str(HELD)).returncode == 0)
    assert cluster.ok("gqsub", "--parsable", "-H", "--wrap", "true").strip() == str(HELD + 1)


def test_a_submission_of_a_client_of_the_version_before_is_queued() -> None:
    """Byte for byte what it sent, but for what only its own cluster knew."""
    sent = msgspec.msgpack.decode(bytes.fromhex(read_golden()["client.Submit"][0]))
    body = sent[-1]
    old = body["spec"]
    for name in ("partition", "is_interactive", "script_digest", "environment_digest"):
        del old[name]
    body["spec"] = old | {"resources": {"cpus_per_task": 3}, "chdir": "/", "submit_dir": "/"}
    body["test_only"] = False

    async def scene() -> None:
        async with running() as rig:
            link = rig.client_wire()
            await link.send(msgspec.msgpack.encode(sent))
            assert (await link.reply()).body == wire.Submitted(job_id=1)
            kept = rig.store.load().jobs[JobId(1)]
            assert (kept.spec.comment, kept.spec.time_limit_s, kept.account) == ("comment", 86, DEFAULT_ACCOUNT)

    asyncio.run(scene())
