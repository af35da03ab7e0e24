"""Events of job steps.  Pure."""

from __future__ import annotations

from gq.model.ids import StepId
from gq.model.job import ExitStatus, Usage
from gq.model.state import Outcome
from gq.model.step import StepLayout
from gqd.state.events.record import EventBase


class StepStarted(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    key: bytes
    layout: StepLayout


class StepPartReceived(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    node: str


class StepPartEnded(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    node: str
    exit: ExitStatus
    outcome: Outcome
    usage: Usage = Usage()


class StepFinished(EventBase, frozen=True, kw_only=True):
    step_id: StepId
    exit: ExitStatus
    outcome: Outcome
