"""Tables of gq.toml that decisions depend on as they are: bounds, times, weights.  Names and defaults of their keys."""

from __future__ import annotations

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Every bound of the deciding code; each is a key of ``[limits]`` in gq.toml."""

    jobs: int = 1_000_000
    """Jobs that may be pending or running at once."""
    jobs_per_user: int = 200_000
    nodes: int = 10_000
    steps_per_job: int = 40_000
    keys: int = 20_000
    """Keys of nodes and users, and tokens that are open."""
    running_steps_per_job: int = 512
    waiting_requests: int = 10_000
    """Requests whose answer is held back (`WaitJobs`, `CreateStep`)."""
    page: int = 2000
    """Jobs in one answer."""
    ended_job_keep_s: int = 300
    """Ended jobs stay in memory (and in `gqstat -t all`) that long; history has them for ever."""
    request_memory_s: int = 600
    restarts: int = 20
    """A job that has started again so often is not queued again after one more failure of a node."""
    array_tasks: int = 100_000
    """Of one array."""
    accounts: int = 10_000
    """Accounts, QOS and limits together; members may be ten times as many."""
    crontab_entries: int = 100
    """Of one user."""
    launch_failures: int = 10
    """After so many failed launches in a row that are the job's fault it is held."""


class Timers(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; keys of ``[timers]`` in gq.toml."""

    heartbeat_s: float = 5.0
    node_lost_s: float = 60.0
    """Silence after which a node counts as lost."""
    prepare_ack_s: float = 2.0
    """Silence after a PREPARE (or GO) that fails the launch."""
    prepare_s: float = 120.0
    """From PREPARE to ready on all nodes."""
    resend_s: float = 5.0
    """Between repeats of an order that was not acknowledged."""
    grace_s: int = 30
    """Between TERM and KILL."""
    backoff_min_s: float = 30.0
    backoff_max_s: float = 600.0
    interactive_lost_s: float = 60.0
    schedule_min_interval_s: float = 0.0
    tick_s: float = 0.5


class PriorityWeights(msgspec.Struct, frozen=True, kw_only=True):
    """``[priority]``: points of each factor where it is 1."""

    due: float = 10_000.0
    short: float = 3000.0
    age: float = 0.0
    fair_share: float = 100.0
    job_size: float = 0.0
    partition: float = 15_000.0
    qos: float = 30_000.0
    max_age_s: float = 7 * 86400.0
    """Older counts as 1."""
    favor_small: bool = False
    """The job size factor is 1 for the smallest job, not for the largest."""
    half_life_s: float | None = 7 * 86400.0
    """Of usage; None (``"never"``): nothing is forgotten."""
    factors: dict[str, float] = {}
    """Weights of the site's own factors, by the name of their entry point in ``gq.priority_factors``."""


class Billing(msgspec.Struct, frozen=True, kw_only=True):
    """``[billing]``: how much an hour of each costs, in hours of a GPU of weight 1."""

    gpu: float = 1.0
    gpu_types: dict[str, float] = {}
    """By type; those that are not here have the weight of ``gpu``."""
    cpu: float = 0.0
    memory_gib: float = 0.0


class Accounting(msgspec.Struct, frozen=True, kw_only=True):
    """``[accounts]``"""

    require: bool = False
    """Refuse jobs of users who are in no account; else they go to the default account."""
    kill_on_invalid_dep: bool = False
    """Jobs end when their dependency can never be met, unless they say otherwise."""


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """``[reservations]``"""

    users: bool = False
    """Everybody may reserve, within the next four; else only administrators and operators."""
    max_per_user: int = 5
    """Reservations of one user that are not over."""
    max_gpu_hours: float | None = 1000.0
    """That one user may have booked ahead; None: any number."""
    max_ahead_s: int | None = 30 * 86400
    """From now to the begin; None: any time."""
    max_duration_s: int | None = 7 * 86400
    """Of one occurrence, likewise."""
    horizon_s: int = 14 * 86400
    """Occurrences of a cron line that begin until then are planned."""
    clear_time_s: int = 30
    """So long before one begins the last job of others is gone from its place, however long that took to start and to
    give way: for epilogs, and clocks that differ."""
    no_show_s: int | None = None
    """Of reservations that say nothing of it; None: who never comes keeps it to the end."""
