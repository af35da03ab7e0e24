"""A favour that was asked of the holder of a job.  It is remembered as long as the job is.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ask import AskAnswer


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    by: str
    uid: int
    at: float
    text: str
    answer: AskAnswer | None = None
    answer_text: str = ""
    answered_by: str = ""
    answered_at: float | None = None

    @property
    def is_open(self) -> bool:
        return self.answer is None
