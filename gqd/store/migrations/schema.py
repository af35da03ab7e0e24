"""The schema of the database: tables, views for people, and migrations of older databases.

To inspect it, use a copy (``sqlite3 gq.db ".backup copy.db"``) with ``sqlite-utils tables copy.db --counts`` or
Datasette.  Instants (``…_at``) are seconds since the epoch: ``datetime(start_at, 'unixepoch', 'localtime')``.
``secret_key``, ``secret_ticket_key``, the table ``requests`` and the bodies of ``StepStarted`` and ``NodeRegistered``
events hold keys of running jobs; empty them before you share a copy.

A migration that has been released is never edited: a change of the schema is a new one at the end.  Every row
kind's columns are listed in `gqd.store.rows.rows.COLUMNS`; a test compares both.
"""

from __future__ import annotations

import sqlite3

from sqlite_utils import Database, Migrations

from gq.errors import GqError
from gqd.store.migrations import preemption
from gqd.store.migrations.elastic import elastic_cpus
from gqd.store.migrations.owed_order import owed_orders
from gqd.store.migrations.parked import parking

MIGRATIONS = Migrations("gq")

_FIRST_TABLES = (
    """
    CREATE TABLE jobs (
        job_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        gid INTEGER NOT NULL,
        partition TEXT NOT NULL,
        state TEXT NOT NULL,                -- PENDING STARTING RUNNING COMPLETING ENDED
        outcome TEXT,                       -- of an ended job: COMPLETED FAILED CANCELLED TIMEOUT ...
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        hold TEXT,                          -- who holds it: user, admin, launch
        attempt INTEGER NOT NULL,           -- number of the latest attempt; 0: never allocated
        restart_count INTEGER NOT NULL,
        launch_failures INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first; none while it waits
        node_count INTEGER NOT NULL,        -- held or held last; wanted while it waits; likewise the next four
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        nice INTEGER NOT NULL,
        time_limit_s INTEGER,               -- empty: unlimited
        requeue INTEGER NOT NULL,
        submit_at REAL NOT NULL,
        eligible_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        exit_code INTEGER,
        signal INTEGER,
        avoid TEXT NOT NULL,                -- JSON: node -> until when
        spec TEXT NOT NULL,                 -- JSON: all that was asked for
        is_forgotten INTEGER NOT NULL DEFAULT 0 -- ended, and no longer in the controller's memory
    )
    """,
    """
    CREATE TABLE attempts (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        nodes TEXT NOT NULL,                -- names, batch node first
        node_count INTEGER NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        allocated_at REAL NOT NULL,
        start_at REAL,
        end_at REAL,
        outcome TEXT,
        exit_code INTEGER,
        signal INTEGER,
        reason TEXT NOT NULL,
        why TEXT NOT NULL,
        failure_class TEXT NOT NULL,
        after_ending TEXT,                  -- end, requeue, retry
        grace_s INTEGER NOT NULL,
        master_port INTEGER NOT NULL,
        next_step INTEGER NOT NULL,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        grants TEXT NOT NULL,               -- JSON: what it holds on each node
        is_forgotten INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (job_id, attempt)
    )
    """,
    """
    CREATE TABLE allocations (              -- what an attempt holds on one node
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        node TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        cpu_ids TEXT NOT NULL,              -- 0-3,8
        gpu_ids TEXT NOT NULL,
        memory_mib INTEGER NOT NULL,
        phase TEXT NOT NULL,                -- preparing prepared going live stopping
        is_stranded INTEGER NOT NULL,       -- its node is lost; what it holds is not given away
        freed_at REAL,                      -- empty while the node still has it
        user_cpu_s REAL,
        system_cpu_s REAL,
        max_rss_mib INTEGER,
        PRIMARY KEY (job_id, attempt, node)
    )
    """,
    """
    CREATE TABLE steps (
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        step INTEGER NOT NULL,
        name TEXT NOT NULL,
        nodes TEXT NOT NULL,
        tasks INTEGER NOT NULL,
        cpus INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        start_at REAL NOT NULL,
        end_at REAL,
        outcome TEXT,                       -- empty while it runs
        exit_code INTEGER,
        signal INTEGER,
        user_cpu_s REAL NOT NULL,
        system_cpu_s REAL NOT NULL,
        max_rss_mib INTEGER NOT NULL,
        received TEXT NOT NULL,             -- JSON: nodes that have the order
        part_ends TEXT NOT NULL,            -- JSON: node -> how its tasks ended
        layout TEXT NOT NULL,               -- JSON
        secret_key BLOB NOT NULL,
        PRIMARY KEY (job_id, attempt, step)
    )
    """,
    """
    CREATE TABLE nodes (
        node TEXT NOT NULL PRIMARY KEY,
        address TEXT NOT NULL,
        is_lost INTEGER NOT NULL,
        is_down INTEGER NOT NULL,
        is_drained INTEGER NOT NULL,
        reason TEXT NOT NULL,
        reason_by TEXT NOT NULL,
        reason_at REAL,
        cpus INTEGER NOT NULL,
        memory_mib INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        drained_gpus TEXT NOT NULL,         -- JSON: GPU -> reason
        backoff_until REAL NOT NULL,        -- left out of planning until then
        backoff_failures INTEGER NOT NULL,
        registered_at REAL NOT NULL,
        incarnation TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        step_endpoint TEXT NOT NULL,
        step_public_key TEXT NOT NULL,
        secret_ticket_key BLOB NOT NULL,
        inventory TEXT NOT NULL             -- JSON
    )
    """,
    """
    CREATE TABLE requests (                 -- answers by request, so that a repeated request is done once
        request_id BLOB NOT NULL PRIMARY KEY,
        at REAL NOT NULL,
        uid INTEGER NOT NULL,
        answer BLOB NOT NULL
    )
    """,
    """
    CREATE TABLE events (                   -- the change log
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        kind TEXT NOT NULL,
        job_id INTEGER,
        node TEXT,
        body TEXT NOT NULL                  -- JSON
    )
    """,
    "CREATE TABLE meta (name TEXT NOT NULL PRIMARY KEY, value)",
)

_FIRST_INDEXES = (
    "CREATE INDEX jobs_in_memory ON jobs (job_id) WHERE is_forgotten = 0",
    "CREATE INDEX jobs_by_state ON jobs (state, end_at)",
    "CREATE INDEX jobs_by_user ON jobs (user, job_id)",
    "CREATE INDEX attempts_in_memory ON attempts (job_id) WHERE is_forgotten = 0",
    "CREATE INDEX allocations_held ON allocations (job_id, attempt) WHERE freed_at IS NULL",
    "CREATE INDEX allocations_by_node ON allocations (node, job_id)",
    "CREATE INDEX steps_running ON steps (job_id, attempt) WHERE end_at IS NULL",
    "CREATE INDEX requests_by_time ON requests (at)",
    "CREATE INDEX events_by_job ON events (job_id) WHERE job_id IS NOT NULL",
)

_FIRST_VIEWS = (
    """
    CREATE VIEW queue AS                    -- jobs that have not ended, as the queue stands
    SELECT job_id, name, user, partition, state, hold, reason, node_count, cpus, gpus, nodes, nice,
           datetime(submit_at, 'unixepoch', 'localtime') AS submitted,
           datetime(start_at, 'unixepoch', 'localtime') AS started,
           CAST(coalesce(start_at, strftime('%s', 'now')) - submit_at AS INTEGER) AS waited_s,
           time_limit_s
    FROM jobs WHERE state <> 'ENDED'
    ORDER BY state = 'PENDING', nice, job_id
    """,
    """
    CREATE VIEW usage_by_user AS            -- held: from the allocation to the end; used: what the processes took
    SELECT jobs.user AS user,
           count(DISTINCT attempts.job_id) AS jobs,
           count(*) AS attempts,
           round(sum(attempts.gpus * held_s) / 3600, 3) AS gpu_hours_held,
           round(sum(attempts.cpus * held_s) / 3600, 3) AS cpu_hours_held,
           round(sum(user_cpu_s + system_cpu_s) / 3600, 3) AS cpu_hours_used
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - allocated_at AS held_s FROM attempts) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.user ORDER BY gpu_hours_held DESC, user
    """,
    """
    CREATE VIEW gpus AS
    SELECT nodes.node AS node,
           json_extract(gpu.value, '$.index') AS gpu,
           json_extract(gpu.value, '$.type') AS type,
           json_extract(gpu.value, '$.memory_mib') AS memory_mib,
           json_extract(gpu.value, '$.uuid') AS uuid,
           json_extract(drained_gpus, '$."' || json_extract(gpu.value, '$.index') || '"') AS drained_because
    FROM nodes, json_each(nodes.inventory, '$.gpus') AS gpu
    """,
)


@MIGRATIONS()
def first(db: Database) -> None:
    """Create the tables of jobs, attempts, allocations, steps, nodes, requests and events."""
    for statement in (*_FIRST_TABLES, *_FIRST_INDEXES, *_FIRST_VIEWS):
        db.execute(statement)


AUDIT_IS_NEVER_DELETED = """
CREATE TRIGGER audit_is_never_deleted BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END
"""
"""The trigger that `gqd.store.retention` drops and creates again."""

_KEYS_AND_AUDIT = (
    """
    CREATE TABLE keys (                     -- who may come in from another host (CURVE); nothing here is secret
        public TEXT NOT NULL PRIMARY KEY,   -- Z85
        kind TEXT NOT NULL,                 -- node, user, join (a token that lets one node join)
        name TEXT NOT NULL,                 -- of the node or the user; of a token: the node that it is for
        uid INTEGER,
        gid INTEGER,
        is_login INTEGER NOT NULL,
        added_at REAL NOT NULL,
        added_by TEXT NOT NULL,
        expires_at REAL,
        joined TEXT NOT NULL,               -- of a token that was used: the key of the node that it let in
        note TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE audit (                    -- who did what, when, from where, and what came of it; only added to
        seq INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        user TEXT NOT NULL,
        uid INTEGER,
        origin TEXT NOT NULL,
        action TEXT NOT NULL,
        object TEXT NOT NULL,
        outcome TEXT NOT NULL,              -- done, or the code of the refusal
        detail TEXT NOT NULL
    )
    """,
    "CREATE INDEX audit_by_time ON audit (at)",
    """
    CREATE TRIGGER audit_is_never_changed BEFORE UPDATE ON audit
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END
    """,
    AUDIT_IS_NEVER_DELETED,
    # A REPLACE deletes without asking that trigger; only lines that are numbered by the database are new.
    """
    CREATE TRIGGER audit_is_never_replaced BEFORE INSERT ON audit WHEN NEW.seq > 0
    BEGIN SELECT RAISE(ABORT, 'the audit trail is only added to'); END
    """,
)


@MIGRATIONS()
def keys_and_audit(db: Database) -> None:
    """Create the tables of keys (of nodes, users and tokens) and of the audit trail."""
    for statement in _KEYS_AND_AUDIT:
        db.execute(statement)


_WHO_GOES_NEXT = (
    "ALTER TABLE jobs ADD COLUMN account TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN qos TEXT NOT NULL DEFAULT 'normal'",
    "ALTER TABLE jobs ADD COLUMN accrue_at REAL",
    "ALTER TABLE jobs ADD COLUMN array_job_id INTEGER",
    "ALTER TABLE jobs ADD COLUMN array_task_id INTEGER",
    "ALTER TABLE jobs ADD COLUMN array_throttle INTEGER",
    "ALTER TABLE jobs ADD COLUMN array_waiting TEXT",
    "ALTER TABLE jobs ADD COLUMN array_cancelled TEXT",
    "ALTER TABLE jobs ADD COLUMN array_succeeded TEXT",
    "ALTER TABLE jobs ADD COLUMN array_failed TEXT",
    "ALTER TABLE jobs ADD COLUMN dependency TEXT",
    "ALTER TABLE jobs ADD COLUMN never TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN ready TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN hook TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE attempts ADD COLUMN billing INTEGER NOT NULL DEFAULT 0",
    "UPDATE jobs SET accrue_at = eligible_at",
    "CREATE INDEX jobs_by_array ON jobs (array_job_id, array_task_id) WHERE array_job_id IS NOT NULL",
    "CREATE INDEX jobs_by_account ON jobs (account, job_id)",
    """
    CREATE TABLE accounts (
        account TEXT NOT NULL PRIMARY KEY,
        parent TEXT NOT NULL,
        description TEXT NOT NULL,
        shares INTEGER NOT NULL,
        guaranteed_gpus INTEGER,
        borrow_gpus INTEGER,
        unix_group TEXT NOT NULL,           -- whose members are in it
        coordinators TEXT NOT NULL,         -- JSON
        default_qos TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE members (                  -- users in accounts, and what they used there
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        shares INTEGER NOT NULL,
        is_default INTEGER NOT NULL,
        from_group INTEGER NOT NULL,
        usage REAL NOT NULL,                -- weighted GPU-seconds, decayed until usage_at
        usage_at REAL NOT NULL,
        usage_rate INTEGER NOT NULL,        -- millionths of a weighted GPU in use since then
        PRIMARY KEY (user, account)
    )
    """,
    """
    CREATE TABLE qos (
        qos TEXT NOT NULL PRIMARY KEY,
        description TEXT NOT NULL,
        priority INTEGER NOT NULL,
        usage_factor REAL NOT NULL,
        max_time_s INTEGER,
        users TEXT NOT NULL,                -- JSON; likewise the next two
        groups TEXT NOT NULL,
        accounts TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE limits (
        holder TEXT NOT NULL,               -- user, account, qos
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        most REAL NOT NULL,
        enforced_at TEXT NOT NULL,          -- submit, start
        PRIMARY KEY (holder, name, resource, per_user)
    )
    """,
    """
    CREATE TABLE budgets (                  -- of limits in GPU-hours a day, week or month: what is used up
        holder TEXT NOT NULL,
        name TEXT NOT NULL,
        resource TEXT NOT NULL,
        per_user INTEGER NOT NULL,
        user TEXT NOT NULL,                 -- empty: all users together
        began_at REAL NOT NULL,             -- the day, week or month
        used REAL NOT NULL,                 -- weighted GPU-seconds until used_at
        used_at REAL NOT NULL,
        rate INTEGER NOT NULL,              -- millionths of a weighted GPU in use since then
        PRIMARY KEY (holder, name, resource, per_user, user)
    )
    """,
    "DROP VIEW queue",
    """
    CREATE VIEW queue AS                    -- jobs that have not ended; of an array's record the tasks that wait in it
    SELECT job_id, array_job_id, coalesce(array_task_id, array_waiting) AS array_tasks, name, user, account, qos,
           partition, state, hold, reason, node_count, cpus, gpus, nodes, nice,
           datetime(submit_at, 'unixepoch', 'localtime') AS submitted,
           datetime(start_at, 'unixepoch', 'localtime') AS started,
           CAST(coalesce(start_at, strftime('%s', 'now')) - submit_at AS INTEGER) AS waited_s,
           time_limit_s
    FROM jobs WHERE state <> 'ENDED' AND coalesce(array_waiting, 'none') <> ''
    ORDER BY state = 'PENDING', nice, job_id
    """,
    """
    CREATE VIEW usage_by_account AS         -- billed: from the start to the end, times what was billed
    SELECT jobs.account AS account, jobs.user AS user, count(DISTINCT attempts.job_id) AS jobs,
           round(sum(attempts.gpus * ran_s) / 3600, 3) AS gpu_hours,
           round(sum(billing / 1000000.0 * ran_s) / 3600, 3) AS billed_hours
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) - start_at AS ran_s
          FROM attempts WHERE start_at IS NOT NULL) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.account, jobs.user ORDER BY billed_hours DESC, account, user
    """,
)


@MIGRATIONS()
def who_goes_next(db: Database) -> None:
    """Add arrays, dependencies, accounts, QOS, limits and usage."""
    for statement in _WHO_GOES_NEXT:
        db.execute(statement)


_WHERE_AND_WHEN = (
    "ALTER TABLE jobs ADD COLUMN expected_s REAL",  # how long it is expected to run; empty: nobody knows
    "UPDATE jobs SET expected_s = time_limit_s",
    "ALTER TABLE jobs ADD COLUMN estimate TEXT",  # JSON: what it was told first of its next start
    "ALTER TABLE attempts ADD COLUMN estimate TEXT",  # JSON: what the job was told first of this start
    "CREATE INDEX attempts_by_start ON attempts (start_at) WHERE estimate IS NOT NULL",
    "ALTER TABLE attempts ADD COLUMN slot TEXT NOT NULL DEFAULT ''",  # why it went ahead of its turn
    """
    CREATE TABLE lengths (                  -- how long the last jobs ran of a user in an account
        user TEXT NOT NULL,
        account TEXT NOT NULL,
        gpus INTEGER NOT NULL,              -- that the jobs asked for; -1: all jobs
        learned_at REAL NOT NULL,
        lengths_s TEXT NOT NULL,            -- JSON: the latest last
        PRIMARY KEY (user, account, gpus)
    )
    """,
)


@MIGRATIONS()
def where_and_when(db: Database) -> None:
    """Add expected run times and the samples from which they are predicted."""
    for statement in _WHERE_AND_WHEN:
        db.execute(statement)


_NOTICES = (
    """
    CREATE TABLE notices (                  -- what owners are told
        notice_id INTEGER PRIMARY KEY,
        user TEXT NOT NULL,
        uid INTEGER NOT NULL,
        job_id INTEGER NOT NULL,            -- 0: of no job
        occasion TEXT NOT NULL,             -- begin, end, fail, ...
        kind TEXT NOT NULL,                 -- mail, webhook, slack, command
        target TEXT NOT NULL,               -- address, URL, command
        body TEXT NOT NULL,                 -- JSON
        queued_at REAL NOT NULL,
        next_at REAL NOT NULL,              -- of one that waits: when it is tried
        attempts INTEGER NOT NULL,
        why TEXT NOT NULL,                  -- why the last attempt failed
        state TEXT NOT NULL,                -- waiting, delivered, given_up
        ended_at REAL
    )
    """,
    "CREATE INDEX notices_waiting ON notices (notice_id) WHERE state = 'waiting'",
    "CREATE INDEX notices_by_user ON notices (user, notice_id)",
    "CREATE INDEX notices_by_end ON notices (ended_at)",
    "CREATE TABLE told_jobs (job_id INTEGER PRIMARY KEY, told TEXT NOT NULL)",  # JSON: what -> in which attempt
    "CREATE TABLE dropped_notices (user TEXT NOT NULL PRIMARY KEY, dropped INTEGER NOT NULL)",
)


@MIGRATIONS()
def notices(db: Database) -> None:
    """Create the tables of notices."""
    for statement in _NOTICES:
        db.execute(statement)


_CRONTABS = (
    """
    CREATE TABLE crontabs (
        user TEXT NOT NULL PRIMARY KEY,
        uid INTEGER NOT NULL,
        set_at REAL NOT NULL,
        text TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE cron_entries (             -- lines of crontabs that become jobs
        user TEXT NOT NULL,
        number INTEGER NOT NULL,
        line INTEGER NOT NULL,              -- of the text
        schedule TEXT NOT NULL,             -- five fields
        zone TEXT NOT NULL,                 -- empty: the controller's own
        overlap TEXT NOT NULL,              -- skip, allow
        missed TEXT NOT NULL,               -- skip, once
        spec TEXT NOT NULL,                 -- JSON: of each of its jobs
        followed_until REAL NOT NULL,       -- what was due until then has been seen to
        last_due_at REAL,
        last_job_id INTEGER,
        last_state TEXT NOT NULL,           -- how that job ended
        trouble TEXT NOT NULL,              -- what went wrong since one ended well
        trouble_at REAL,
        PRIMARY KEY (user, number)
    )
    """,
)


@MIGRATIONS()
def crontabs(db: Database) -> None:
    """Create the tables of crontabs."""
    for statement in _CRONTABS:
        db.execute(statement)


_RESERVATIONS = (
    """
    CREATE TABLE reservations (
        reservation_id INTEGER PRIMARY KEY,
        name TEXT NOT NULL,
        owner TEXT NOT NULL,
        uid INTEGER NOT NULL,
        created_at REAL NOT NULL,
        cron TEXT NOT NULL,                 -- five fields, in the zone; empty: once
        zone TEXT NOT NULL,
        duration_s INTEGER NOT NULL,
        is_gone INTEGER NOT NULL,           -- deleted, or over for some time
        next_number INTEGER NOT NULL,       -- of its next occurrence
        planned_until REAL,                 -- so far the cron line has been followed
        over_at REAL,                       -- since when nothing is kept
        booking TEXT NOT NULL               -- JSON: the whole of what was asked for
    )
    """,
    """
    CREATE TABLE occurrences (              -- each time that something is kept
        reservation_id INTEGER NOT NULL,
        number INTEGER NOT NULL,
        reservation TEXT NOT NULL,
        owner TEXT NOT NULL,
        begin_at REAL NOT NULL,
        end_at REAL NOT NULL,               -- as planned
        state TEXT NOT NULL,                -- PLANNED ACTIVE OVER RELEASED SKIPPED ENDED FAILED
        ended_at REAL,
        why TEXT NOT NULL,
        nodes INTEGER NOT NULL,
        gpus INTEGER NOT NULL,
        missing_gpus INTEGER NOT NULL,
        used_at REAL,                       -- when the first job started in it
        empty_since REAL,
        used_gpu_s REAL NOT NULL,
        grants TEXT NOT NULL,               -- JSON
        PRIMARY KEY (reservation_id, number)
    )
    """,
    "CREATE INDEX reservations_there ON reservations (reservation_id) WHERE is_gone = 0",
    "CREATE INDEX occurrences_open ON occurrences (reservation_id, number) WHERE state IN ('PLANNED', 'ACTIVE')",
    "CREATE INDEX occurrences_by_begin ON occurrences (begin_at)",
    "CREATE INDEX occurrences_by_end ON occurrences (ended_at)",
    "ALTER TABLE attempts ADD COLUMN reservation TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE attempts ADD COLUMN occurrence INTEGER NOT NULL DEFAULT 0",
    """
    CREATE VIEW reservation_usage AS        -- of occurrences that began and are over; booked: until they were over
    SELECT owner, count(*) AS occurrences, sum(state = 'RELEASED') AS no_shows,
           round(sum(gpus * (min(ended_at, end_at) - begin_at)) / 3600, 3) AS gpu_hours_booked,
           round(sum(used_gpu_s) / 3600, 3) AS gpu_hours_used
    FROM occurrences
    WHERE state NOT IN ('PLANNED', 'ACTIVE', 'SKIPPED', 'FAILED') AND ended_at > begin_at
    GROUP BY owner ORDER BY gpu_hours_booked DESC, owner
    """,
)


@MIGRATIONS()
def reservations(db: Database) -> None:
    """Create the tables of reservations and their occurrences."""
    for statement in _RESERVATIONS:
        db.execute(statement)


preemption.add_to(MIGRATIONS)
MIGRATIONS()(parking)
MIGRATIONS()(elastic_cpus)
MIGRATIONS()(owed_orders)


@MIGRATIONS()
def notice_commands(db: Database) -> None:
    """Add the job that runs the command of a notice."""
    db.execute("ALTER TABLE notices ADD COLUMN by_job INTEGER NOT NULL DEFAULT 0")  # 0: no job runs its command


@MIGRATIONS()
def priority_of_attempts(db: Database) -> None:
    """Add the priority with which a job started."""
    db.execute("ALTER TABLE attempts ADD COLUMN priority INTEGER NOT NULL DEFAULT 0")


def migrate(db: Database, path: str, migrations: Migrations = MIGRATIONS) -> None:
    """Migrate the database at `path` to the newest schema; `GqError` if it is not gq's, or newer than this program."""
    try:
        _refuse_newer(db, path, migrations)
        migrations.apply(db)
    except (sqlite3.Error, ValueError) as error:  # ValueError: its own tables hold what is no text
        raise bad_database(path, error) from error


def bad_database(path: str, error: Exception) -> GqError:
    hint = "restore a backup, or move the file away"
    return GqError("bad_database", f"{path} cannot be used as the database: {error}", hint)


def _refuse_newer(db: Database, path: str, migrations: Migrations) -> None:
    known = {migration.name for migration in migrations.pending(Database(memory=True))}
    unknown = [migration.name for migration in migrations.applied(db) if migration.name not in known]
    if unknown:
        raise GqError(
            "newer_database",
            f"{path} was written by a newer version of gq (it has the migration `{unknown[0]}`)",
            "start that version, or restore a backup from before the upgrade",
        )
