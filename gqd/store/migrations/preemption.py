"""Migrations for preemption, suspension, elastic jobs, lending and time-slicing.

As in `gqd.store.migrations.schema`, a released migration is never edited: a change is a new one at the end.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

_GIVING_WAY = (
    """
    CREATE TABLE claims (                   -- what is kept for jobs that others give way to
        job_id INTEGER PRIMARY KEY,
        made_at REAL NOT NULL,
        nodes INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        reservation TEXT NOT NULL,          -- it is to start in this one
        occurrence INTEGER NOT NULL,
        victims TEXT NOT NULL,              -- JSON: attempts
        grants TEXT NOT NULL                -- JSON
    )
    """,
    "ALTER TABLE jobs ADD COLUMN preempted TEXT",  # JSON: how often, by whom last, and what was lost by that
    "ALTER TABLE attempts ADD COLUMN checkpoint_at REAL",  # when it last said that its work is saved
    "ALTER TABLE attempts ADD COLUMN giving_way TEXT",  # JSON: to whom, and until when
    "ALTER TABLE attempts ADD COLUMN lost_gpu_s REAL NOT NULL DEFAULT 0",  # work that was not saved when it gave way
    "ALTER TABLE qos ADD COLUMN preempts TEXT NOT NULL DEFAULT '[]'",  # JSON: whose jobs give way to its jobs
    "ALTER TABLE qos ADD COLUMN preempt_mode TEXT NOT NULL DEFAULT 'requeue'",  # off, requeue, cancel
    "ALTER TABLE qos ADD COLUMN min_run_s INTEGER NOT NULL DEFAULT 0",  # its jobs run so long before they give way
    # What nobody disturbed so far gives way to nobody before an administrator says so, to no guarantee either.
    "UPDATE qos SET preempt_mode = 'off'",
    """
    INSERT INTO qos (qos, description, priority, usage_factor, users, groups, accounts, preempts, preempt_mode)
    SELECT 'normal', '', 0, 1, '[]', '[]', '[]', '["scavenger"]', 'off'
    WHERE EXISTS (SELECT 1 FROM accounts WHERE guaranteed_gpus > 0)
        AND NOT EXISTS (SELECT 1 FROM qos WHERE qos = 'normal')
    """,
)


def giving_way(db: Database) -> None:
    """Add preemption: nominated resources, preemption of attempts, and preemption settings of QOS."""
    for statement in _GIVING_WAY:
        db.execute(statement)


def suspensions(db: Database) -> None:
    """Add suspended attempts."""
    db.execute("ALTER TABLE attempts ADD COLUMN suspended_at REAL")  # its processes stand still since then
    db.execute("ALTER TABLE attempts ADD COLUMN suspended_s REAL NOT NULL DEFAULT 0")  # so long they did before


def asks(db: Database) -> None:
    """Add favours asked of job owners."""
    db.execute("ALTER TABLE jobs ADD COLUMN asks TEXT")  # JSON: what was asked by whom, and the answers


_ELASTIC = (
    "ALTER TABLE attempts ADD COLUMN elastic TEXT",  # JSON: its GPUs become more and fewer
    "ALTER TABLE attempts ADD COLUMN changed_at REAL",  # when they last did; empty: it has what it began with
    "ALTER TABLE attempts ADD COLUMN gpu_s_before REAL NOT NULL DEFAULT 0",  # GPU-seconds from the start until then
    "ALTER TABLE attempts ADD COLUMN billed_s_before REAL NOT NULL DEFAULT 0",  # likewise weighted GPU-seconds
    "DROP VIEW usage_by_user",
    """
    CREATE VIEW usage_by_user AS            -- held: from the allocation to the end; used: what the processes took
    SELECT jobs.user AS user,
           count(DISTINCT attempts.job_id) AS jobs,
           count(*) AS attempts,
           round(sum(gpu_s_before + attempts.gpus * (until - coalesce(changed_at, allocated_at))) / 3600, 3)
             AS gpu_hours_held,
           round(sum(attempts.cpus * (until - allocated_at)) / 3600, 3) AS cpu_hours_held,
           round(sum(user_cpu_s + system_cpu_s) / 3600, 3) AS cpu_hours_used
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) AS until FROM attempts) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.user ORDER BY gpu_hours_held DESC, user
    """,
    "DROP VIEW usage_by_account",
    """
    CREATE VIEW usage_by_account AS         -- billed: from the start to the end, times what was billed
    SELECT jobs.account AS account, jobs.user AS user, count(DISTINCT attempts.job_id) AS jobs,
           round(sum(gpu_s_before + attempts.gpus * last_s) / 3600, 3) AS gpu_hours,
           round(sum(billed_s_before + billing / 1000000.0 * last_s) / 3600, 3) AS billed_hours
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - coalesce(changed_at, start_at) AS last_s
          FROM attempts WHERE start_at IS NOT NULL) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.account, jobs.user ORDER BY billed_hours DESC, account, user
    """,
)


def elastic(db: Database) -> None:
    """Add elastic attempts."""
    for statement in _ELASTIC:
        db.execute(statement)


def lending(db: Database) -> None:
    """Add jobs that borrow idle reserved resources; in older clusters an administrator must permit a QOS to borrow."""
    db.execute("ALTER TABLE attempts ADD COLUMN borrows TEXT NOT NULL DEFAULT '[]'")  # JSON: reservations
    db.execute("ALTER TABLE qos ADD COLUMN borrows_reserved INTEGER NOT NULL DEFAULT 0")
    columns = "qos, description, priority, usage_factor, users, groups, accounts, preempts, preempt_mode"
    values = "'scavenger', 'takes what is idle, and gives way', 0, 1, '[]', '[]', '[]', '[]', 'requeue'"
    is_old = "EXISTS (SELECT 1 FROM nodes) AND NOT EXISTS (SELECT 1 FROM qos WHERE qos = 'scavenger')"
    db.execute(f"INSERT INTO qos ({columns}) SELECT {values} WHERE {is_old}")


def turns(db: Database) -> None:
    """Add the run time that requeued jobs have had."""
    db.execute("ALTER TABLE jobs ADD COLUMN ran_s REAL NOT NULL DEFAULT 0")


def resumes(db: Database) -> None:
    """Add the costs of resuming that jobs report."""
    db.execute("ALTER TABLE jobs ADD COLUMN resumed TEXT")  # JSON: in which attempt it said so last, and what they cost


def add_to(migrations: Migrations) -> None:
    for change in (giving_way, suspensions, asks, elastic, lending, turns, resumes):
        migrations()(change)
