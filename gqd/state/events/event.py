"""The durable events, in the past tense: the change log, on which only `gqd.control.apply.table` acts.

Every event carries all that its apply function needs: `fold(apply, events)` rebuilds the cluster.  Fields are only ever
added, with a default, and an event never changes its meaning.  Pure.
"""

from __future__ import annotations

from gqd.state.events.account import AccountRemoved as AccountRemoved
from gqd.state.events.account import AccountSet as AccountSet
from gqd.state.events.account import HalfLifeSet as HalfLifeSet
from gqd.state.events.account import LimitRemoved as LimitRemoved
from gqd.state.events.account import LimitSet as LimitSet
from gqd.state.events.account import MemberRemoved as MemberRemoved
from gqd.state.events.account import MemberSet as MemberSet
from gqd.state.events.account import PeriodsBegan as PeriodsBegan
from gqd.state.events.account import QosRemoved as QosRemoved
from gqd.state.events.account import QosSet as QosSet
from gqd.state.events.ask import AsksAnswered as AsksAnswered
from gqd.state.events.ask import JobAsked as JobAsked
from gqd.state.events.attempt import JobAllocated as JobAllocated
from gqd.state.events.attempt import JobEnding as JobEnding
from gqd.state.events.attempt import JobRequeued as JobRequeued
from gqd.state.events.attempt import JobStarted as JobStarted
from gqd.state.events.attempt import LaunchFailed as LaunchFailed
from gqd.state.events.attempt import PartEmptied as PartEmptied
from gqd.state.events.attempt import PartPrepared as PartPrepared
from gqd.state.events.attempt import PartsReleased as PartsReleased
from gqd.state.events.attempt import PartStranded as PartStranded
from gqd.state.events.attempt import PartWentLive as PartWentLive
from gqd.state.events.audit import Audited as Audited
from gqd.state.events.crontab import CronFired as CronFired
from gqd.state.events.crontab import CronRunEnded as CronRunEnded
from gqd.state.events.crontab import CrontabRemoved as CrontabRemoved
from gqd.state.events.crontab import CrontabSet as CrontabSet
from gqd.state.events.elastic import GpusAdded as GpusAdded
from gqd.state.events.elastic import GpusGivenUp as GpusGivenUp
from gqd.state.events.elastic import NodeAdded as NodeAdded
from gqd.state.events.elastic import NodesGoing as NodesGoing
from gqd.state.events.elastic import NodesLeft as NodesLeft
from gqd.state.events.elastic import ShrinkAccepted as ShrinkAccepted
from gqd.state.events.elastic import ShrinkAgreed as ShrinkAgreed
from gqd.state.events.elastic import ShrinkDecided as ShrinkDecided
from gqd.state.events.job import ArrayTaskLeft as ArrayTaskLeft
from gqd.state.events.job import ArrayTasksCancelled as ArrayTasksCancelled
from gqd.state.events.job import ArrayThrottleSet as ArrayThrottleSet
from gqd.state.events.job import DependencyChanged as DependencyChanged
from gqd.state.events.job import JobEnded as JobEnded
from gqd.state.events.job import JobHeld as JobHeld
from gqd.state.events.job import JobReleased as JobReleased
from gqd.state.events.job import JobsForgotten as JobsForgotten
from gqd.state.events.job import JobSubmitted as JobSubmitted
from gqd.state.events.job import JobUpdated as JobUpdated
from gqd.state.events.job import StartEstimated as StartEstimated
from gqd.state.events.key import KeyAdded as KeyAdded
from gqd.state.events.key import KeyRevoked as KeyRevoked
from gqd.state.events.key import KeysExpired as KeysExpired
from gqd.state.events.key import NodeJoined as NodeJoined
from gqd.state.events.node import KeyFileGone as KeyFileGone
from gqd.state.events.node import NodeBackedOff as NodeBackedOff
from gqd.state.events.node import NodeBackoffCleared as NodeBackoffCleared
from gqd.state.events.node import NodeDrained as NodeDrained
from gqd.state.events.node import NodeLost as NodeLost
from gqd.state.events.node import NodeRegistered as NodeRegistered
from gqd.state.events.node import NodeRemoved as NodeRemoved
from gqd.state.events.node import NodeResumed as NodeResumed
from gqd.state.events.node import NodeSetDown as NodeSetDown
from gqd.state.events.notice import JobTold as JobTold
from gqd.state.events.notice import NoticeCommandQueued as NoticeCommandQueued
from gqd.state.events.notice import NoticeDelivered as NoticeDelivered
from gqd.state.events.notice import NoticeDropped as NoticeDropped
from gqd.state.events.notice import NoticeFailed as NoticeFailed
from gqd.state.events.notice import NoticeQueued as NoticeQueued
from gqd.state.events.owed_order import OrderConfirmed as OrderConfirmed
from gqd.state.events.owed_order import OrderOwed as OrderOwed
from gqd.state.events.parked import JobParked as JobParked
from gqd.state.events.parked import JobParking as JobParking
from gqd.state.events.parked import JobUnparked as JobUnparked
from gqd.state.events.preemption import JobCaughtUp as JobCaughtUp
from gqd.state.events.preemption import JobCheckpointed as JobCheckpointed
from gqd.state.events.preemption import PreemptionDecided as PreemptionDecided
from gqd.state.events.preemption import PreemptionDropped as PreemptionDropped
from gqd.state.events.request import RequestAnswered as RequestAnswered
from gqd.state.events.request import RequestsForgotten as RequestsForgotten
from gqd.state.events.reservation import OccurrenceBegan as OccurrenceBegan
from gqd.state.events.reservation import OccurrenceChanged as OccurrenceChanged
from gqd.state.events.reservation import OccurrenceEnded as OccurrenceEnded
from gqd.state.events.reservation import OccurrencePlanned as OccurrencePlanned
from gqd.state.events.reservation import OccurrencesPassed as OccurrencesPassed
from gqd.state.events.reservation import ReservationRemoved as ReservationRemoved
from gqd.state.events.reservation import ReservationSet as ReservationSet
from gqd.state.events.step import StepFinished as StepFinished
from gqd.state.events.step import StepPartEnded as StepPartEnded
from gqd.state.events.step import StepPartReceived as StepPartReceived
from gqd.state.events.step import StepStarted as StepStarted
from gqd.state.events.suspension import JobResumed as JobResumed
from gqd.state.events.suspension import JobSuspended as JobSuspended

Event = (
    JobSubmitted | JobHeld | JobReleased | JobUpdated | JobAllocated | PartPrepared | PartsReleased | PartWentLive
    | JobStarted | JobEnding | LaunchFailed | PartEmptied | PartStranded | JobRequeued | JobEnded | JobsForgotten
    | StepStarted | StepPartReceived | StepPartEnded | StepFinished
    | NodeRegistered | NodeLost | NodeDrained | NodeSetDown | NodeResumed | NodeBackedOff | NodeBackoffCleared
    | RequestAnswered | RequestsForgotten
    | NodeRemoved | KeyFileGone | KeyAdded | NodeJoined | KeyRevoked | KeysExpired | Audited
    | ArrayTaskLeft | ArrayTasksCancelled | ArrayThrottleSet | DependencyChanged | StartEstimated
    | AccountSet | AccountRemoved | MemberSet | MemberRemoved | QosSet | QosRemoved | LimitSet | LimitRemoved
    | PeriodsBegan | HalfLifeSet
    | ReservationSet | ReservationRemoved | OccurrencePlanned | OccurrenceChanged | OccurrenceBegan | OccurrenceEnded
    | OccurrencesPassed
    | CrontabSet | CrontabRemoved | CronFired | CronRunEnded
    | PreemptionDecided | PreemptionDropped | JobCheckpointed | JobCaughtUp | JobSuspended | JobResumed
    | JobParking | JobParked | JobUnparked | OrderOwed | OrderConfirmed
    | JobAsked | AsksAnswered
    | GpusAdded | ShrinkDecided | ShrinkAccepted | ShrinkAgreed | GpusGivenUp | NodeAdded | NodesGoing | NodesLeft
    | NoticeQueued | NoticeDropped | NoticeCommandQueued | NoticeDelivered | NoticeFailed | JobTold
)  # fmt: skip
