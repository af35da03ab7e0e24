"""Numbers the reports to the controller and repeats each until it is acknowledged.  Pure.

A report equal to an unacknowledged report is no new report: it is sent again under the same number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import NamedTuple

from gq.wire.node import ReportBody
from gqnode.control.effect import SendReport


class _Waiting(NamedTuple):
    body: ReportBody
    sent_at: float


class Outbox:
    """The unacknowledged reports; their numbers count from 1 in each incarnation of the daemon."""

    def __init__(self, resend_s: float) -> None:
        self._resend_s = resend_s
        self._next_seq = 1
        self._waiting: dict[int, _Waiting] = {}
        """Unacknowledged reports by number, ordered by `sent_at`, the longest ago first."""
        self._seqs: dict[ReportBody, int] = {}

    @property
    def last_seq(self) -> int:
        """Number of the newest report; 0 if there was none."""
        return self._next_seq - 1

    def put(self, body: ReportBody, now: float) -> SendReport:
        """Number the report, or use the number that it has already."""
        seq = self._seqs.get(body)
        if seq is None:
            seq = self._next_seq
            self._next_seq += 1
            self._seqs[body] = seq
        self._note_sent(seq, body, now)
        return SendReport(seq=seq, body=body)

    def take(self, seqs: Iterable[int]) -> list[ReportBody]:
        """Return the reports that these numbers acknowledge and that were unacknowledged until now."""
        bodies = [waiting.body for seq in seqs if (waiting := self._waiting.pop(seq, None)) is not None]
        for body in bodies:
            del self._seqs[body]
        return bodies

    def everything(self, now: float) -> list[SendReport]:
        """Return all unacknowledged reports, ordered by number, and mark them as sent now."""
        return [self._again(seq, now) for seq in sorted(self._waiting)]

    def due(self, now: float) -> list[SendReport]:
        """Return the reports that were last sent at least `resend_s` seconds ago."""
        seqs = takewhile(lambda seq: self._waiting[seq].sent_at + self._resend_s <= now, self._waiting)
        return [self._again(seq, now) for seq in sorted(seqs)]

    def next_due(self) -> float | None:
        oldest = next(iter(self._waiting.values()), None)
        return None if oldest is None else oldest.sent_at + self._resend_s

    def _again(self, seq: int, now: float) -> SendReport:
        body = self._waiting[seq].body
        self._note_sent(seq, body, now)
        return SendReport(seq=seq, body=body)

    def _note_sent(self, seq: int, body: ReportBody, now: float) -> None:
        self._waiting.pop(seq, None)
        self._waiting[seq] = _Waiting(body, now)
