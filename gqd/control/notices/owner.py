"""Notices to owners of reservations and crontabs about events that concern no job.  Pure.

They go to the targets of the reservation or of the crontab line, else to the cluster's default target.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gq.errors import Refusal
from gq.model.job import JobSpec
from gq.model.notice import END, FAIL, Target
from gq.model.reservation import OccurrenceState
from gqd.control.notices import notice
from gqd.control.notices import spec as notice_spec
from gqd.state.events import event

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

RESERVATION, CRON = "reservation", "cron"
_WORDS = {
    OccurrenceState.RELEASED: "was released because it was unused",
    OccurrenceState.FAILED: "failed",
}
"""The ends of an occurrence that its owner did not ask for, in words."""


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """Queue the notices that an event causes."""
    decide = _FOLLOWED.get(type(fact))
    if decide is not None:
        decide(draft, fact)


def _on_planned(draft: TurnBuilder, fact: event.OccurrencePlanned) -> None:
    if fact.missing_gpus and fact.grants:
        _tell(draft, fact.name, fact.number, f"lacks {fact.missing_gpus} GPUs: {fact.why}")


def _on_changed(draft: TurnBuilder, fact: event.OccurrenceChanged) -> None:
    if fact.why:
        _tell(draft, fact.name, fact.number, f"has changed: {fact.why}")


def _on_ended(draft: TurnBuilder, fact: event.OccurrenceEnded) -> None:
    if fact.state in _WORDS:
        _tell(draft, fact.name, fact.number, f"{_WORDS[fact.state]}: {fact.why}".removesuffix(": "))


def _tell(draft: TurnBuilder, name: str, number: int, what: str) -> None:
    reservation = draft.cluster.reservations.get(name)
    if reservation is not None:
        text, owner, uid = f"occurrence {number} of reservation {name} {what}", reservation.owner, reservation.uid
        for target in _possible(draft, reservation.booking.notify) or (None,):
            notice.to_owner(draft, owner, uid, RESERVATION, text, target, reservation=name, occurrence=number)


def _on_fired(draft: TurnBuilder, fact: event.CronFired) -> None:
    """A line that became no job: notify once, not again while the same job prevents it; jobs send their own notices."""
    if fact.job_id is None and fact.why and not fact.is_known:
        _tell_cron(draft, fact.user, fact.number, f"started no job: {fact.why}")


def _on_run_ended(draft: TurnBuilder, fact: event.CronRunEnded) -> None:
    crontab = draft.cluster.crontabs.get(fact.user)
    entry = None if crontab is None else crontab.entries.get(fact.number)
    tells_itself = entry is not None and any(on in (END, FAIL) for one in entry.cron.spec.notify for on in one.on)
    if fact.why and not tells_itself:
        _tell_cron(draft, fact.user, fact.number, f"failed: {fact.why}")


def _tell_cron(draft: TurnBuilder, user: str, number: int, what: str) -> None:
    crontab = draft.cluster.crontabs.get(user)
    entry = None if crontab is None else crontab.entries.get(number)
    if crontab is None or entry is None:
        return
    text = f"line {entry.cron.line} of your crontab ({entry.cron.spec.name}) {what}"
    for target in _own(draft, entry.cron.spec) or (None,):
        notice.to_owner(draft, user, crontab.uid, CRON, text, target, line=entry.cron.line)


def _own(draft: TurnBuilder, spec: JobSpec) -> tuple[Target, ...]:
    """The targets of the line that are notified of the end of its jobs, as far as the configuration permits them."""
    return tuple([one for one in _possible(draft, spec.notify) if END in one.on or FAIL in one.on])


def _possible(draft: TurnBuilder, targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets; none if the configuration no longer permits one of them."""
    try:
        return notice_spec.settled_targets(draft.policy, targets)
    except Refusal:
        return ()


_FOLLOWED: dict[type, Callable[[TurnBuilder, Any], None]] = {
    event.OccurrencePlanned: _on_planned,
    event.OccurrenceChanged: _on_changed,
    event.OccurrenceEnded: _on_ended,
    event.CronFired: _on_fired,
    event.CronRunEnded: _on_run_ended,
}
