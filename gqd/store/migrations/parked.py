"""Migration: the table of suspended victims (parked jobs).  See `gqd.store.migrations.schema`."""

from __future__ import annotations

from sqlite_utils import Database

_PARKED = """
    CREATE TABLE parked (                   -- jobs that stand still for others, and lend them their GPUs and CPUs
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        to_job INTEGER NOT NULL,            -- for this one
        parked_at REAL NOT NULL,
        node TEXT NOT NULL,
        gpus INTEGER NOT NULL,              -- so many it lends
        lent TEXT,                          -- JSON; empty: its node has not said yet that it stands still
        gpu_memory TEXT NOT NULL,           -- JSON: GPU, MiB that it holds
        PRIMARY KEY (job_id, attempt)
    )
"""


def parking(db: Database) -> None:
    """Create the table of parked jobs."""
    db.execute(_PARKED)
