"""Sentences about jobs that wait for the reservation they name, or that would run into one.  Pure."""

from __future__ import annotations

from typing import assert_never

from gq.explain.sentence import Sentence, mark, names_of, shorter_hint
from gq.model import wait as waits
from gq.units import format_duration, spoken_duration

_Wait = waits.ReservationBegins | waits.ReservationTooShort | waits.NotInReservation | waits.RunsIntoReservation


def sentence(label: str, wait: _Wait) -> Sentence:
    match wait:
        case waits.ReservationBegins():
            why = f"it names reservation `{wait.name}`, which begins at {mark(wait.at)}"
            return Sentence(why, "without --reservation it could start on other nodes")
        case waits.ReservationTooShort():
            return _too_short(label, wait)
        case waits.NotInReservation():
            return _not_in(label, wait)
        case waits.RunsIntoReservation():
            return _runs_into(label, wait)
        case _ as never:
            assert_never(never)


def _too_short(label: str, wait: waits.ReservationTooShort) -> Sentence:
    limit = "without a time limit"
    if wait.time_limit_s is not None:
        limit = f"for up to {spoken_duration(wait.time_limit_s)}"
    end = f"must be empty for reservation `{wait.for_next}` at" if wait.for_next else "ends at"
    why = f"it would run {limit}, but its reservation `{wait.name}` {end} {mark(wait.ends_at)}"
    why += _default_limit(wait.default_limit)
    if wait.next_at is not None:
        why += f"; the next occurrence that is long enough begins at {mark(wait.next_at)}"
    if wait.longest_s < 60:
        return Sentence(why, _elsewhere(label))
    time = format_duration(wait.longest_s // 60 * 60)
    return Sentence(why, f"--time={time} or less fits into the reservation: gqctl update {label} --time={time}")


def _not_in(label: str, wait: waits.NotInReservation) -> Sentence:
    names = f"it names reservation `{wait.name}`"
    if wait.is_known and wait.is_gone and wait.has_more:
        later = "; later occurrences follow" if wait.is_endless else ""
        hint = f"gqresv show {wait.name} shows the reservation; {_elsewhere(label)}"
        return Sentence(f"{names}, which has no planned occurrence now{later}", hint)
    why = "that has ended or was skipped" if wait.is_known and wait.is_gone else wait.why
    return Sentence(f"{names}, and {why}", wait.hint or f"{_elsewhere(label)}; `gqresv list` lists the reservations")


def _runs_into(label: str, wait: waits.RunsIntoReservation) -> Sentence:
    until = f"until {mark(wait.ends_at)}" if wait.ends_at is not None else "without a known end"
    why = f"it would fit now, but would run {until}, and reservation `{wait.name}` keeps {names_of(wait.nodes)}"
    why += f" from {mark(wait.begins_at)}"
    if wait.clear_at < wait.begins_at:
        why += f", so {names_of(wait.nodes)} must be empty by {mark(wait.clear_at)}"
    hint = shorter_hint(label, wait.longest_s) or "it is considered again when the reservation has ended"
    return Sentence(why + _default_limit(wait.default_limit), hint)


def _elsewhere(label: str) -> str:
    return f"gqctl update {label} --reservation=none lets it start elsewhere"


def _default_limit(default: waits.DefaultTimeLimit | None) -> str:
    if default is None:
        return ""
    time = spoken_duration(default.time_limit_s)
    match default.source:
        case "limit":
            limit = f"{time} (gqctl limit show)"
        case "qos":
            limit = f"that of QOS `{default.name}`: {time}"
        case _:
            limit = f"that of partition `{default.name}`: {time}"
    return f"; it was submitted without --time, so its limit is {limit}"
