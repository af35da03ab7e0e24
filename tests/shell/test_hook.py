"""The site's submit hook, asked by a controller with real sockets in a real process of its own."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gq.config.config import load_config
from gq.config.submit_hook import Reject, Submitter, check_hook, load_hook
from gq.connection.locate import private_location
from gq.errors import Refusal
from gq.model.job import JobSpec
from gq.wire import client as wire
from gqd.shell.requests.submit_hook import changes
from tests.builders import spec
from tests.clusters import PrivateCluster, processes, wait_until
from tests.shell.rig import PATIENCE_S, Rig, job, running, short_directory

EXAMPLE = Path(__file__).parents[2] / "examples" / "hook" / "hook.py"
USER = pwd.getpwuid(os.getuid()).pw_name
HEAD = """
import os, sys, time
from msgspec.structs import replace
from gq.config.submit_hook import JobSpec, Reject, Submitter
"""
GOOD = """
def submit(job, submitter):
    if job.name == "bad":
        raise Reject(f"{submitter.user} may not call a job bad", "call it good")
    if job.time_limit_s is None:
        return replace(job, time_limit_s=3600, comment="for " + submitter.user)
"""


@asynccontextmanager
async def hooked(hook: str, settings: str = "") -> AsyncIterator[tuple[Rig, Path]]:
    """A controller whose hook is this Python."""
    with short_directory() as directory:
        path = Path(directory, "hook.py")
        path.write_text(HEAD + hook)
        config = f'[timers]\ntick_s = 0.05\n[controller]\nsubmit_hook = "hook.py:submit"\n{settings}\n'
        Path(directory, "gq.toml").write_text(config)
        async with running(load_config(private_location(directory, {})), directory=directory) as rig:
            yield rig, path


async def queued(rig: Rig, **fields: object) -> tuple[JobSpec, str]:
    """Submit a job; its spec, and what the hook is said to have done."""
    answer = await rig.ask(job(**fields))
    assert isinstance(answer, wire.Submitted)
    kept = rig.store.load().jobs[answer.job_id]  # type: ignore[index]
    return kept.spec, kept.hook


async def refused(rig: Rig, body: wire.RequestBody) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await rig.ask(body)
    return caught.value


def test_a_hook_changes_a_default_and_what_it_did_is_recorded() -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, _):
            kept, did = await queued(rig)
            assert kept.time_limit_s == 3600
            assert did == f'time_limit_s=3600, comment="{kept.comment}"'
            assert kept.script_digest, "what the door settles is as it was"
            kept, did = await queued(rig, time_limit_s=60)
            assert (kept.time_limit_s, did) == (60, "")
            trail = await rig.ask(wire.QueryAudit(action="Submit"))
            assert isinstance(trail, wire.AuditTrail)
            assert [one.detail for one in trail.entries][:1] == [f'x; hook: time_limit_s=3600, comment="for {USER}"']

    asyncio.run(scene())


def test_a_hook_refuses_in_its_own_words_and_nothing_is_queued() -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, _):
            refusal = await refused(rig, job("bad"))
            assert (refusal.code, refusal.hint) == ("hook_refused", "call it good")
            assert refusal.message == f"{USER} may not call a job bad"
            assert await refused(rig, wire.Submit(spec=job("bad").spec, test_only=True))
            assert not rig.store.load().jobs
            trail = await rig.ask(wire.QueryAudit(action="Submit"))
            assert isinstance(trail, wire.AuditTrail)
            assert {one.outcome for one in trail.entries} == {"hook_refused"}

    asyncio.run(scene())


def test_every_stage_of_a_chain_is_shown_and_one_refusal_ends_it_all() -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, _):
            stages = (job("prep", time_limit_s=60), job("train"))
            answer = await rig.ask(wire.SubmitChain(stages=stages))
            assert isinstance(answer, wire.ChainSubmitted)
            jobs = [rig.store.load().jobs[one] for one in answer.job_ids]  # type: ignore[index]
            assert [one.spec.time_limit_s for one in jobs] == [60, 3600]
            assert [one.hook for one in jobs] == ["", f'time_limit_s=3600, comment="for {USER}"']
            refusal = await refused(rig, wire.SubmitChain(stages=(job("prep"), job("bad"))))
            assert refusal.message == f"stage 2 of the chain: {USER} may not call a job bad"
            assert len(rig.store.load().jobs) == 2

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("def submit(job, submitter):\n    return 7", "it returned int, which is neither a job nor None"),
        ("def submit(job, submitter):\n    return replace(job, time_limit_s='soon')", "it returned an invalid job"),
        ("def submit(job, submitter):\n    return replace(job, name=object())", "a job that cannot be sent"),
        ("def submit(job, submitter):\n    return replace(job, script_digest='f' * 64)", "it changed script_digest"),
        ("def submit(job, submitter):\n    return replace(job, is_interactive=True)", "it changed is_interactive"),
        ("def submit(job, submitter):\n    return 1 / 0", "ZeroDivisionError: division by zero"),
        ("def submit(job, submitter):\n    sys.exit(3)", "SystemExit: 3"),
        ("def submit(job, submitter):\n    os._exit(3)", "its process ended with status 3"),
        ("def submit(job, submitter):\n    os.kill(os.getpid(), 9)", "its process ended by signal 9"),
        ("def submit(job):\n    return None", "TypeError"),
        ("submit = 3", "has no function `submit`"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
        ("def submit(job, submitter:", "SyntaxError"),
    ],
)
def test_a_hook_that_answers_nonsense_or_dies_refuses_the_job_and_says_how(hook: str, words: str) -> None:
    async def scene() -> None:
        async with hooked(hook) as (rig, _):
            for _ in range(2):
                refusal = await refused(rig, job())
                assert (refusal.code, refusal.hint) == (
                    "hook_refused",
                    "ask an administrator: gqd's log has the details",
                )
                assert words in refusal.message

    asyncio.run(scene())


def test_a_hook_that_died_is_started_again_for_the_next_job() -> None:
    async def scene() -> None:
        async with hooked("def submit(job, submitter):\n    if job.name == 'kill': os._exit(1)") as (rig, _):
            for _ in range(3):
                assert "ended with status 1" in (await refused(rig, job("kill"))).message
                assert await queued(rig) == (msgspec.structs.replace(job().spec, script_digest=digest_of(rig)), "")

    def digest_of(rig: Rig) -> str:
        return next(iter(rig.store.load().jobs.values())).spec.script_digest

    asyncio.run(scene())


def test_where_the_site_says_so_jobs_are_accepted_unseen_when_the_hook_fails() -> None:
    async def scene() -> None:
        hook = "def submit(job, submitter):\n    return 1 / 0"
        async with hooked(hook, 'submit_hook_on_failure = "accept"') as (rig, _):
            _, did = await queued(rig)
            assert did == "accepted unchecked, because the hook failed: ZeroDivisionError: division by zero"

    asyncio.run(scene())


def test_a_hook_that_hangs_is_ended_at_its_deadline_and_holds_up_nobody_else() -> None:
    async def scene() -> None:
        hook = "def submit(job, submitter):\n    if job.name == 'hang': time.sleep(3600)"
        async with hooked(hook, "submit_hook_timeout_s = 1") as (rig, _):
            await queued(rig)
            began = time.monotonic()
            hanging = asyncio.create_task(refused(rig, job("hang")))
            for _ in range(3):
                await rig.ask(wire.Ping())
            assert time.monotonic() - began < 1.0, "others are answered meanwhile"
            assert not hanging.done()
            assert (await hanging).message == "the site's submit hook failed: it did not answer within 1 s"
            await queued(rig)

    asyncio.run(scene())


def test_what_a_hook_prints_and_reads_is_not_the_conversation() -> None:
    async def scene() -> None:
        hook = "def submit(job, submitter):\n    print('hello'); os.write(1, b'x' * 9); assert sys.stdin.read() == ''"
        async with hooked(hook) as (rig, _):
            assert await queued(rig)

    asyncio.run(scene())


def test_a_hook_does_not_inherit_the_environment_of_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SITE_SECRET", "s3cret")
    monkeypatch.setenv("LC_TIME", "C")
    hook = "def submit(job, submitter):\n    return replace(job, comment=' '.join(sorted(os.environ)))"

    async def scene() -> None:
        async with hooked(hook) as (rig, _):
            names = (await queued(rig))[0].comment.split()
            assert {"PATH", "LC_TIME"} <= set(names)
            assert "SITE_SECRET" not in names

    asyncio.run(scene())


def test_a_hook_is_read_again_with_the_settings() -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, path):
            assert (await queued(rig))[0].time_limit_s == 3600
            path.write_text(HEAD + GOOD.replace("3600", "60"))
            assert (await queued(rig))[0].time_limit_s == 3600, "until then as it was"
            await rig.ask(wire.ReloadConfig())
            assert (await queued(rig))[0].time_limit_s == 60
            Path(path.parent, "gq.toml").write_text("")
            await rig.ask(wire.ReloadConfig())
            assert (await queued(rig))[0].time_limit_s is None, "there is none any more"

    asyncio.run(scene())


def test_a_hook_that_is_missing_or_open_to_others_is_refused_at_reload_and_the_old_one_stays() -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, path):
            path.chmod(0o666)
            assert (await refused(rig, wire.ReloadConfig())).code == "unsafe_config"
            path.chmod(0o600)
            config = Path(path.parent, "gq.toml")
            config.write_text(config.read_text().replace("hook.py:", "absent.py:"))
            assert (await refused(rig, wire.ReloadConfig())).code == "bad_hook"
            assert (await queued(rig))[0].time_limit_s == 3600

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("def submit(job, submitter:", "SyntaxError"),
        ("def other(job, submitter):\n    return None", "has no function `submit`"),
        ("import nothing_of_this_name", "ModuleNotFoundError"),
    ],
)
def test_a_hook_that_cannot_be_loaded_is_refused_at_reload_and_nothing_changes(hook: str, words: str) -> None:
    async def scene() -> None:
        async with hooked(GOOD) as (rig, path):
            assert (await queued(rig))[0].time_limit_s == 3600
            path.write_text(HEAD + hook)
            config = Path(path.parent, "gq.toml")
            config.write_text(f'{config.read_text()}[[partition]]\nname = "late"\n')
            refusal = await refused(rig, wire.ReloadConfig())
            assert (refusal.code, refusal.hint) == ("bad_hook", "fix the file, or submit_hook in gq.toml")
            assert words in refusal.message and str(path) in refusal.message
            cluster = await rig.ask(wire.GetCluster())
            assert isinstance(cluster, wire.Cluster)
            assert [one.partition for one in cluster.info.partitions] == ["main"]
            assert (await queued(rig))[0].time_limit_s == 3600
            path.write_text(HEAD + GOOD)
            assert isinstance(await rig.ask(wire.ReloadConfig()), wire.Done)

    asyncio.run(scene())


def test_a_controller_that_starts_with_a_broken_hook_says_so_before_the_first_job(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def said() -> list[str]:
        return [one.getMessage() for one in caplog.records if "cannot be loaded" in one.getMessage()]

    async def scene() -> None:
        async with hooked("def submit(job, submitter:"):
            async with asyncio.timeout(PATIENCE_S):
                while not said():
                    await asyncio.sleep(0.01)
        [line] = said()
        assert "SyntaxError" in line and "every job is refused" in line

    asyncio.run(scene())


def test_one_users_flood_waits_behind_itself_only() -> None:
    async def scene() -> None:
        async with hooked("def submit(job, submitter):\n    time.sleep(0.01)", "submit_hook_timeout_s = 5") as (rig, _):
            link = rig.client_wire()
            for _ in range(600):
                await link.request(job())
            answers = [await link.reply() for _ in range(600)]
            busy = [one.body for one in answers if isinstance(one.body, wire.Refused)]
            assert 0 < len(busy) < 600
            assert {one.code for one in busy} == {"hook_refused"}
            assert "of your jobs are already waiting for the site's submit hook" in busy[0].message

    asyncio.run(scene())


# ── a daemon ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_users_of_a_daemon_with_a_hook_see_what_it_did(
    private_cluster: Callable[..., PrivateCluster],
) -> None:
    cluster = private_cluster()
    hook = cluster.directory / "hook.py"
    hook.write_text(HEAD + GOOD)
    config = cluster.directory / "gq.toml"
    config.write_text(config.read_text().replace("[controller]", '[controller]\nsubmit_hook = "hook.py:submit"'))
    os.kill(cluster.pid("gqd"), signal.SIGHUP)

    job_id = submitted_past_the_hook(cluster)
    assert "time_limit_s=3600" in cluster.ok("gqctl", "show", job_id)
    bad = cluster.run("gqsub", "-J", "bad", "--wrap", "true")
    assert (bad.returncode, bad.stdout) == (1, "")
    assert "may not call a job bad" in bad.stderr

    cluster.kill("gqd")

    def workers() -> list[int]:
        directory = cluster.directory.name.encode()
        return [pid for pid in processes() if b"hook_worker" in cmdline(pid) and directory in cmdline(pid)]

    wait_until(lambda: not workers(), what="the hook goes with a controller that is killed")


def cmdline(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def submitted_past_the_hook(cluster: PrivateCluster) -> str:
    """Submit until the signal has been heard."""
    for _ in range(100):
        job_id = cluster.ok("gqsub", "--parsable", "-H", "--wrap", "true").strip()
        if "time_limit_s=" in cluster.ok("gqctl", "show", job_id):
            return job_id
    raise AssertionError("the hook was never asked")


# ── the file ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hook_is_loaded_only_from_a_file_that_others_cannot_write(tmp_path: Path) -> None:
    path = tmp_path / "hook.py"
    path.write_text(HEAD + GOOD)
    hook = load_hook(f"{path}:submit")
    with pytest.raises(Reject):
        hook(spec("bad"), Submitter(user="u", uid=1, gid=1))
    path.chmod(0o602)
    for ask in (load_hook, check_hook):
        with pytest.raises(Refusal) as caught:
            ask(f"{path}:submit")
        assert caught.value.hint == f"chmod go-w {path}"


def test_the_example_does_what_it_says() -> None:
    submit = load_hook(f"{EXAMPLE}:submit")
    user = Submitter(user="ann", uid=1000, gid=1000, groups=("users",))
    wide = spec("wide", gpus=16)
    assert submit(wide, user) == msgspec.structs.replace(wide, time_limit_s=7200, partition="wide")
    long = spec("long", time_limit_s=2 * 86400)
    assert submit(long, msgspec.structs.replace(user, groups=("staff",))) == long
    with pytest.raises(Reject, match="are for staff"):
        submit(long, user)


def test_what_changed_is_told_value_by_value() -> None:
    before = spec("a", cpus_per_task=1)
    resources = msgspec.structs.replace(before.resources, cpus_per_task=4)
    after = msgspec.structs.replace(before, account="physics", resources=resources)
    assert list(changes(before, after)) == ["resources.cpus_per_task=4", 'account="physics"']
    assert list(changes(before, before)) == []
