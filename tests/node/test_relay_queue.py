"""What waits in a relay for the controller, when there is too much of it: who has most loses first."""

from __future__ import annotations

import pytest

from gqnode.daemon import relay
from gqnode.daemon.relay import Asked, _Queue, _Waiting


def waiting(relay_id: int, uid: int, size: int = 10, at: float = 0.0) -> _Waiting:
    return _Waiting(b"peer", at, Asked(relay_id, uid, uid, str(uid), bytes(size)))


def ids(queue: _Queue) -> list[int]:
    return [one.asked.relay_id for one in queue.all()]


def test_one_users_flood_pushes_out_only_the_oldest_of_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_WAITING", 5)
    queue = _Queue()
    for relay_id, uid in enumerate((1, 2, 2, 2, 1, 2, 2, 2), 1):
        queue.add(waiting(relay_id, uid))
        queue.forget_surplus()

    assert ids(queue) == [1, 5, 6, 7, 8]


def test_who_has_most_bytes_loses_first_too_but_the_latest_of_all_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "MAX_KEPT_BYTES", 100)
    queue = _Queue()
    for relay_id, uid, size in ((1, 1, 20), (2, 2, 40), (3, 2, 35), (4, 2, 30)):
        queue.add(waiting(relay_id, uid, size))
        queue.forget_surplus()
    assert ids(queue) == [1, 3, 4]

    alone = _Queue()
    alone.add(waiting(1, 1, 1000))
    alone.forget_surplus()
    assert ids(alone) == [1]


def test_what_was_answered_or_is_old_does_not_count_any_more() -> None:
    queue = _Queue()
    for relay_id in (1, 2, 3):
        queue.add(waiting(relay_id, uid=7, at=float(relay_id)))

    assert queue.take(2) is not None and queue.take(2) is None
    queue.forget_before(1.5)

    assert ids(queue) == [3] and len(queue) == 1
    assert queue._bytes == {7: 10} and queue._all_bytes == 10
    queue.take(3)
    assert (queue._bytes, queue._of, queue._all_bytes) == ({}, {}, 0)
