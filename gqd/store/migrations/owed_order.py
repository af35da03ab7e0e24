"""Migration: the table of orders that nodes have not confirmed.  See `gqd.store.migrations.schema`."""

from __future__ import annotations

from sqlite_utils import Database

_OWED_ORDERS = """
    CREATE TABLE owed_orders (              -- signals, lines for jobs and ends of steps that nodes have not confirmed
        job_id INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        node TEXT NOT NULL,
        order_id BLOB NOT NULL,             -- of the user's request
        body TEXT NOT NULL,                 -- JSON
        PRIMARY KEY (job_id, attempt, node, order_id)
    )
"""


def owed_orders(db: Database) -> None:
    """Create the table of unconfirmed orders: signals, job messages and ends of steps survive a crash of gqd."""
    db.execute(_OWED_ORDERS)
