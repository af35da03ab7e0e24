"""Sentences about jobs that wait for the reservation they name, or that would run into one.  Pure."""

from __future__ import annotations

from typing import assert_never

from gq.explain.sentence import Sentence, mark, names_of, shorter_hint
from gq.model import wait as waits
from gq.units import spoken_duration

_Wait = waits.ReservationBegins | waits.ReservationTooShort | waits.NotInReservation | waits.RunsIntoReservation


def sentence(label: str, wait: _Wait) -> Sentence:
    match wait:
        case waits.ReservationBegins():
            why = f"it names reservation `{wait.name}`, which begins at {mark(wait.at)}"
            return Sentence(why, "without --reservation it could start wherever there is room")
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
    end = f"is to be clear for reservation `{wait.for_next}` at" if wait.for_next else "ends at"
    why = f"it would run {limit}, and reservation `{wait.name}`, which it names, {end} {mark(wait.ends_at)}"
    why += _default_limit(wait.default_limit)
    if wait.next_at is not None:
        why += f"; it is long enough again at {mark(wait.next_at)}"
    minutes = wait.longest_s // 60
    if minutes < 1:
        return Sentence(why, _elsewhere(label))
    return Sentence(why, f"at most --time={minutes} (minutes) would do: gqctl update {label} --time={minutes}")


def _not_in(label: str, wait: waits.NotInReservation) -> Sentence:
    names = f"it names reservation `{wait.name}`"
    if wait.is_known and wait.is_gone and wait.has_more:
        later = "; later ones come" if wait.is_endless else ""
        hint = f"gqresv show {wait.name} tells more of it; {_elsewhere(label)}"
        return Sentence(f"{names}, of which nothing is planned now{later}", hint)
    why = "that is over, or was skipped" if wait.is_known and wait.is_gone else wait.why
    return Sentence(f"{names}, and {why}", wait.hint or f"{_elsewhere(label)}; `gqresv list` shows what there is")


def _runs_into(label: str, wait: waits.RunsIntoReservation) -> Sentence:
    until = f"until {mark(wait.ends_at)}" if wait.ends_at is not None else "for as long as nobody knows"
    why = f"it would fit now, but run {until}, and reservation `{wait.name}` keeps {names_of(wait.nodes)}"
    why += f" from {mark(wait.begins_at)}"
    if wait.clear_at < wait.begins_at:
        why += f", for which that is to be clear at {mark(wait.clear_at)}"
    hint = shorter_hint(label, wait.longest_s) or "it is considered again when that is over"
    return Sentence(why + _default_limit(wait.default_limit), hint)


def _elsewhere(label: str) -> str:
    return f"gqctl update {label} --reservation=none lets it start elsewhere"


def _default_limit(default: waits.DefaultTimeLimit | None) -> str:
    if default is None:
        return ""
    time = spoken_duration(default.time_limit_s)
    match default.source:
        case "limit":
            counts = f"the {time} that gqctl limit show tells of"
        case "qos":
            counts = f"QOS `{default.name}`'s {time}"
        case _:
            counts = f"partition `{default.name}`'s {time}"
    return f"; it names no time limit, so it counts with {counts}"
