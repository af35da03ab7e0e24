"""A program that commits random turns until it is killed or the disk is full: ``DATABASE SEED``.

Prints the number of each turn once it is acknowledged; eight turns are on the way at any time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from random import Random

from gqd.store.protocol import StoreFailed
from gqd.store.rows.rows import materialise
from gqd.store.sqlite import SqliteStore
from tests.store.lives import Lives

ON_THE_WAY = 8


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


async def write(store: SqliteStore, lives: Lives) -> None:
    waiting: deque[tuple[int, asyncio.Task[None]]] = deque()
    turn = 0
    while True:
        turn += 1
        events = lives.turn()
        waiting.append((turn, asyncio.create_task(store.commit(materialise(lives.cluster, events)))))
        await asyncio.sleep(0)
        if len(waiting) > ON_THE_WAY:
            number, commit = waiting.popleft()
            try:
                await commit
            except StoreFailed as failure:
                say(f"failed: {failure.message}")
                later = await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
                say(f"failed alike: {all(isinstance(one, StoreFailed) for one in later)}")
                return
            say(str(number))


if __name__ == "__main__":
    path, seed = sys.argv[1:]
    asyncio.run(write(SqliteStore(path), Lives(Random(int(seed)))))
