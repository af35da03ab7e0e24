"""`gqshare`: the fair-share tree; who holds how much, who borrows, and why somebody stands where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.filter import own_name
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import (
    Column,
    JsonValue,
    sentence,
    write_json,
    write_json_list,
    write_sentence,
    write_table,
)
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.account import ShareInfo
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import render_instants
from gq.wire.client import ListShares, Shares

SHARE_COLUMNS = (
    Column("ACCOUNT"),
    Column("USER"),
    Column("SHARES", is_number=True),
    Column("DUE", is_number=True),
    Column("GPU-HOURS", is_number=True),
    Column("USED", is_number=True),
    Column("LEVELFS", is_number=True),
    Column("FAIRSHARE", is_number=True),
    Column("GPUS", is_number=True),
)
GUARANTEE_COLUMNS = (
    Column("ACCOUNT"),
    Column("GPUS", is_number=True),
    Column("GUARANTEED", is_number=True),
    Column("BORROWED", is_number=True),
    Column("MAY BORROW", is_number=True),
    Column("GIVES BACK", is_number=True),
)


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "use -u for users and -A for accounts")
    explained = _explained(arguments)
    with controller() as client:
        shares = _shares(client, arguments, explained)
    if explained:
        _explain(arguments, shares)
    elif arguments.has("json"):
        write_json_list(map(_json, shares.lines))
    elif arguments.has("guarantees"):
        rows = [_guarantee_row(line) for line in shares.lines if not line.user]
        write_table(GUARANTEE_COLUMNS, [rows], not arguments.has("noheader"))
    else:
        write_table(SHARE_COLUMNS, [map(_share_row, shares.lines)], not arguments.has("noheader"))
    return 0


def _shares(client: Client, arguments: Arguments, explained: str) -> Shares:
    """Return the requested shares; without a user, a caller who is in no account sees the accounts."""
    request = ListShares(accounts=arguments.words("account"), users=_users(arguments), explain=explained)
    try:
        return ask(client, request, Shares)
    except Refusal as refusal:
        if refusal.code != "unknown_user" or explained or arguments.has("user"):
            raise
    shares = ask(client, msgspec.structs.replace(request, users=()), Shares)
    return msgspec.structs.replace(shares, lines=tuple(line for line in shares.lines if not line.user))


def _users(arguments: Arguments) -> tuple[str, ...]:
    """Return the users whose lines are shown: the caller, the named users, or (empty) all."""
    if arguments.has("all") or arguments.has("guarantees"):
        return ()
    return arguments.words("user") or (own_name(),)


def _explained(arguments: Arguments) -> str:
    given = arguments.last("explain")
    if given is None:
        return ""
    if arguments.has("guarantees"):
        raise UsageError("contradiction", "`--explain` and `--guarantees` exclude each other", "give one of them")
    return given.value.strip() or own_name()


def _explain(arguments: Arguments, shares: Shares) -> None:
    if arguments.has("json"):
        write_json({"why": render_instants(shares.why)})
        return
    for line in shares.why.splitlines():
        write_sentence(sentence(line))


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _share_row(line: ShareInfo) -> Sequence[str]:
    return (
        f"{'  ' * line.depth}{line.account}",
        line.user,
        str(line.shares),
        _percent(line.norm_shares),
        f"{line.usage / 3600:.1f}",
        _percent(line.norm_usage),
        _level(line.level_fs),
        "" if line.fair_share is None else f"{line.fair_share:.3f}",
        str(line.gpus),
    )


def _percent(part: float) -> str:
    return f"{100 * part:.1f}%"


def _level(level_fs: float | None) -> str:
    """Format the fair-share level, which has no upper bound for a holder without usage."""
    return "-" if level_fs is None else f"{level_fs:.2f}" if level_fs < 1000 else ">999"


def _guarantee_row(line: ShareInfo) -> Sequence[str]:
    return (
        f"{'  ' * line.depth}{line.account}",
        str(line.gpus),
        "-" if line.guaranteed_gpus is None else str(line.guaranteed_gpus),
        str(line.borrowed_gpus),
        "idle" if line.may_borrow_gpus is None else str(line.may_borrow_gpus),
        "" if line.gives_back is None else str(line.gives_back),
    )


def _json(line: ShareInfo) -> dict[str, JsonValue]:
    return {
        "account": line.account,
        "user": line.user or None,
        "depth": line.depth,
        "shares": line.shares,
        "norm_shares": line.norm_shares,
        "usage_gpu_hours": line.usage / 3600,
        "norm_usage": line.norm_usage,
        "level_fs": line.level_fs,
        "fair_share": line.fair_share,
        "gpus": line.gpus,
        "guaranteed_gpus": line.guaranteed_gpus,
        "borrowed_gpus": line.borrowed_gpus,
        "may_borrow_gpus": line.may_borrow_gpus,
        "gives_back": line.gives_back,
    }


COMMAND = Command(
    name="gqshare",
    summary="Show the fair-share tree: shares and usage of accounts and users.",
    details=(
        "Shows your accounts, their parent accounts, and your own line. DUE is the part of the cluster that the "
        "shares grant; USED is the part of all decayed usage. LEVELFS compares both among siblings: below 1, more "
        "was used than is due. FAIRSHARE, between 0 and 1, is a factor of the priority."
        "\n\n"
        "With --guarantees: the GPUs that each account holds, how many of them are guaranteed or borrowed, how many "
        "more it may borrow (idle: as many as are idle), and the order in which borrowed GPUs are reclaimed."
    ),
    options=(
        Option(
            name="account",
            letter="A",
            aliases=("accounts",),
            metavar="NAMES",
            help="Only these accounts and those below them.",
        ),
        Option(name="user", letter="u", aliases=("users",), metavar="USERS", help="Include the lines of these users."),
        Option(name="all", letter="a", help="Include the lines of all users."),
        Option(name="guarantees", letter="g", help="Show borrowed GPUs and the order of reclaiming them."),
        Option(name="explain", metavar="USER", help="Explain this user's fair share in words."),
        Option(name="noheader", letter="h", help="Omit the header line."),
        JSON,
    ),
    run=run,
)
