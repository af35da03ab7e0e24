"""Sentences about resources that are short, kept or unavailable, and the jobs that hold them.  Pure."""

from __future__ import annotations

from typing import assert_never

from gq.explain.sentence import MAX_NAMED, Context, Sentence, mark, names_of
from gq.model import wait as waits
from gq.model.state import Reason
from gq.units import counted, format_memory

_Wait = waits.Insufficient | waits.Unavailable | waits.OutOfLicenses | waits.CoresReservedForGpus


def sentence(context: Context, wait: _Wait) -> Sentence:
    match wait:
        case waits.Insufficient():
            return _insufficient(context, wait)
        case waits.Unavailable():
            return _unavailable(context.job.label, wait)
        case waits.OutOfLicenses():
            return _out_of_licenses(context, wait)
        case waits.CoresReservedForGpus():
            return _cores_reserved(wait)
        case _ as never:
            assert_never(never)


def _insufficient(context: Context, wait: waits.Insufficient) -> Sentence:
    start = _what_is_short(wait)
    holders = "; ".join(_holder(context, holder, wait.resource) for holder in wait.holders[:MAX_NAMED])
    others = len(wait.holders) - MAX_NAMED
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    hint = _smaller(wait)
    if wait.usable_reservation:
        update = f"gqctl update {context.job.label} --reservation={wait.usable_reservation}"
        hint = f"the job may use that reservation: {update}"
    if wait.starts_at is None:
        hint = _no_promise(wait) + hint
    return Sentence(f"{start}: {holders}{more}", hint, start) if holders else Sentence(start, hint)


def _what_is_short(wait: waits.Insufficient) -> str:
    wanted, free = _amount(wait.wanted, wait.resource), _number(wait.free, wait.resource)
    verb = _verb(wait.free, wait.resource)
    there, elsewhere = "", ""
    if wait.selection:
        wanted, there = f"{wanted} on nodes with {wait.selection}", " there"
        idle = f"{wait.idle_nodes} of {wait.nodes} such {'node is' if wait.nodes == 1 else 'nodes are'} idle"
        amount = _amount(wait.free_elsewhere, wait.resource)
        elsewhere = f" ({idle}, {amount} {_verb(wait.free_elsewhere, wait.resource)} free on other nodes)"
    if wait.is_fragmented:
        return f"it needs {wanted} and {free} {verb} free{there}, but not in the right places{elsewhere}"
    return f"it needs {wanted}, {free} {verb} free{there}{elsewhere}"


def _verb(number: int, resource: str) -> str:
    return "is" if number == 1 or resource == "memory" else "are"


def _no_promise(wait: waits.Insufficient) -> str:
    if any(holder.ends_at is None for holder in wait.holders):
        return "a holder has no known end, so no start can be promised; "
    return "no start can be promised; "


def _smaller(wait: waits.Insufficient) -> str:
    if wait.is_fragmented and wait.resource == "CPUs" and wait.is_one_task_a_node:
        return "fewer CPUs per task would fit sooner"
    if wait.is_fragmented and wait.may_spread:
        return "fewer per node over more nodes would fit sooner"
    if wait.free and not wait.is_fragmented and wait.resource != "idle nodes":
        return f"a request for at most {_amount(wait.free, wait.resource)} could start now"
    return "it starts when enough of these end" if len(wait.holders) > 1 else "it starts when that ends"


def _amount(number: int, resource: str) -> str:
    """``8 GPUs``, ``1 idle node``, ``3G of memory``."""
    return f"{format_memory(number)} of memory" if resource == "memory" else counted(number, resource)


def _number(number: int, resource: str) -> str:
    return format_memory(number) if resource == "memory" else str(number)


def _holder(context: Context, holder: waits.Holder, resource: str) -> str:
    if resource == "memory" or holder.generic:
        held = _amount(holder.generic or holder.memory_mib, resource)
    else:
        held = counted(holder.gpus, "GPUs") if holder.gpus and resource != "CPUs" else counted(holder.cpus, "CPUs")
    nodes = ", ".join(holder.nodes[:MAX_NAMED]) + (", …" if len(holder.nodes) > MAX_NAMED else "")
    if holder.reservation:
        verb = "is" if held.startswith("1 ") or "memory" in held else "are"
        until = "" if holder.ends_at is None else f" until {mark(holder.ends_at)}"
        return f"{held} {verb} kept for reservation {holder.reservation} on {nodes}{until}"
    until = f"until {mark(holder.ends_at)} at the latest" if holder.ends_at is not None else "with no known end"
    if holder.is_overdue:
        until = "and is being ended"
    if holder.kept_for and holder.ends_at is not None:
        until = f"of reservation {holder.kept_for}, which ends at {mark(holder.ends_at)}"
    user = f" ({holder.user})" if holder.user else ""
    return f"job {context.label_of(holder.job_id)}{user} holds {held} on {nodes} {until}"


def _unavailable(label: str, wait: waits.Unavailable) -> Sentence:
    named = "; ".join(f"{node.name} is {node.why}" for node in wait.nodes[:MAX_NAMED])
    more = f"; and {len(wait.nodes) - MAX_NAMED} more" if len(wait.nodes) > MAX_NAMED else ""
    if not wait.failed_launch:
        return Sentence(f"it needs nodes that are not available: {named}{more}", _hint_of_nodes(wait))
    until = f"; it is tried again at {mark(wait.until)}" if wait.until is not None else ""
    hint = f"gqctl node resume {wait.left_out[0]} ends the back-off"
    if wait.failed_launch == Reason.BAD_WORKDIR.value:
        hint = f"create the directory; gqctl release {label} then tries that node again"
    elif wait.is_own_backoff:
        hint = "correct what the message names; gq tries the node again later"
    return Sentence(f"its launch failed ({wait.message}); {named}{more}{until}", hint)


def _hint_of_nodes(wait: waits.Unavailable) -> str:
    node = wait.nodes[0]
    if node.name in wait.left_out:
        return f"gqctl node resume {node.name} ends the back-off"
    if node.why == waits.BEING_CLEANED:
        return "the node is available when it has been cleaned up"
    if node.why.startswith(("lost", "not connected")):
        return f"start gqnode on {node.name}, or check why it does not respond"
    one_gpu = " (with --gpu for one GPU)" if node.why.startswith("short") else ""
    return f"gqctl node resume {node.name} makes it available again{one_gpu}"


def _out_of_licenses(context: Context, wait: waits.OutOfLicenses) -> Sentence:
    verb = "is" if wait.free == 1 else "are"
    why = f"it needs {counted(wait.wanted, 'licences')} of `{wait.name}`, {wait.free} of {wait.total} {verb} free"
    held = [
        f"job {context.label_of(holder.job_id)} ({holder.user}) holds {holder.count}"
        for holder in wait.holders[:MAX_NAMED]
    ]
    others = len(wait.holders) - MAX_NAMED
    more = f"; and {counted(others, 'more jobs')}" if others > 0 else ""
    why += f": {'; '.join(held)}{more}" if held else ""
    hint = f"a request for at most {wait.free} could start now" if wait.free else "it starts when enough of these end"
    return Sentence(why, hint)


def _cores_reserved(wait: waits.CoresReservedForGpus) -> Sentence:
    verb = "is" if wait.free == 1 else "are"
    why = (
        f"it needs {counted(wait.wanted, 'CPUs')}, {wait.free} {verb} free, and {wait.kept} more are reserved for idle"
    )
    why += f" GPUs on {names_of(wait.nodes)}"
    if 0 < wait.free < wait.wanted:
        return Sentence(why, f"a request for at most {counted(wait.free, 'CPUs')} could start now")
    return Sentence(why, "it starts when other CPUs are free, or when jobs use these GPUs")


def waits_for_locality(wait: waits.WaitsForLocality) -> Sentence:
    until = mark(wait.until)
    if wait.what == "switches":
        why = f"it could start on {wait.offered} now, but waits for {wait.wanted} until {until}"
        return Sentence(why, "a shorter wait lets it start earlier on more switches: --switches=COUNT@TIME")
    why = f"it could start on {wait.offered} now, but waits for nodes with `{wait.wanted}` until {until}"
    return Sentence(why, "without --prefer it could start now")
