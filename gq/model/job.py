"""A job as its user describes it (`JobSpec`) and as it is shown (`JobInfo`), and how a process ended (`ExitStatus`)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gq.model.account import NORMAL_QOS
from gq.model.dependency import Dependency
from gq.model.notice import Target
from gq.model.resource import Count, Grant, ResourceRequest
from gq.model.state import Reason

Signum = Annotated[int, msgspec.Meta(ge=1, le=64)]
Nice = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Umask = Annotated[int, msgspec.Meta(ge=0, le=0o777)]


REQUEUE_ON = ("preempt", "node_fail", "timeout")


class SignalSpec(msgspec.Struct, frozen=True, kw_only=True):
    """``--signal=[B:]SIG@s``: send `signum` `before_s` seconds before the time limit."""

    signum: Signum
    before_s: Count = 60
    to_batch_shell: bool = False
    """True: the batch script's process only; False: every step, not the batch script (as Slurm)."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What was asked for.  None means "the default of the partition or of the cluster"."""

    name: str
    resources: ResourceRequest = ResourceRequest()
    partition: str | None = None
    time_limit_s: Count | None = None
    """None: the partition's default."""
    begin_at: float | None = None
    is_held: bool = False
    nice: Nice = 0
    """Added to the place in the queue: larger goes later.  Negative only for operators."""
    requeue: bool | None = None
    """May be queued again after a node failure; None: the cluster's ``job_requeue``."""
    signal: SignalSpec | None = None
    kill_on_bad_exit: bool = True
    """The job's steps end when one of their tasks fails (a step may override it)."""
    no_kill: bool = False
    """Goes on when one of its nodes is lost."""
    is_interactive: bool = False
    """No batch script: `gqalloc` or `gqrun` holds it and must keep it alive."""
    args: tuple[str, ...] = ()
    """Arguments of the batch script."""
    chdir: str = "/"
    output: str | None = None
    """File name pattern; None: ``gq-%j.out`` in the submit directory."""
    error: str | None = None
    """None: with the output."""
    input: str | None = None
    open_mode: str = "truncate"
    """``truncate`` or ``append``; a restarted attempt always appends."""
    umask: Umask = 0o022
    comment: str = ""
    submit_dir: str = "/"
    submit_host: str = ""
    command: str = ""
    """What is shown as the job's command: the script's path, or the wrapped command line."""
    is_gate: bool = False
    """The job runs the command of another job's ``--if``, which `command` shows."""
    account: str | None = None
    """None: the user's default account."""
    qos: str | None = None
    """None: the default of the account."""
    array: str = ""
    """The tasks of an array (`gq.model.tasks`): ``1-100000:2``; empty: it is none."""
    array_throttle: Count | None = None
    """So many of its tasks at once; None: as many as fit."""
    fail_fast: bool = False
    """When a task of the array ends badly, the others end, too."""
    dependency: Dependency | None = None
    kill_on_invalid_dep: bool | None = None
    """It ends when its dependency can never be met; else it stays and says so.  None: as the site likes."""
    deadline_at: float | None = None
    """It must be over by then: it never starts when it could not be, and ends at the latest then."""
    grace_s: Count | None = None
    """From TERM to KILL, whenever it is ended; None: the cluster's ``grace_s``."""
    requeue_on: tuple[str, ...] = ()
    """Of `REQUEUE_ON`: after these ends it waits again; empty: after a node failure or preemption, if `requeue`."""
    max_requeue: Count | None = None
    """So many times at most; None: the cluster's ``restarts``."""
    resume_s: Count | None = None
    """What it needs, when it was stopped and starts again, until it is where it was: it saves its work when it is told
    to go.  None: as long as the cluster's policy says."""
    array_auto: bool = False
    """So many tasks of the array at once as there are idle GPUs, and no fewer than its owner's fair share."""
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, values): the array has a task for each combination, the last name varies fastest."""
    priority: Count | None = None
    """An operator's word instead of what the factors add up to."""
    reservation: str = ""
    """It runs in this one only; empty: outside of all, or in one that is magnetic."""
    notify: tuple[Target, ...] = ()
    """Who is told of what happens to it."""
    cron: str = ""
    """The entry of its owner's crontab that it is of: ``line 3: 0 20 * * *``; set by the controller."""
    script_digest: str = ""
    """SHA-256 (hex) of the script in the blob store; set by the controller's door, never by a client."""
    environment_digest: str = ""


class ExitStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a process ended: an exit code, or the signal that ended it (then `code` is 0)."""

    code: int = 0
    signal: int = 0

    @property
    def is_success(self) -> bool:
        return self.code == 0 and self.signal == 0

    @property
    def shell_code(self) -> int:
        """What a shell would report: the code, or 128 + signal."""
        return 128 + self.signal if self.signal else self.code


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an attempt or a step used on one node."""

    user_cpu_s: float = 0.0
    system_cpu_s: float = 0.0
    max_rss_mib: int = 0


class StepInfo(msgspec.Struct, kw_only=True):
    """A step as it is shown."""

    job_id: int
    attempt: int
    step: int
    name: str
    state: str
    """RUNNING, or an `Outcome`."""
    nodes: tuple[str, ...] = ()
    tasks: int = 1
    cpus: int = 0
    gpus: int = 0
    start_at: float | None = None
    end_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage = Usage()


class JobInfo(msgspec.Struct, kw_only=True):
    """A job as it is shown, live or from history.  Instants are seconds since the epoch."""

    job_id: int
    name: str
    user: str
    uid: int
    partition: str
    state: str
    """Slurm's long word (see ``gq.model.state.state_word``)."""
    reason: str = Reason.NONE.value
    why: str = ""
    """One plain sentence."""
    account: str = ""
    qos: str = NORMAL_QOS
    array_job_id: int | None = None
    """The array's id, of its record and of each task that has left it."""
    array_task_id: int | None = None
    """Of a task that has left the array's record."""
    array_tasks: str = ""
    """Of an array's record: the tasks that wait in it (`gq.model.tasks`), or that were cancelled there."""
    array_task_count: int = 0
    """How many these are."""
    array_throttle: int | None = None
    array_auto: bool = False
    """Its throttle is the idle GPUs, and the fair share."""
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, values) of what varies in the array; of a task of it with its one value."""
    fail_fast: bool = False
    reservation: str = ""
    """That it asks for, or runs in."""
    cron: str = ""
    """The entry of its owner's crontab that it is of: ``line 3: 0 20 * * *``."""
    dependency: str = ""
    """What it still waits for, as `gq.model.dependency.format_dependency` writes it."""
    kill_on_invalid_dep: bool = False
    deadline_at: float | None = None
    billing: float = 0.0
    """Weighted GPUs that it is billed for while it runs; of a waiting job what it would be."""
    hook: str = ""
    """What the site's submit hook did to it."""
    borrows: tuple[str, ...] = ()
    """It runs on what these reservations keep, and may be asked to go at any time."""
    preempted: int = 0
    """So often it has given way to others."""
    preempted_by: str = ""
    """The last time: to this one …"""
    preempted_at: float | None = None
    """… then."""
    lost_gpu_s: float = 0.0
    """What it had done and not saved whenever it gave way, in GPU-seconds."""
    resume_s: float | None = None
    """What a resume costs it: as it has measured itself, else as its owner says."""
    attempt: int = 0
    restart_count: int = 0
    grants: tuple[Grant, ...] = ()
    """What it holds, or held last; empty while pending for the first time."""
    nodes_wanted: int = 1
    tasks: int = 1
    cpus: int = 1
    """Held while it runs, wanted while it waits; likewise the next two."""
    gpus: int = 0
    memory_mib: int = 0
    gpu_type: str | None = None
    time_limit_s: int | None = None
    submit_at: float
    eligible_at: float | None = None
    start_at: float | None = None
    end_at: float | None = None
    expected_start_at: float | None = None
    expected_start_p90_at: float | None = None
    """Of ten such estimates nine are right that it starts by then."""
    is_start_promised: bool = False
    """Its start is protected, and everything in its way has a time limit."""
    queue_position: int | None = None
    """Among those that wait in its partition, from 1."""
    expected_s: float | None = None
    """How long it is expected to run."""
    exit_code: int | None = None
    signal: int | None = None
    failure_class: str = ""
    priority: int = 0
    nice: int = 0
    is_held: bool = False
    requeue: bool = True
    begin_at: float | None = None
    chdir: str = ""
    output_path: str = ""
    """Patterns expanded as far as they are known; absolute."""
    error_path: str = ""
    input_path: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    comment: str = ""
    submit_dir: str = ""
    submit_host: str = ""
    is_interactive: bool = False
    usage: Usage = Usage()
    open_asks: int = 0
    """What others ask of its owner, and is not answered."""
    suspended_at: float | None = None
    """Its processes stand still since then …"""
    suspended_s: float = 0.0
    """… and stood still so long before that: does not count against its time limit."""
    parked_for: str = ""
    """It stands still for this job, and goes on when that is over."""
    runs_on_parked: tuple[str, ...] = ()
    """It has GPUs or CPUs of these jobs, which stand still for it."""
    resources: ResourceRequest = ResourceRequest()
    steps: tuple[StepInfo, ...] = ()
    """Only where steps were asked for."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(grant.node for grant in self.grants)


class BriefJobInfo(JobInfo, kw_only=True, omit_defaults=True, gc=False):
    """The same, sent without what is at its default, which in a long list is most; the collector passes it over."""
