"""`gqctl account VERB` and `gqctl user VERB`: teams in a tree, and who is in them."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, ask_accounts, controller
from gq.cli.framework.filter import is_known_here
from gq.cli.framework.operands import operands
from gq.cli.framework.output import Column, JsonValue, write_json_list, write_table
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.account import AccountInfo, MemberInfo
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.wire.client import Accounts, Done, ListAccounts, RemoveAccount, RemoveMember, SetAccount, SetMember

Readers = dict[str, tuple[str, Callable[[str], object]]]
"""Field → the option that says it, and how that is read."""

NONE = "none"
IDLE = "idle"
_MAX = 2**31 - 1

_ACCOUNT_COLUMNS = (
    Column("ACCOUNT"),
    Column("PARENT"),
    Column("SHARES", is_number=True),
    Column("GUARANTEED", is_number=True),
    Column("BORROWS", is_number=True),
    Column("GROUP"),
    Column("QOS"),
    Column("COORDINATORS", is_wide=True),
    Column("DESCRIPTION", is_wide=True),
)
_MEMBER_COLUMNS = (
    Column("USER"), Column("ACCOUNT"), Column("SHARES", is_number=True), Column("DEFAULT"), Column("FROM")
)  # fmt: skip


def said(arguments: Arguments, readers: Readers) -> dict[str, object]:
    """The fields that the options say, and no others."""
    return {field: arguments.read(name, reader) for field, (name, reader) in readers.items() if arguments.has(name)}


def names(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def count(text: str) -> int:
    return whole_number(text, 0, _MAX)


def count_or(word: str) -> Callable[[str], int | None]:
    """A number, or the word for there being none."""
    return lambda text: None if text.strip().lower() == word else count(text)


def a_name(text: str) -> str:
    """Read an account or user name; the controller knows which names exist."""
    if not text.strip() or "=" in text:
        raise ValueError(f"`{text}` is not a name; write options with --, as in --shares=2")
    return text.strip()


# ── accounts ──────────────────────────────────────────────────────────────────────────────────────────────────

_ACCOUNT: Readers = {
    "parent": ("parent", str),
    "description": ("description", str),
    "shares": ("shares", count),
    "guaranteed_gpus": ("guarantee", count_or(NONE)),
    "borrow_gpus": ("borrow", count_or(IDLE)),
    "group": ("group", str),
    "coordinators": ("coordinator", names),
    "default_qos": ("default-qos", str),
}
_ACCOUNT_OPTIONS = (
    Option(name="parent", metavar="NAME", help="Parent account (default: root)."),
    Option(name="shares", metavar="COUNT", help="Shares of the parent's part, relative to its siblings (1)."),
    Option(name="guarantee", metavar="COUNT|none", help="GPUs guaranteed to its jobs; borrowed GPUs are reclaimed."),
    Option(
        name="borrow",
        metavar="COUNT|idle",
        help="GPUs that it may borrow beyond the guarantee (default: all idle ones).",
    ),
    Option(name="group", metavar="GROUP", help="Unix group whose members belong to the account."),
    Option(name="coordinator", metavar="USERS", help="Users who may manage its users, child accounts and jobs."),
    Option(name="default-qos", metavar="NAME", help="Default QOS of its jobs (default: its parent's)."),
    Option(name="description", metavar="TEXT", help="Description of the account."),
)


def _set_account(is_new: bool) -> Callable[[Arguments], int]:
    def run(arguments: Arguments) -> int:
        [name] = operands(arguments, a_name, "NAME", at_most=1)
        fields = said(arguments, _ACCOUNT)
        refuse_no_change(fields, is_new)
        with controller() as client:
            base = AccountInfo(name=name) if is_new else _account(client, name)
            ask(client, SetAccount(account=msgspec.structs.replace(base, **fields), is_new=is_new), Done)
        return 0

    return run


def refuse_no_change(fields: dict[str, object], is_new: bool) -> None:
    if not is_new and not fields:
        raise UsageError("missing_option", "no change given", "--help lists the options")


def _account(client: Client, name: str) -> AccountInfo:
    for account in ask_accounts(client, ListAccounts(accounts=(name,))).accounts:
        if account.name == name:
            return account
    raise Refusal("unknown_account", f"account `{name}` does not exist", "`gqctl account show` lists the accounts")


def _remove_account(arguments: Arguments) -> int:
    found = operands(arguments, a_name, "NAME")
    with controller() as client:
        for name in found:
            ask(client, RemoveAccount(name=name), Done)
    return 0


def _show_accounts(arguments: Arguments) -> int:
    wanted = tuple(name for operand in arguments.operands for name in names(operand))
    with controller() as client:
        found = ask_accounts(client, ListAccounts(accounts=wanted)).accounts
    accounts = [account for account in found if not wanted or account.name in wanted]
    refuse_missing("account", wanted, [account.name for account in accounts])
    if arguments.has("json"):
        write_json_list(map(_account_json, accounts))
    else:
        write_table(_ACCOUNT_COLUMNS, [map(_account_row, accounts)])
    return 0


def refuse_missing(what: str, wanted: tuple[str, ...], found: list[str]) -> None:
    for name in wanted:
        if name not in found:
            raise Refusal(f"unknown_{what}", f"{what} `{name}` does not exist", f"`gqctl {what} show` lists all")


def _account_row(account: AccountInfo) -> tuple[str, ...]:
    return (
        account.name,
        account.parent if account.parent != account.name else "",
        str(account.shares),
        "-" if account.guaranteed_gpus is None else str(account.guaranteed_gpus),
        IDLE if account.borrow_gpus is None else str(account.borrow_gpus),
        account.group or "-",
        account.default_qos or "-",
        ",".join(account.coordinators) or "-",
        account.description,
    )


def _account_json(account: AccountInfo) -> dict[str, JsonValue]:
    return {
        "account": account.name,
        "parent": account.parent,
        "description": account.description,
        "shares": account.shares,
        "guaranteed_gpus": account.guaranteed_gpus,
        "borrow_gpus": account.borrow_gpus,
        "group": account.group,
        "coordinators": account.coordinators,
        "default_qos": account.default_qos,
    }


# ── users in them ─────────────────────────────────────────────────────────────────────────────────────────────

_IN = Option(name="account", letter="A", metavar="NAME", help="Account of the users (required).")
_MEMBER_OPTIONS = (
    _IN,
    Option(name="shares", metavar="COUNT", help="Shares of the account's part, relative to its other users (1)."),
    Option(name="default", help="Make it the default account of these users."),
)


def _its_account(arguments: Arguments) -> str:
    if not arguments.has("account"):
        raise UsageError("missing_option", "no account given", "add --account=NAME")
    return arguments.read("account", a_name) or ""


def _set_member(is_new: bool) -> Callable[[Arguments], int]:
    def run(arguments: Arguments) -> int:
        users = operands(arguments, a_name, "USER")
        account = _its_account(arguments)
        fields = said(arguments, {"shares": ("shares", count)})
        if arguments.has("default"):
            fields["is_default"] = True
        refuse_no_change(fields, is_new)
        with controller() as client:
            for user in users:
                base = MemberInfo(user=user, account=account) if is_new else _member(client, user, account)
                ask(client, SetMember(member=msgspec.structs.replace(base, **fields), is_new=is_new), Done)
                warn_of_stranger(user)
        return 0

    return run


def warn_of_stranger(user: str) -> None:
    """The controller's host may know who is not known here, and who is not known yet may come: nothing is refused."""
    if not is_known_here(user):
        warn(f"warning: user `{user}` does not exist on this host: check the name")


def _member(client: Client, user: str, account: str) -> MemberInfo:
    for member in ask_accounts(client, ListAccounts(users=(user,))).members:
        if (member.user, member.account) == (user, account):
            return member
    message = f"user `{user}` is not in account `{account}`"
    raise Refusal("unknown_member", message, f"add the user with `gqctl user add {user} --account={account}`")


def _remove_member(arguments: Arguments) -> int:
    users = operands(arguments, a_name, "USER")
    account = _its_account(arguments)
    with controller() as client:
        for user in users:
            ask(client, RemoveMember(user=user, account=account), Done)
    return 0


def _show_members(arguments: Arguments) -> int:
    users = tuple(name for operand in arguments.operands for name in names(operand))
    accounts = arguments.words("account")
    with controller() as client:
        answer = ask_accounts(client, ListAccounts(users=users, accounts=accounts))
    grouped = {account.name for account in answer.accounts if account.group}
    members = [
        member
        for member in answer.members
        if (not users or member.user in users) and (not accounts or member.account in accounts)
    ]
    if not accounts:
        refuse_missing("user", users, [member.user for member in members])
    members = [_as_it_is(member, answer) for member in members if (member.user, member.account) not in answer.past]
    if arguments.has("json"):
        write_json_list(map(_member_json, members))
    else:
        write_table(_MEMBER_COLUMNS, [[_member_row(member, member.account in grouped) for member in members]])
    return 0


def _as_it_is(member: MemberInfo, answer: Accounts) -> MemberInfo:
    """The default account of a user for whom none was named is the first that they may use."""
    default = answer.defaults.get(member.user)
    return member if default is None else msgspec.structs.replace(member, is_default=default == member.account)


def _member_row(member: MemberInfo, is_grouped: bool) -> tuple[str, ...]:
    """Show a member; a user who is in no group of the account any more is listed because of earlier jobs."""
    default = "yes" if member.is_default else "no"
    of = ("group" if is_grouped else "jobs") if member.from_group else "hand"
    return member.user, member.account, str(member.shares), default, of


def _member_json(member: MemberInfo) -> dict[str, JsonValue]:
    return {
        "user": member.user,
        "account": member.account,
        "shares": member.shares,
        "is_default": member.is_default,
        "from_group": member.from_group,
    }


def verbs() -> dict[str, Command]:
    return {
        "add": Command(
            name="gqctl account add",
            summary="Add an account.",
            operands="NAME",
            options=_ACCOUNT_OPTIONS,
            run=_set_account(is_new=True),
        ),
        "set": Command(
            name="gqctl account set",
            summary="Change an account; other settings stay.",
            operands="NAME",
            options=_ACCOUNT_OPTIONS,
            run=_set_account(is_new=False),
        ),
        "show": Command(
            name="gqctl account show",
            summary="Show accounts, parents first.",
            operands="[NAME...]",
            options=(JSON,),
            run=_show_accounts,
        ),
        "remove": Command(
            name="gqctl account remove",
            summary="Remove accounts that have no users, jobs or child accounts.",
            operands="NAME...",
            run=_remove_account,
        ),
    }


def user_verbs() -> dict[str, Command]:
    return {
        "add": Command(
            name="gqctl user add",
            summary="Add users to an account.",
            operands="USER...",
            options=_MEMBER_OPTIONS,
            run=_set_member(is_new=True),
        ),
        "set": Command(
            name="gqctl user set",
            summary="Change the settings of users in an account.",
            operands="USER...",
            options=_MEMBER_OPTIONS,
            run=_set_member(is_new=False),
        ),
        "show": Command(
            name="gqctl user show",
            summary="Show users and their accounts.",
            operands="[USER...]",
            options=(Option(name="account", letter="A", metavar="NAMES", help="Only users of these accounts."), JSON),
            run=_show_members,
        ),
        "remove": Command(
            name="gqctl user remove",
            summary="Remove users from an account in which they have no jobs.",
            operands="USER...",
            options=(_IN,),
            run=_remove_member,
        ),
    }
