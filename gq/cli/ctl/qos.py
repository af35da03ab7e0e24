"""`gqctl qos VERB`: classes of service that jobs ask for."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gq.cli.ctl.account import Readers, a_name, count, names, refuse_missing, refuse_no_change, said
from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, ask_accounts, controller
from gq.cli.framework.operands import operands
from gq.cli.framework.output import Column, JsonValue, write_json_list, write_table
from gq.connection.client import Client
from gq.errors import Refusal
from gq.model.account import PreemptMode, QosInfo
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import format_duration, parse_duration_s
from gq.wire.client import Done, ListAccounts, RemoveQos, SetQos

MOST_USAGE_FACTOR = 1e6
_COLUMNS = (
    Column("QOS", is_whole=True),
    Column("PRIORITY", is_number=True),
    Column("USAGE FACTOR", is_number=True),
    Column("MAX TIME", is_number=True),
    Column("PREEMPTS", is_wide=True, is_wrapped=True),
    Column("WHEN PREEMPTED"),
    Column("BORROWS"),
    Column("WHO", is_wide=True, is_wrapped=True),
    Column("DESCRIPTION", is_wide=True),
)


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0 <= factor <= MOST_USAGE_FACTOR:
        raise ValueError(f"`{text}` is not a factor; for example 2 or 0.5; 0 bills nothing")
    return factor


def _mode(text: str) -> PreemptMode:
    try:
        return PreemptMode(text)
    except ValueError:
        raise ValueError(f"`{text}` is not a mode: off, requeue, cancel or suspend") from None


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(f"`{text}` is neither yes nor no")
    return text == "yes"


def _least_time(text: str) -> int:
    return parse_duration_s(text) or 0


_QOS: Readers = {
    "description": ("description", str),
    "priority": ("priority", count),
    "usage_factor": ("usage-factor", _factor),
    "max_time_s": ("max-time", parse_duration_s),
    "users": ("users", names),
    "groups": ("groups", names),
    "accounts": ("accounts", names),
    "preempts": ("preempts", names),
    "preempt_mode": ("preempt-mode", _mode),
    "min_run_s": ("min-run", _least_time),
    "borrows_reserved": ("borrows-reserved", _yes_or_no),
}
_OPTIONS = (
    Option(name="priority", metavar="COUNT", help="Priority of the QOS; the highest of all QOS gives factor 1 (0)."),
    Option(name="usage-factor", metavar="FACTOR", help="Factor by which the usage of its jobs is billed (1)."),
    Option(name="max-time", metavar="TIME", help="Maximum time limit of its jobs; unlimited: none."),
    Option(name="users", metavar="USERS", help="Users who may use it; with no users, groups or accounts: all."),
    Option(name="groups", metavar="GROUPS", help="Unix groups that may use it."),
    Option(name="accounts", metavar="NAMES", help="Accounts that may use it, including child accounts."),
    Option(name="preempts", metavar="NAMES", help="QOS whose jobs its jobs may preempt."),
    Option(
        name="preempt-mode",
        metavar="MODE",
        help="How its jobs are preempted: requeue (default), cancel, suspend, off.",
    ),
    Option(name="min-run", metavar="TIME", help="Minimum run time of its jobs before preemption (0)."),
    Option(name="borrows-reserved", metavar="yes|no", help="Let its jobs run on unused reserved resources (no)."),
    Option(name="description", metavar="TEXT", help="Description of the QOS."),
)


def _set(is_new: bool) -> Callable[[Arguments], int]:
    def run(arguments: Arguments) -> int:
        [name] = operands(arguments, a_name, "NAME", at_most=1)
        fields = said(arguments, _QOS)
        refuse_no_change(fields, is_new)
        with controller() as client:
            base = QosInfo(name=name) if is_new else _qos(client, name)
            ask(client, SetQos(qos=msgspec.structs.replace(base, **fields), is_new=is_new), Done)
        return 0

    return run


def _qos(client: Client, name: str) -> QosInfo:
    for qos in ask_accounts(client, ListAccounts(qos=(name,))).qos:
        if qos.name == name:
            return qos
    raise Refusal("unknown_qos", f"QOS `{name}` does not exist", "`gqctl qos show` lists all")


def _remove(arguments: Arguments) -> int:
    found = operands(arguments, a_name, "NAME")
    with controller() as client:
        for name in found:
            ask(client, RemoveQos(name=name), Done)
    return 0


def _show(arguments: Arguments) -> int:
    wanted = tuple(name for operand in arguments.operands for name in names(operand))
    with controller() as client:
        found = ask_accounts(client, ListAccounts(qos=wanted)).qos
    classes = [qos for qos in found if not wanted or qos.name in wanted]
    refuse_missing("qos", wanted, [qos.name for qos in classes])
    if arguments.has("json"):
        write_json_list(map(_json, classes))
    else:
        write_table(_COLUMNS, [map(_row, classes)])
    return 0


def _row(qos: QosInfo) -> tuple[str, ...]:
    return (
        qos.name,
        str(qos.priority),
        f"{qos.usage_factor:g}",
        format_duration(qos.max_time_s, "unlimited"),
        ",".join(qos.preempts) or "-",
        f"{qos.preempt_mode} after {format_duration(qos.min_run_s)}" if qos.min_run_s else qos.preempt_mode.value,
        "reserved" if qos.borrows_reserved else "-",
        _who(qos),
        qos.description,
    )


def _who(qos: QosInfo) -> str:
    kinds = (("users", qos.users), ("groups", qos.groups), ("accounts", qos.accounts))
    return " ".join(f"{kind} {','.join(those)}" for kind, those in kinds if those) or "all"


def _json(qos: QosInfo) -> dict[str, JsonValue]:
    return {
        "qos": qos.name,
        "description": qos.description,
        "priority": qos.priority,
        "usage_factor": qos.usage_factor,
        "max_time_s": qos.max_time_s,
        "users": qos.users,
        "groups": qos.groups,
        "accounts": qos.accounts,
        "preempts": qos.preempts,
        "preempt_mode": qos.preempt_mode.value,
        "min_run_s": qos.min_run_s,
        "borrows_reserved": qos.borrows_reserved,
    }


def verbs() -> dict[str, Command]:
    return {
        "add": Command(
            name="gqctl qos add", summary="Add a QOS.", operands="NAME", options=_OPTIONS, run=_set(is_new=True)
        ),
        "set": Command(
            name="gqctl qos set",
            summary="Change a QOS; other settings stay.",
            operands="NAME",
            options=_OPTIONS,
            run=_set(is_new=False),
        ),
        "show": Command(
            name="gqctl qos show",
            summary="Show QOS (classes of service) and who may use them.",
            operands="[NAME...]",
            options=(JSON,),
            run=_show,
        ),
        "remove": Command(
            name="gqctl qos remove",
            summary="Remove QOS that no job uses; a built-in QOS is reset instead.",
            operands="NAME...",
            run=_remove,
        ),
    }
