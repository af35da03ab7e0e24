"""States, outcomes and pending reasons of jobs, and Slurm's words for them."""

from __future__ import annotations

from enum import StrEnum

from gq.near_miss import suggestion


class JobState(StrEnum):
    """The state of a job's life cycle; ``gqd.state.lifecycle`` lists the permitted transitions."""

    PENDING = "PENDING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    COMPLETING = "COMPLETING"
    ENDED = "ENDED"


class Outcome(StrEnum):
    """How a job, an attempt or a step ended."""

    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    TIMEOUT = "TIMEOUT"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_FAIL = "NODE_FAIL"
    PREEMPTED = "PREEMPTED"
    DEADLINE = "DEADLINE"
    BOOT_FAIL = "BOOT_FAIL"


class Reason(StrEnum):
    """Why a job is pending or how it ended, in Slurm's words, each without blanks."""

    NONE = "None"
    PRIORITY = "Priority"
    RESOURCES = "Resources"
    BEGIN_TIME = "BeginTime"
    HELD_USER = "JobHeldUser"
    HELD_ADMIN = "JobHeldAdmin"
    LAUNCH_FAILED = "LaunchFailed"
    BAD_WORKDIR = "BadWorkdir"
    LAUNCH_FAILURE = "JobLaunchFailure"
    LAUNCH_FAILED_HELD = "launch_failed_requeued_held"
    NODE_DOWN = "NodeDown"
    NODES_UNAVAILABLE = "ReqNodeNotAvail"
    PARTITION_DOWN = "PartitionDown"
    PARTITION_TIME_LIMIT = "PartitionTimeLimit"
    PARTITION_CONFIG = "PartitionConfig"
    BAD_CONSTRAINTS = "BadConstraints"
    CLEANING = "Cleaning"
    DEPENDENCY = "Dependency"
    DEPENDENCY_NEVER = "DependencyNeverSatisfied"
    ARRAY_TASK_LIMIT = "JobArrayTaskLimit"
    DEADLINE = "DeadLine"
    LICENSES = "Licenses"
    RESERVATION = "Reservation"
    RESERVATION_DELETED = "ReservationDeleted"
    ASSOC_GRES = "AssocGrpGRES"
    ASSOC_CPUS = "AssocGrpCpuLimit"
    ASSOC_MEMORY = "AssocGrpMemLimit"
    ASSOC_JOBS = "AssocGrpJobsLimit"
    ASSOC_USER_JOBS = "AssocMaxJobsLimit"
    ASSOC_GRES_MINUTES = "AssocGrpGRESMinutes"
    QOS_GRES = "QOSGrpGRES"
    QOS_CPUS = "QOSGrpCpuLimit"
    QOS_MEMORY = "QOSGrpMemLimit"
    QOS_JOBS = "QOSGrpJobsLimit"
    QOS_GRES_MINUTES = "QOSGrpGRESMinutes"
    QOS_USER_GRES = "QOSMaxGRESPerUser"
    QOS_USER_CPUS = "QOSMaxCpuPerUserLimit"
    QOS_USER_MEMORY = "QOSMaxMemoryPerUser"
    QOS_USER_JOBS = "QOSMaxJobsPerUserLimit"
    PARKED = "Parked"
    NON_ZERO_EXIT = "NonZeroExitCode"
    RAISED_SIGNAL = "RaisedSignal"
    TIME_LIMIT = "TimeLimit"
    OUT_OF_MEMORY = "OutOfMemory"


STATE_LETTERS = {
    "PENDING": "PD",
    "CONFIGURING": "CF",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "DEADLINE": "DL",
    "BOOT_FAIL": "BF",
}
"""Slurm's long state word → its letters, for every word that gq shows."""

ACTIVE_WORDS = frozenset({"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED"})


def state_word(state: JobState, outcome: Outcome | None) -> str:
    """Return Slurm's long word for a job: its state until it ends, then its outcome."""
    match state:
        case JobState.STARTING:
            return "CONFIGURING"
        case JobState.ENDED:
            assert outcome is not None, "an ended job has an outcome"
            return outcome.value
        case _:
            return state.value


def state_letters(word: str) -> str:
    """Return Slurm's letters for a long word (``RUNNING`` → ``R``)."""
    return STATE_LETTERS[word]


def parse_state_word(text: str) -> str:
    """Return the long word for a name or its letters in any case; ValueError lists the valid words."""
    upper = text.strip().upper()
    if upper in STATE_LETTERS:
        return upper
    for word, letters in STATE_LETTERS.items():
        if upper == letters:
            return word
    way_out = suggestion(upper, STATE_LETTERS, f"use one of {', '.join(STATE_LETTERS)} or their letters")
    raise ValueError(f"`{text}` is not a job state; {way_out}")
