"""The Python API: queue jobs, wait for them, look at them.  Its public names are those of the package `gq`.

    import gq

    job = gq.submit("train.sh", gpus=4, time="2h")
    job.wait().exit_code

    with gq.connect() as cluster:                       # one connection, many submissions
        request = cluster.prepare(["./simulate", "--seed", "7"], cpus_per_task=4)
        jobs = list(cluster.submit_many([request] * 1000))
        sweep = cluster.submit("train.sh", array="1-100%8", account="nlp", dependency=f"afterok:{jobs[0].id}")
        sweep.wait()                                    # for all of its tasks

The module has no rules of its own: keywords are the options of `gqsub` (``--gpus-per-node`` is ``gpus_per_node``) with
the same meaning; options in a script apply unless a keyword overrides them.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypedDict, TypeVar, Unpack

import msgspec

from gq.connection.client import Client as Connection
from gq.connection.client import expect
from gq.connection.locate import find_cluster
from gq.errors import Refusal, UsageError
from gq.model.job import JobInfo
from gq.model.sweep import format_sweep
from gq.near_miss import suggestion
from gq.request.directives import Header, read_header
from gq.request.getopt import Arguments
from gq.request.jobspec import Submission, exported_environment, job_spec
from gq.request.layers import job_arguments, merge
from gq.request.option import ParsedOption
from gq.request.options import SUB, options_of
from gq.wire import client as wire

Script = str | os.PathLike[str] | Sequence[str]
"""The path of a batch script, its text (it begins with ``#!``), a command line for ``sh``, or a command's words."""

PATIENCE_S = 10.0
"""Seconds to wait for a controller that restarts, once it has been reached."""
FIRST_PATIENCE_S = 2.0
"""Seconds to wait for a controller that has not been reached yet, so that a cluster that is down is reported soon."""
_HOLD_S = 25.0
A = TypeVar("A", bound=wire.ReplyBody)


class JobOptions(TypedDict, total=False):
    """Keywords of `submit`; `name` is ``--job-name``.  Flags are True or False; a repeatable option may be a list.

    `sweep` is a string as for ``--sweep``, or a dictionary: ``{"lr": [1e-3, 1e-4], "bs": [32, 64]}``.
    """

    name: str
    partition: str
    time: str | int
    comment: str
    array: str
    sweep: str | Mapping[str, Sequence[object]]
    fail_fast: bool
    account: str
    qos: str
    dependency: str
    kill_on_invalid_dep: bool
    deadline: str
    nodes: int | str
    ntasks: int
    ntasks_per_node: int
    ntasks_per_gpu: int
    cpus_per_task: int
    mem: str | int
    mem_per_cpu: str | int
    mem_per_gpu: str | int
    gpus: int | str
    gpus_per_node: int | str
    gpus_per_task: int | str
    cpus_per_gpu: int
    gres: str
    min_gpu_mem: str | int
    elastic: bool
    fill_nodes: bool
    tmp: str | int
    licenses: str
    constraint: str
    prefer: str
    switches: str | int
    data: str | Sequence[str]
    role: str | Sequence[str]
    reservation: str
    notify: str | Sequence[str]
    notify_on: str
    mail_type: str
    mail_user: str
    nodelist: str
    exclude: str
    exclusive: bool
    begin: str
    hold: bool
    nice: int
    priority: int
    requeue: bool
    requeue_on: str
    max_requeue: int
    grace: str | int
    resume_cost: str | int
    signal: str
    kill_on_bad_exit: bool
    no_kill: bool
    output: str
    error: str
    input: str
    open_mode: str
    chdir: str


def submit(script: Script, *, environment: Mapping[str, str] | None = None, **options: Unpack[JobOptions]) -> Job:
    """Queue one job on the cluster that the environment selects; see `Client.submit`.

    The job connects anew for each question, so that many jobs hold no connections open; `connect` is for many jobs.
    Raises `Unreachable` after about two seconds if no controller listens.
    """
    return Client(_connection(), is_lasting=False).submit(script, environment=environment, **options)


def connect(timeout_s: float = 30.0) -> Client:
    """Connect to the cluster that the environment selects (``GQ_DIR``, ``GQ_CONFIG``, …)."""
    return Client(_connection(timeout_s))


def _connection(timeout_s: float = 30.0) -> Connection:
    location = find_cluster(os.environ)
    return Connection(location, timeout_s, PATIENCE_S, first_patience_s=FIRST_PATIENCE_S)


class Client:
    """A connection to a cluster.  Several threads must not use it at once."""

    def __init__(self, connection: Connection, is_lasting: bool = True) -> None:
        self._connection = connection
        self._is_lasting = is_lasting
        """False: the client disconnects after each answer, since nobody would close it."""

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    def prepare(
        self, script: Script, *, environment: Mapping[str, str] | None = None, **options: Unpack[JobOptions]
    ) -> wire.Submit:
        """Describe a job without queuing it; the result may be queued many times.

        `environment` None: the environment of this process.  Raises `UsageError` for an option that cannot be read.
        """
        batch = _batch(script)
        header = read_header(batch.text, batch.file) if batch.file else Header()
        _refuse_gate(header.given)
        others = [Arguments(merge(component)) for component in header.others]
        spec = job_spec(job_arguments(SUB, _given(dict(options)), {}, header.given), batch.submission, others)
        exported = exported_environment(None, os.environ if environment is None else environment)
        return wire.Submit(spec=spec, script=batch.data, environment=_sendable(exported))

    def submit(
        self, script: Script, *, environment: Mapping[str, str] | None = None, **options: Unpack[JobOptions]
    ) -> Job:
        """Queue a job durably.  Raises `Refusal` with the reason and a hint."""
        request = self.prepare(script, environment=environment, **options)
        return Job(self, self._ask(request, wire.Submitted).job_id)

    def submit_many(self, requests: Iterable[wire.Submit]) -> Iterator[Job | Refusal]:
        """Queue prepared jobs, many requests in flight; yield each answer in order, a refusal as a `Refusal` item."""
        for answer in self._connection.ask_many(requests):
            yield answer if isinstance(answer, Refusal) else Job(self, expect(answer, wire.Submitted).job_id)

    def job(self, job_id: int) -> Job:
        """Return a job by its id, without checking that it exists."""
        return Job(self, job_id)

    def _ask(self, body: wire.RequestBody, kind: type[A]) -> A:
        try:
            return self._connection.ask_for(body, kind)
        finally:
            if not self._is_lasting:
                self._connection.close()

    def _tasks(self, job_id: int) -> list[JobInfo]:
        """Query from history all tasks of an array, or the job alone."""
        query = wire.QueryHistory(filter=wire.JobFilter(job_ids=(job_id,)), with_steps=False)
        found: list[JobInfo] = []
        while True:
            answer = self._ask(query, wire.Jobs)
            found += answer.jobs
            if not answer.more or not answer.jobs:
                return found
            query = msgspec.structs.replace(query, after=answer.jobs[-1].job_id)

    def _wait(self, job_id: int, timeout_s: float | None) -> JobInfo:
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _HOLD_S if deadline is None else max(0.0, deadline - time.monotonic())
            body = wire.WaitJobs(job_ids=(job_id,), timeout_s=min(_HOLD_S, left_s))
            if self._ask(body, wire.Waited).is_done:
                return self._ended_job(job_id)
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {job_id} has not ended within {timeout_s:g} s")

    def _ended_job(self, job_id: int) -> JobInfo:
        """Return the ended job; for an array, the task with the worst exit."""
        try:
            info = self._info(job_id)
        except Refusal:
            info = None  # an array without pending tasks
        if info is not None and info.array_job_id is None:
            return info
        return max(self._tasks(job_id), key=_exit_code)

    def _info(self, job_id: int) -> JobInfo:
        """Return a job from the controller's memory, or from history if the controller no longer has it."""
        selection = wire.JobFilter(job_ids=(job_id,))
        for query in (wire.ListJobs(filter=selection), wire.QueryHistory(filter=selection, with_steps=False)):
            for info in self._ask(query, wire.Jobs).jobs:
                return info
        raise Refusal("unknown_job", f"job {job_id} does not exist")


class Job:
    """A job that was queued."""

    def __init__(self, client: Client, job_id: int) -> None:
        self._client = client
        self.id = job_id

    def __repr__(self) -> str:
        return f"Job({self.id})"

    def info(self) -> JobInfo:
        """Return the job's current state; for an array, the record of its pending tasks, or else its first task."""
        return self._client._info(self.id)

    def tasks(self) -> list[JobInfo]:
        """For an array, return each task split out of its record, and the record of the others."""
        return self._client._tasks(self.id)

    def wait(self, timeout_s: float | None = None) -> JobInfo:
        """Wait until the job, or every task of the array, has ended; raise `TimeoutError` if that takes longer.

        Returns the ended job; for an array, the task with the worst exit.
        """
        return self._client._wait(self.id, timeout_s)

    def cancel(self) -> None:
        """End the job, whether pending or running; a job that has ended is not affected."""
        body = wire.CancelJobs(filter=wire.JobFilter(job_ids=(self.id,)))
        done = self._client._ask(body, wire.JobsDone)
        for _, why in done.refused:
            raise Refusal("not_cancelled", why)

    @property
    def output_path(self) -> Path:
        """Path of the job's standard output, expanded as far as known."""
        return Path(self.info().output_path)


def _exit_code(job: JobInfo) -> int:
    """Return the exit code of a shell: 0 for success."""
    if job.state == "COMPLETED":
        return 0
    return 128 + job.signal if job.signal else job.exit_code or 1


# ── the script ───────────────────────────────────────────────────────────────────────────────────────────────


class _Batch:
    """A batch script, with the name and command of its job."""

    def __init__(self, data: bytes, name: str, command: str, file: str = "") -> None:
        self.data = data
        self.file = file
        """The script's name in error messages about its header; empty: the script has no header of options."""
        self.submission = _submission(name, command)

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def _batch(script: Script) -> _Batch:
    if isinstance(script, os.PathLike):
        return _from_file(Path(script))
    if not isinstance(script, str):
        return _wrapped(shlex.join(script), script[0] if script else "")
    if script.startswith("#!"):
        return _Batch(script.encode(), "script", "", "script")
    if Path(script).is_file():
        return _from_file(Path(script))
    word = script.split(None, 1)[0] if script.strip() else ""
    if word == script and shutil.which(word) is None:
        raise Refusal("no_script", f"`{script}` is neither a file nor a command", "give the path of a batch script")
    return _wrapped(script, word)


def _from_file(path: Path) -> _Batch:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise Refusal("no_script", f"cannot read `{path}`: {error.strerror}") from error
    if not data.startswith(b"#!"):
        hint = "begin it with the interpreter's line, such as #!/bin/sh"
        raise Refusal("not_a_script", f"`{path}` is not a batch script: it does not begin with #!", hint)
    return _Batch(data, path.name, str(path.absolute()), str(path))


def _wrapped(command: str, first: str) -> _Batch:
    if not command.strip():
        raise UsageError("bad_value", "the command is empty")
    return _Batch(f"#!/bin/sh\n{command}\n".encode(), Path(first).name or "wrap", command)


def _submission(name: str, command: str) -> Submission:
    mask = os.umask(0o077)  # the umask cannot be read without setting it
    os.umask(mask)
    return Submission(
        name=name,
        submit_dir=str(Path.cwd()),
        submit_host=os.uname().nodename,
        umask=mask,
        now=time.time(),
        command=command,
        read_instant=_instant,
    )


def _instant(text: str, now: float) -> float:
    from gq.calendar.times import moment  # few submissions name one

    return moment(text, now).at


def _refuse_gate(header: Iterable[ParsedOption]) -> None:
    """Refuse ``--if`` in the header, which makes a second job: here one submission is one job."""
    for given in header:
        if given.name == "if":
            raise Refusal("not_available", f"{given.place} is not available from Python", "use `gqsub`")


_OFF = {
    "requeue": ParsedOption("no-requeue", "", "requeue="),
    "kill_on_bad_exit": ParsedOption("kill-on-bad-exit", "0", "kill_on_bad_exit="),
    "exclusive": ParsedOption("exclusive", "false", "exclusive="),
    "no_kill": ParsedOption("no-kill", "off", "no_kill="),
    "kill_on_invalid_dep": ParsedOption("kill-on-invalid-dep", "no", "kill_on_invalid_dep="),
}
"""The option for False, if leaving the option out has another meaning."""


_REPEATED = ("data", "notify", "role")
_ON = {"kill-on-invalid-dep": "yes"}
"""The option's value for True, if the option needs a value."""


def _given(keywords: dict[str, object]) -> list[ParsedOption]:
    """Translate keywords into options; None stands for an option that is not given."""
    options = (
        _option(keyword, item)
        for keyword, value in keywords.items()
        for item in (value if keyword in _REPEATED and isinstance(value, list | tuple) else [value])
        if item is not None
    )
    return [option for option in options if option is not None]


def _option(keyword: str, value: object) -> ParsedOption | None:
    keywords = JobOptions.__annotations__
    if keyword not in keywords:
        raise UsageError("unknown_option", f"`{keyword}` is not an option", suggestion(keyword, keywords))
    if value is False:
        return _OFF.get(keyword)
    name = "job-name" if keyword == "name" else keyword.replace("_", "-")
    if keyword == "sweep" and isinstance(value, Mapping):
        value = format_sweep(tuple((name, tuple(map(str, values))) for name, values in value.items()))
    if value is True:
        value = _ON.get(name) or next(option.if_bare or "" for option in options_of(SUB) if option.name == name)
    return ParsedOption(name, str(value), f"{keyword}=")


def _sendable(environment: dict[str, str]) -> dict[str, str]:
    """Leave out variables that are not UTF-8, since the wire carries only text."""
    return {name: value for name, value in environment.items() if _is_text(name) and _is_text(value)}


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True
