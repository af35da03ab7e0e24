"""Migration: the view of users' usage counts the CPUs that elastic jobs held at each time.

See `gqd.store.migrations.schema`.
"""

from __future__ import annotations

from sqlite_utils import Database

_USAGE_BY_USER = """
    CREATE VIEW usage_by_user AS            -- held: from the allocation to the end; used: what the processes took
    SELECT jobs.user AS user,
           count(DISTINCT attempts.job_id) AS jobs,
           count(*) AS attempts,
           round(sum(gpu_s_before + attempts.gpus * (until - coalesce(changed_at, allocated_at))) / 3600, 3)
             AS gpu_hours_held,
           round(sum(CASE WHEN cpu_s_before IS NULL THEN attempts.cpus * (until - allocated_at)
                          ELSE cpu_s_before + attempts.cpus * (until - changed_at) END) / 3600, 3) AS cpu_hours_held,
           round(sum(user_cpu_s + system_cpu_s) / 3600, 3) AS cpu_hours_used
    FROM (SELECT *, coalesce(end_at, strftime('%s', 'now')) AS until,
                 json_extract(elastic, '$.cpu_s_before') AS cpu_s_before  -- CPU-seconds from the start until changed_at
          FROM attempts) AS attempts
    JOIN jobs USING (job_id)
    GROUP BY jobs.user ORDER BY gpu_hours_held DESC, user
"""


def elastic_cpus(db: Database) -> None:
    """Replace the view so that it counts the CPUs of elastic jobs."""
    db.execute("DROP VIEW usage_by_user")
    db.execute(_USAGE_BY_USER)
