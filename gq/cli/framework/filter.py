"""Which jobs: the filter options that `gqstat`, `gqdel`, `gqacct` and `gqprio` share."""

from __future__ import annotations

from gq.cli.framework.operands import NamedJobs
from gq.model.nodelist import expand
from gq.model.state import parse_state_word
from gq.request.getopt import Arguments, Option
from gq.wire.client import JobFilter

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
    users = arguments.words("user") + ((own_name(),) if arguments.has("me") else ())
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


def own_name() -> str:
    import os
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def states(arguments: Arguments) -> tuple[str, ...]:
    """The states asked for as long words; empty for ``all`` and where none were."""
    if ALL_STATES in (word.lower() for word in arguments.words("states")):
        return ()
    return arguments.items("states", parse_state_word)
