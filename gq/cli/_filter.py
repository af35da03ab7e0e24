"""Which jobs: the filter options that `gqstat`, `gqdel` and `gqacct` share, and job ids as people write them."""

from __future__ import annotations

from gq.getopt import Arguments, Option, not_available, whole_number
from gq.model.nodelist import expand
from gq.model.state import parse_state_word
from gq.wire.client import JobFilter

MAX_JOB_ID = 2**63 - 1

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
ALL_STATES = "all"


def job_id(text: str) -> int:
    """``123``; ``ValueError`` for what is not a job id."""
    if "_" in text and text.replace("_", "").isdecimal():
        raise not_available(f"an array task such as `{text}`")
    try:
        return whole_number(text, 1, MAX_JOB_ID)
    except ValueError:
        raise ValueError(f"`{text}` is not a job id; use a number such as 123") from None


def job_filter(arguments: Arguments, job_ids: tuple[int, ...] = ()) -> JobFilter:
    """The filter that these options make; without states all states are meant."""
    users = arguments.words("user") + ((own_name(),) if arguments.has("me") else ())
    return JobFilter(
        job_ids=job_ids,
        users=users,
        names=arguments.words("name"),
        partitions=arguments.words("partition"),
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
