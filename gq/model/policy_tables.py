"""Tables of gq.toml that the deciding code uses as they are: bounds, times, weights, with their keys and defaults."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of the deciding code; each field is a key of ``[limits]`` in gq.toml."""

    jobs: int = 1_000_000
    """Maximum number of jobs that are pending or running at once."""
    jobs_per_user: int = 200_000
    nodes: int = 10_000
    steps_per_job: int = 40_000
    keys: int = 20_000
    """Maximum number of keys of nodes and users and of open tokens."""
    running_steps_per_job: int = 512
    waiting_requests: int = 10_000
    """Maximum number of requests whose answer is delayed (`WaitJobs`, `CreateStep`)."""
    page: int = 2000
    """Maximum number of jobs in one answer."""
    ended_job_keep_s: int = 300
    """Seconds that ended jobs stay in memory (and in `gqstat -t all`); history keeps them."""
    request_memory_s: int = 600
    restarts: int = 20
    """Number of restarts after which the failure of a node no longer requeues a job."""
    array_tasks: int = 100_000
    """Maximum number of tasks of one array."""
    accounts: int = 10_000
    """Maximum number of accounts, QOS and limits together; ten times as many members are permitted."""
    crontab_entries: int = 100
    """Maximum number of crontab entries of one user."""
    launch_failures: int = 10
    """Number of consecutive failed launches, caused by the job, after which the job is held."""


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds; each field is a key of ``[timers]`` in gq.toml."""

    heartbeat_s: float = 5.0
    node_lost_s: float = 60.0
    """Silence after which a node counts as lost."""
    prepare_ack_s: float = 2.0
    """Silence after a PREPARE (or GO) that fails the launch."""
    prepare_s: float = 120.0
    """Maximum time from PREPARE until all nodes are ready."""
    resend_s: float = 5.0
    """Interval between repeats of an order that was not acknowledged."""
    grace_s: int = 30
    """Time between TERM and KILL."""
    backoff_min_s: float = 30.0
    backoff_max_s: float = 600.0
    interactive_lost_s: float = 60.0
    schedule_min_interval_s: float = 0.0
    tick_s: float = 0.5


class PriorityWeights(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[priority]``: points of each factor at its value 1."""

    due: float = 10_000.0
    short: float = 3000.0
    age: float = 0.0
    fair_share: float = 100.0
    job_size: float = 0.0
    partition: float = 15_000.0
    qos: float = 30_000.0
    max_age_s: float = 7 * 86400.0
    """Age at which the age factor reaches 1."""
    favor_small: bool = False
    """The job size factor is 1 for the smallest job, not for the largest."""
    half_life_s: float | None = 7 * 86400.0
    """Half-life of usage; None (``"never"``): usage does not decay."""
    factors: dict[str, float] = {}
    """Weights of the site's own factors, by the name of their entry point in ``gq.priority_factors``."""


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[billing]``: the cost of an hour of each resource, in hours of a GPU of weight 1."""

    gpu: float = 1.0
    gpu_types: dict[str, float] = {}
    """Weight by GPU type; other types have the weight of ``gpu``."""
    cpu: float = 0.0
    memory_gib: float = 0.0


class Accounting(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[accounts]``."""

    require: bool = False
    """Whether jobs of users without an account are refused; else they go to the default account."""
    kill_on_invalid_dep: bool = False
    """Whether jobs whose dependency can never be met are ended, unless the job specifies otherwise."""


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[reservations]``."""

    users: bool = False
    """Whether every user may reserve, within the next four limits; else only administrators and operators may."""
    max_per_user: int = 5
    """Maximum number of a user's reservations that are not over."""
    max_gpu_hours: float | None = 1000.0
    """Maximum number of GPU-hours that a user may have reserved ahead; None: no maximum."""
    max_ahead_s: int | None = 30 * 86400
    """Maximum number of seconds from now to the begin; None: no maximum."""
    max_duration_s: int | None = 7 * 86400
    """Maximum duration of one occurrence; None: no maximum."""
    horizon_s: int = 14 * 86400
    """Occurrences of a cron line that begin within this time are planned."""
    clear_time_s: int = 30
    """Seconds before an occurrence begins at which other jobs must have left its resources, their start and preemption
    delays included: time for epilogs, and for clocks that differ."""
    no_show_s: int | None = None
    """Default of a reservation's no-show time; None: an unused occurrence lasts until its end."""
