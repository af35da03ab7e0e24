"""The columns of every table, in the order of its rows, and its primary key."""

from __future__ import annotations

COLUMNS: dict[str, tuple[str, ...]] = {
    "jobs": (
        "job_id", "name", "user", "uid", "gid", "partition", "state", "outcome", "reason", "why", "failure_class",
        "hold", "attempt", "restart_count", "launch_failures", "nodes", "node_count", "tasks", "cpus", "gpus",
        "memory_mib", "nice", "time_limit_s", "requeue", "submit_at", "eligible_at", "start_at", "end_at",
        "exit_code", "signal", "avoid", "spec", "account", "qos", "accrue_at", "array_job_id", "array_task_id",
        "array_throttle", "array_waiting", "array_cancelled", "array_succeeded", "array_failed", "dependency", "never",
        "ready", "hook", "expected_s", "estimate", "preempted", "asks", "ran_s",
        "resumed",
    ),
    "attempts": (
        "job_id", "attempt", "nodes", "node_count", "tasks", "cpus", "gpus", "memory_mib", "allocated_at", "start_at",
        "end_at", "outcome", "exit_code", "signal", "reason", "why", "failure_class", "after_ending", "grace_s",
        "master_port", "next_step", "user_cpu_s", "system_cpu_s", "max_rss_mib", "grants",
        "billing", "slot", "estimate", "reservation", "occurrence", "checkpoint_at", "giving_way", "lost_gpu_s",
        "suspended_at", "suspended_s",
        "elastic", "changed_at", "gpu_s_before", "billed_s_before", "borrows", "priority",
    ),
    "allocations": (
        "job_id", "attempt", "node", "tasks", "cpus", "gpus", "cpu_ids", "gpu_ids", "memory_mib", "phase",
        "is_stranded", "freed_at", "user_cpu_s", "system_cpu_s", "max_rss_mib",
    ),
    "steps": (
        "job_id", "attempt", "step", "name", "nodes", "tasks", "cpus", "gpus", "start_at", "end_at", "outcome",
        "exit_code", "signal", "user_cpu_s", "system_cpu_s", "max_rss_mib", "received", "part_ends", "layout",
        "secret_key",
    ),
    "nodes": (
        "node", "address", "is_lost", "is_down", "is_drained", "reason", "reason_by", "reason_at", "cpus",
        "memory_mib", "gpus", "drained_gpus", "backoff_until", "backoff_failures", "registered_at", "incarnation",
        "boot_id", "step_endpoint", "step_public_key", "secret_ticket_key", "inventory",
    ),
    "keys": (
        "public", "kind", "name", "uid", "gid", "is_login", "added_at", "added_by", "expires_at", "joined", "note",
    ),
    "accounts": (
        "account", "parent", "description", "shares", "guaranteed_gpus", "borrow_gpus", "unix_group", "coordinators",
        "default_qos",
    ),
    "members": ("user", "account", "shares", "is_default", "from_group", "usage", "usage_at", "usage_rate"),
    "qos": (
        "qos", "description", "priority", "usage_factor", "max_time_s", "users", "groups", "accounts", "preempts",
        "preempt_mode", "min_run_s", "borrows_reserved",
    ),
    "limits": ("holder", "name", "resource", "per_user", "most", "enforced_at"),
    "budgets": ("holder", "name", "resource", "per_user", "user", "began_at", "used", "used_at", "rate"),
    "crontabs": ("user", "uid", "set_at", "text"),
    "cron_entries": (
        "user", "number", "line", "schedule", "zone", "overlap", "missed", "spec", "followed_until", "last_due_at",
        "last_job_id", "last_state", "trouble", "trouble_at",
    ),
    "lengths": ("user", "account", "gpus", "learned_at", "lengths_s"),
    "notices": (
        "notice_id", "user", "uid", "job_id", "occasion", "kind", "target", "body", "queued_at", "next_at", "attempts",
        "why", "state", "ended_at", "by_job",
    ),
    "told_jobs": ("job_id", "told"),
    "dropped_notices": ("user", "dropped"),
    "reservations": (
        "reservation_id", "name", "owner", "uid", "created_at", "cron", "zone", "duration_s", "is_gone",
        "next_number", "planned_until", "over_at", "booking",
    ),
    "occurrences": (
        "reservation_id", "number", "reservation", "owner", "begin_at", "end_at", "state", "ended_at", "why",
        "nodes", "gpus", "missing_gpus", "used_at", "empty_since", "used_gpu_s", "grants",
    ),
    "claims": (
        "job_id", "made_at", "nodes", "gpus", "reservation", "occurrence", "victims", "grants",
    ),
    "parked": ("job_id", "attempt", "to_job", "parked_at", "node", "gpus", "lent", "gpu_memory"),
    "owed_orders": ("job_id", "attempt", "node", "order_id", "body"),
    "requests": ("request_id", "at", "uid", "answer"),
    "events": ("at", "kind", "job_id", "node", "body"),
    "audit": ("at", "user", "uid", "origin", "action", "object", "outcome", "detail"),
    "meta": ("name", "value"),
}  # fmt: skip

KEYS: dict[str, tuple[str, ...]] = {
    "jobs": ("job_id",),
    "attempts": ("job_id", "attempt"),
    "allocations": ("job_id", "attempt", "node"),
    "steps": ("job_id", "attempt", "step"),
    "nodes": ("node",),
    "keys": ("public",),
    "accounts": ("account",),
    "members": ("user", "account"),
    "qos": ("qos",),
    "limits": ("holder", "name", "resource", "per_user"),
    "budgets": ("holder", "name", "resource", "per_user", "user"),
    "crontabs": ("user",),
    "cron_entries": ("user", "number"),
    "lengths": ("user", "account", "gpus"),
    "notices": ("notice_id",),
    "told_jobs": ("job_id",),
    "dropped_notices": ("user",),
    "reservations": ("reservation_id",),
    "occurrences": ("reservation_id", "number"),
    "claims": ("job_id",),
    "parked": ("job_id", "attempt"),
    "owed_orders": ("job_id", "attempt", "node", "order_id"),
    "requests": ("request_id",),
    "meta": ("name",),
}
"""Primary keys, always the first columns; the database numbers events and audit entries."""

GOING = (
    "nodes", "keys", "accounts", "members", "qos", "limits", "budgets", "lengths", "crontabs", "cron_entries",
    "told_jobs", "dropped_notices", "claims", "parked", "owed_orders",
)  # fmt: skip
"""Tables whose rows are deleted together with their object; a delete is the whole key."""
