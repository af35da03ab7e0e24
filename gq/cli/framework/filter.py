"""Which jobs: the filter options that `gqstat`, `gqdel`, `gqacct` and `gqprio` share.

Owns what is said of names in a filter that the cluster does not know.
"""

from __future__ import annotations

from collections.abc import Collection

from gq.cli.framework.connection import ask, ask_accounts
from gq.cli.framework.job_words import NamedJobs
from gq.connection.client import Client
from gq.errors import Refusal
from gq.model.nodelist import expand
from gq.model.state import parse_state_word
from gq.near_miss import suggestion
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.wire.client import Cluster, GetCluster, JobFilter, ListAccounts, ListNodes, ListShares, Nodes, Shares

ME = Option(name="me", help="Only your own jobs.")
USER = Option(name="user", letter="u", aliases=("users",), metavar="USERS", help="Only jobs of these users.")
PARTITION = Option(
    name="partition", letter="p", aliases=("partitions",), metavar="NAMES", help="Only jobs of these partitions."
)
NAME = Option(name="name", letter="n", metavar="NAMES", help="Only jobs with these names.")
STATES = Option(
    name="states",
    letter="t",
    aliases=("state",),
    metavar="STATES",
    help="Only jobs in these states (words or letters).",
)
NODELIST = Option(name="nodelist", letter="w", metavar="NODES", help="Only jobs on these nodes.")
ACCOUNT = Option(
    name="account", letter="A", aliases=("accounts",), metavar="NAMES", help="Only jobs of these accounts."
)
QOS = Option(name="qos", letter="q", metavar="NAMES", help="Only jobs with these QOS.")
ALL_STATES = "all"
NO_JOBS = NamedJobs((), {})


def job_filter(arguments: Arguments, jobs: NamedJobs = NO_JOBS) -> JobFilter:
    """The filter that these options make; without states all states are meant."""
    users = tuple(map(_user_name, arguments.words("user"))) + ((own_name(),) if arguments.has("me") else ())
    return JobFilter(
        job_ids=jobs.job_ids,
        tasks=jobs.tasks,
        users=users,
        names=arguments.words("name"),
        partitions=arguments.words("partition"),
        accounts=arguments.words("account"),
        qos=arguments.words("qos"),
        states=states(arguments),
        nodes=arguments.gather("nodelist", expand),
    )


def _user_name(word: str) -> str:
    """The name of a user given by name or, as squeue takes it, by uid; a uid that this host does not know stays."""
    import pwd

    try:
        return pwd.getpwuid(int(word)).pw_name if word.isascii() and word.isdigit() else word
    except (KeyError, OverflowError):
        return word


def own_name() -> str:
    import os
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def states(arguments: Arguments) -> tuple[str, ...]:
    """The states asked for as long words; empty for ``all`` and where none were."""
    if ALL_STATES in (word.lower() for word in arguments.words("states")):
        return ()
    return arguments.items("states", parse_state_word)


# ── names that do not exist ───────────────────────────────────────────────────────────────────────────────────


def refuse_unknown_names(client: Client, asked: JobFilter) -> None:
    """`Refusal` for the first name in a filter that the cluster does not know.

    A command calls this when no job matches: jobs may still have a partition, or a node, that has been removed.
    """
    if asked.partitions:
        known = [partition.partition for partition in ask(client, GetCluster(), Cluster).info.partitions]
        refuse_unknown_partitions(asked.partitions, known)
    if asked.nodes:
        ask(client, ListNodes(names=asked.nodes), Nodes)  # the controller names the node that it does not know
    if users := tuple(name for name in asked.users if not is_known_here(name)):
        _refuse_unknown_users(client, users)
    if asked.accounts:
        ask(client, ListShares(accounts=asked.accounts), Shares)  # likewise
    for name in asked.qos:
        if name not in [qos.name for qos in ask_accounts(client, ListAccounts(qos=(name,))).qos]:
            all_names = [qos.name for qos in ask_accounts(client, ListAccounts()).qos]
            hint = suggestion(name, all_names, "`gqctl qos show` lists all")
            raise Refusal("unknown_qos", f"QOS `{name}` does not exist", hint)


def refuse_unknown_partitions(names: Collection[str], known: Collection[str]) -> None:
    """`Refusal` for the first of the names that is no partition, with the name that is meant."""
    for name in names:
        if name not in known:
            there = ", ".join(f"`{partition}`" for partition in known)
            hint = suggestion(name, known, f"there are {there}")
            raise Refusal("unknown_partition", f"partition `{name}` does not exist", hint)


def is_known_here(name: str) -> bool:
    """Whether this host has a user of that name."""
    import pwd

    try:
        pwd.getpwnam(name)
    except (KeyError, ValueError):
        return False
    return True


def _refuse_unknown_users(client: Client, users: tuple[str, ...]) -> None:
    """Raise `Refusal` for a user unknown on this host who is in no account of the controller either."""
    try:
        ask(client, ListShares(users=users), Shares)
    except Refusal as refusal:
        if refusal.code != "unknown_user":
            raise
        message = refusal.message.replace("is in no account", "does not exist")
        is_close = refusal.hint.startswith("did you mean")
        hint = refusal.hint if is_close else "no user of this host and no account of the cluster has this name"
        raise Refusal(refusal.code, message, hint) from None
