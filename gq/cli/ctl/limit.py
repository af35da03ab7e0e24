"""`gqctl limit VERB`: how much users, accounts and QOS may have, and where that binds."""

from __future__ import annotations

import math

from gq.cli.ctl.account import warn_of_stranger
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, ask_accounts, controller
from gq.cli.framework.operands import operands, refuse_operands
from gq.cli.framework.output import Column, JsonValue, write_json_list, write_table
from gq.errors import UsageError
from gq.model.account import AT_START_ONLY, AT_SUBMIT_ONLY, LIMITED, Holder, LimitAt, LimitInfo
from gq.near_miss import suggestion
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.units import format_duration, format_memory, parse_duration_s, parse_memory_mib
from gq.wire.client import Done, ListAccounts, RemoveLimit, SetLimit

GPUS_OF_TYPE = "gpus:"
MOST = 2**53

_COLUMNS = (
    Column("OF"),
    Column("NAME"),
    Column("RESOURCE"),
    Column("MOST", is_number=True),
    Column("USED", is_number=True),
    Column("LEFT", is_number=True),
    Column("EACH USER"),
    Column("AT"),
)
_WHOSE = (
    Option(name="user", letter="u", metavar="USERS", help="Limits of these users, in all accounts together."),
    Option(name="account", letter="A", metavar="NAMES", help="Limits of these accounts, including child accounts."),
    Option(name="qos", letter="q", metavar="NAMES", help="Limits of jobs with these QOS."),
)
_PER_USER = Option(name="per-user", help="Limit each user of the account or QOS, not all users together.")


def resource(text: str) -> str:
    """A name of `LIMITED`, or ``gpus:TYPE``; ``ValueError`` says what there is."""
    word = text.strip().lower().replace("-", "_") if not text.startswith(GPUS_OF_TYPE) else text.strip().lower()
    if word in LIMITED or (word.startswith(GPUS_OF_TYPE) and len(word) > len(GPUS_OF_TYPE)):
        return word
    there = suggestion(word, LIMITED, f"use {', '.join(LIMITED)} or gpus:TYPE")
    raise ValueError(f"`{text}` is not a resource that can be limited; {there}")


def amount(resource_name: str, text: str) -> float:
    """``4``, ``512G`` of memory, ``2d`` of time, GPU-hours; ``ValueError`` with a sentence."""
    if resource_name == "memory":
        return parse_memory_mib(text)
    if resource_name == "time":
        seconds = parse_duration_s(text)
        if seconds is None:
            raise ValueError(f"`{text}` is not a limit; `gqctl limit remove` removes a limit")
        return seconds
    return _gpu_hours(text) if resource_name.startswith("gpu_hours") else whole_number(text, 0, MOST)


def _gpu_hours(text: str) -> float:
    try:
        hours = float(text)
    except ValueError:
        hours = -1.0
    if not (math.isfinite(hours) and 0 <= hours <= MOST):
        raise ValueError(f"`{text}` is not a number of GPU-hours; for example 2000 or 0.5")
    return hours


def shown_amount(resource_name: str, max_amount: float) -> str:
    """Format an amount so that `amount` can read it."""
    if resource_name == "memory":
        return format_memory(int(max_amount))
    return format_duration(int(max_amount)) if resource_name == "time" else f"{max_amount:.10g}"


def _assignment(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"`{text}` is not RESOURCE=MAXIMUM; for example gpus=4")
    resource_name = resource(name)
    return resource_name, amount(resource_name, value)


# ── whose ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _holders(arguments: Arguments) -> list[tuple[Holder, str]]:
    """Return the holders of limits that the options name, at least one."""
    found = [(Holder(option.name), name) for option in _WHOSE for name in arguments.words(option.name)]
    if not found:
        raise UsageError(
            "missing_option", "no user, account or QOS given", "add --user=USER, --account=NAME or --qos=NAME"
        )
    if arguments.has("per-user") and any(holder is Holder.USER for holder, _ in found):
        raise UsageError(
            "contradiction",
            "`--user` and `--per-user` exclude each other",
            "remove --per-user: a user's limit already applies to one user",
        )
    return found


def _at(arguments: Arguments, resource_name: str) -> LimitAt:
    """Where it binds; some limits can do so at one point only."""
    given = arguments.last("at")
    only = (
        LimitAt.SUBMIT if resource_name in AT_SUBMIT_ONLY else LimitAt.START if resource_name in AT_START_ONLY else None
    )
    if given is None:
        return only or LimitAt.START
    at = _AT.get(given.value.lower())
    if at is None:
        raise UsageError(
            "bad_value", f"{given.place}: `{given.value}` is not a point where a limit applies", "use submit or start"
        )
    if only is not None and at is not only:
        raise UsageError(
            "contradiction", f"a limit of {LIMITED[resource_name]} applies at {only.value} only", "remove --at"
        )
    return at


_AT = {one.value: one for one in LimitAt}


# ── verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _set(arguments: Arguments) -> int:
    holders = _holders(arguments)
    limits = operands(arguments, _assignment, "RESOURCE=MOST")
    requests = [
        SetLimit(
            limit=LimitInfo(
                holder=holder, name=name, resource=resource_name, most=max_amount, per_user=arguments.has("per-user"),
                at=_at(arguments, resource_name),
            )
        )
        for holder, name in holders
        for resource_name, max_amount in limits
    ]  # fmt: skip
    with controller() as client:
        for request in requests:
            ask(client, request, Done)
    for holder, name in holders:
        if holder is Holder.USER:
            warn_of_stranger(name)
    return 0


def _remove(arguments: Arguments) -> int:
    holders = _holders(arguments)
    resources = operands(arguments, resource, "RESOURCE")
    is_per_user = arguments.has("per-user")
    with controller() as client:
        for holder, name in holders:
            for resource_name in resources:
                ask(
                    client,
                    RemoveLimit(holder=holder.value, name=name, resource=resource_name, per_user=is_per_user),
                    Done,
                )
    return 0


def _show(arguments: Arguments) -> int:
    refuse_operands(arguments, "use --user, --account and --qos")
    chosen = {(Holder(option.name), name) for option in _WHOSE for name in arguments.words(option.name)}
    wanted = {holder: tuple(name for kind, name in chosen if kind is holder) for holder in Holder}
    request = ListAccounts(accounts=wanted[Holder.ACCOUNT], users=wanted[Holder.USER], qos=wanted[Holder.QOS])
    with controller() as client:
        found = ask_accounts(client, request).limits
    limits = [limit for limit in found if not chosen or (limit.holder, limit.name) in chosen]
    if arguments.has("json"):
        write_json_list(map(_json, limits))
    else:
        write_table(_COLUMNS, [map(_row, limits)])
    return 0


def _row(limit: LimitInfo) -> tuple[str, ...]:
    used, left = _used_and_left(limit)
    return (
        limit.holder.value,
        limit.name,
        limit.resource,
        shown_amount(limit.resource, limit.most),
        used,
        left,
        "yes" if limit.per_user else "no",
        limit.at.value,
    )


def _used_and_left(limit: LimitInfo) -> tuple[str, str]:
    if limit.used is None:
        return "-", "-"
    used, left = _rounded(limit.used), _rounded(max(0.0, limit.most - limit.used))
    return shown_amount(limit.resource, used), shown_amount(limit.resource, left)


def _rounded(amount: float) -> float:
    """GPU-hours have no end of digits."""
    return round(amount, 1)


def _json(limit: LimitInfo) -> dict[str, JsonValue]:
    return {
        "holder": limit.holder,
        "name": limit.name,
        "resource": limit.resource,
        "most": limit.most,
        "used": limit.used,
        "per_user": limit.per_user,
        "at": limit.at,
    }


def verbs() -> dict[str, Command]:
    return {
        "set": Command(
            name="gqctl limit set",
            summary="Set or change limits.",
            operands="RESOURCE=MOST...",
            options=(
                *_WHOSE,
                _PER_USER,
                Option(
                    name="at",
                    metavar="submit|start",
                    help="Refuse jobs beyond the limit, or keep them pending (start).",
                ),
            ),
            run=_set,
            details=f"RESOURCE is one of {', '.join(LIMITED)}, or gpus:TYPE. Queued and running jobs are not affected.",
        ),
        "show": Command(
            name="gqctl limit show",
            summary="Show limits and their usage.",
            options=(*_WHOSE, JSON),
            run=_show,
        ),
        "remove": Command(
            name="gqctl limit remove",
            summary="Remove limits.",
            operands="RESOURCE...",
            options=(*_WHOSE, _PER_USER),
            run=_remove,
        ),
    }
