"""A job as requested (`JobSpec`) and as commands show it (`JobInfo`), and how a process ended (`ExitStatus`)."""

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
    """True: signal the batch script's process only; False: signal every step, not the batch script (as Slurm)."""


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A job request.  None stands for the default of the partition or of the cluster."""

    name: str
    resources: ResourceRequest = ResourceRequest()
    partition: str | None = None
    time_limit_s: Count | None = None
    """None: the partition's default."""
    begin_at: float | None = None
    is_held: bool = False
    nice: Nice = 0
    """Subtracted from the job's priority.  Only operators may set a negative value."""
    requeue: bool | None = None
    """Whether the job may be queued again after a node failure; None: the cluster's ``job_requeue``."""
    signal: SignalSpec | None = None
    kill_on_bad_exit: bool = True
    """The job's steps end when one of their tasks fails (a step may override it)."""
    no_kill: bool = False
    """The job continues when one of its nodes is lost."""
    is_interactive: bool = False
    """The job has no batch script: a `gqalloc` or `gqrun` process holds it and must keep it alive."""
    args: tuple[str, ...] = ()
    """Arguments of the batch script."""
    chdir: str = "/"
    output: str | None = None
    """File name pattern; None: ``gq-%j.out`` in the submit directory."""
    error: str | None = None
    """None: standard error goes to the same file as standard output."""
    input: str | None = None
    open_mode: str = "truncate"
    """``truncate`` or ``append``; a restarted attempt always appends."""
    umask: Umask = 0o022
    comment: str = ""
    submit_dir: str = "/"
    submit_host: str = ""
    command: str = ""
    """The command shown for the job: the script's path, or the wrapped command line."""
    is_gate: bool = False
    """The job runs the command of another job's ``--if``, which `command` shows."""
    account: str | None = None
    """None: the user's default account."""
    qos: str | None = None
    """None: the default of the account."""
    array: str = ""
    """The array's task numbers (`gq.model.tasks`): ``1-100000:2``; empty: the job is not an array."""
    array_throttle: Count | None = None
    """Maximum number of the array's tasks that run at once; None: no maximum."""
    fail_fast: bool = False
    """The first task of the array that fails ends the array's other tasks."""
    dependency: Dependency | None = None
    kill_on_invalid_dep: bool | None = None
    """Whether the job ends when its dependency can never be met, not stay pending; None: the cluster's default."""
    deadline_at: float | None = None
    """Instant by which the job must have ended: it never starts too late for that, and is ended at that instant."""
    grace_s: Count | None = None
    """Seconds between TERM and KILL whenever the job is ended; None: the cluster's ``grace_s``."""
    requeue_on: tuple[str, ...] = ()
    """Ends of `REQUEUE_ON` after which the job is queued again; empty: node failure and preemption, if `requeue`."""
    max_requeue: Count | None = None
    """Maximum number of requeues; None: the cluster's ``restarts``."""
    resume_s: Count | None = None
    """Seconds that the job needs after a restart to reach the point where it was stopped; it saves its work when it is
    notified of the stop.  None: the cluster's ``resume_cost``."""
    array_auto: bool = False
    """The number of tasks that run at once follows the idle GPUs, and is at least the owner's fair share."""
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, values): the array has a task for each combination; the last name varies fastest."""
    priority: Count | None = None
    """A priority set by an operator, which replaces the sum of the factors."""
    reservation: str = ""
    """Name of the only reservation that the job may run in; empty: none, or any magnetic reservation."""
    notify: tuple[Target, ...] = ()
    """The notification targets for events of the job."""
    cron: str = ""
    """The entry of its owner's crontab that created the job: ``line 3: 0 20 * * *``; set by the controller."""
    script_digest: str = ""
    """SHA-256 (hex) of the script in the blob store; set by the controller, never by a client."""
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
        """Return the exit code that a shell would report: the code, or 128 + signal."""
        return 128 + self.signal if self.signal else self.code


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """CPU time and peak memory that an attempt or a step used on one node."""

    user_cpu_s: float = 0.0
    system_cpu_s: float = 0.0
    max_rss_mib: int = 0


class StepInfo(msgspec.Struct, kw_only=True):
    """A step as commands show it."""

    job_id: int
    attempt: int
    step: int
    name: str
    state: str
    """``RUNNING``, or an `Outcome`."""
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
    """A job as commands show it, live or from history.  Instants are seconds since the epoch."""

    job_id: int
    name: str
    user: str
    uid: int
    partition: str
    state: str
    """Slurm's long word (see ``gq.model.state.state_word``)."""
    reason: str = Reason.NONE.value
    why: str = ""
    """A sentence that explains `reason`."""
    account: str = ""
    qos: str = NORMAL_QOS
    array_job_id: int | None = None
    """The array's id, in the array's record and in the record of each task split out of it."""
    array_task_id: int | None = None
    """The task's number, in the record of a task split out of its array."""
    array_tasks: str = ""
    """In an array's record: the tasks pending in it (`gq.model.tasks`), or cancelled while pending."""
    array_task_count: int = 0
    """The number of tasks in `array_tasks`."""
    array_throttle: int | None = None
    array_auto: bool = False
    """The throttle is automatic: it follows the idle GPUs and the owner's fair share."""
    sweep: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name, values) of the array's sweep; in a task's record, each name has only the task's value."""
    fail_fast: bool = False
    reservation: str = ""
    """The reservation that the job requests or runs in."""
    cron: str = ""
    """The entry of its owner's crontab that created the job: ``line 3: 0 20 * * *``."""
    dependency: str = ""
    """The dependencies that are not met yet, as `gq.model.dependency.format_dependency` writes them."""
    kill_on_invalid_dep: bool = False
    deadline_at: float | None = None
    billing: float = 0.0
    """Weighted GPUs that the job is billed for while it runs; for a pending job, the expected value."""
    hook: str = ""
    """Changes that the site's submit hook made to the job."""
    borrows: tuple[str, ...] = ()
    """Reservations whose unused resources the job borrows; it may be preempted at any time."""
    preempted: int = 0
    """Number of times that the job was preempted."""
    preempted_by: str = ""
    """The job that preempted this job last."""
    preempted_at: float | None = None
    """When the last preemption was."""
    lost_gpu_s: float = 0.0
    """Work not saved at the job's preemptions, summed, in GPU-seconds."""
    resume_s: float | None = None
    """Seconds that the job takes to resume: as the job has measured, else as its owner specified."""
    attempt: int = 0
    restart_count: int = 0
    grants: tuple[Grant, ...] = ()
    """Resources that the job holds, or held last; empty while it is pending for the first time."""
    nodes_wanted: int = 1
    tasks: int = 1
    cpus: int = 1
    """CPUs held while the job runs, requested while it is pending; `gpus` and `memory_mib` have the same meaning."""
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
    """Instant by which the job starts in nine of ten such estimates."""
    is_start_promised: bool = False
    """The job has a planned start, and every job that it waits for has a time limit."""
    queue_position: int | None = None
    """Position among the pending jobs of its partition, from 1."""
    expected_s: float | None = None
    """Predicted run time."""
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
    """Absolute path, with the pattern expanded as far as its values are known."""
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
    """Number of asks to the job's owner that have no answer yet."""
    suspended_at: float | None = None
    """Since when the job's processes are stopped."""
    suspended_s: float = 0.0
    """Seconds that the processes were stopped before `suspended_at`; these do not count against the time limit."""
    parked_for: str = ""
    """The preemptor for which this job is suspended; the job resumes when the preemptor ends."""
    runs_on_parked: tuple[str, ...] = ()
    """Suspended jobs whose GPUs or CPUs this job uses."""
    resources: ResourceRequest = ResourceRequest()
    steps: tuple[StepInfo, ...] = ()
    """Filled only if the request asked for steps."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(grant.node for grant in self.grants)


class BriefJobInfo(JobInfo, kw_only=True, omit_defaults=True, gc=False):
    """`JobInfo` for lists: the wire omits fields at their default, and the garbage collector does not track it."""
