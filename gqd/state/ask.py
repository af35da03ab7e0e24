"""A request that a user made of a job's owner (``gqctl ask``), stored with the job.  Pure."""

from __future__ import annotations

import msgspec

from gq.model.ask import AskAnswer


class Ask(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request of one user to the owner of a job, and the owner's answer."""

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
