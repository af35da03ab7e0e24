"""Notifications: what a job requests, the site's settings, and the notices shown.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.near_miss import none_of, suggestion

MAIL, WEBHOOK, SLACK, COMMAND = "mail", "webhook", "slack", "command"
KINDS = (MAIL, WEBHOOK, SLACK, COMMAND)
DEFAULT = ""
"""The kind of a target that stands for the kind that ``[notify] default`` sets."""

BEGIN, END, FAIL, REQUEUE, TIMEOUT, INVALID_DEPEND = "begin", "end", "fail", "requeue", "timeout", "invalid_depend"
ARRAY_TASKS = "array_tasks"
ASK = "ask"
"""A user asks the job's owner for something; every target of the job is notified."""
TIMEOUTS = {"timeout_50": 0.5, "timeout_80": 0.8, "timeout_90": 0.9}
"""Event → fraction of the time limit that is used up."""
OCCASIONS = (BEGIN, END, FAIL, REQUEUE, TIMEOUT, INVALID_DEPEND, *TIMEOUTS)
ALL = (BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND)
USUAL = (END,)
"""The events of a target that names none."""
NONE = "none"
MAX_TARGETS = 8
MAX_TO = 2048
"""Maximum length of an address, a URL or a command."""

_PROGRAM = r"\s*(?:[A-Za-z_]\w*=[^\s'\"$`\\]*\s+)*(?P<quote>['\"]?)(?P<word>[\w./~+@,:%-]+)(?P=quote)(?=[\s;&|<>()]|$)"
"""Matches the program of a shell command, after its assignments, if the word is plain text."""

_SLURM = {
    "ALL": ALL, "NONE": (), "BEGIN": (BEGIN,), "END": (END,), "FAIL": (FAIL,), "REQUEUE": (REQUEUE,),
    "TIME_LIMIT": (TIMEOUT,), "TIME_LIMIT_50": ("timeout_50",), "TIME_LIMIT_80": ("timeout_80",),
    "TIME_LIMIT_90": ("timeout_90",), "INVALID_DEPEND": (INVALID_DEPEND,), "ARRAY_TASKS": (ARRAY_TASKS,),
    "STAGE_OUT": (),
}  # fmt: skip
"""Slurm's words → events; gq has no burst buffer, so ``STAGE_OUT`` has none."""


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A recipient of a job's notifications, and its events."""

    kind: str = DEFAULT
    to: str = ""
    """An address, a URL or a command; empty, for mail: the job's owner."""
    on: tuple[str, ...] = USUAL
    """Events of `OCCASIONS`; with ``array_tasks``, each task of an array notifies, not the array as a whole."""
    is_optional: bool = False
    """The job is queued even if the site sends no mail, which scripts for Slurm may request."""


class NotifySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table ``[notify]``."""

    webhook_hosts: tuple[str, ...] = ()
    """Hosts that webhooks may reach: ``NAME``, ``*.NAME`` or ``ADDRESS``, with or without ``:PORT``; empty: none."""
    webhook_networks: tuple[str, ...] = ()
    """Networks (``10.0.0.0/8``) outside of the public internet that the names of these hosts may resolve to."""
    mail: str = ""
    """Path of sendmail, or ``smtp://HOST:PORT``; empty: gq sends no mail."""
    mail_from: str = ""
    """The sender; empty: ``gq`` at this host."""
    mail_domain: str = ""
    """Domain appended to user names; empty: the mail system resolves user names."""
    default: str = ""
    """The target of jobs that request a notification without a kind: ``mail``, ``slack:URL``, …"""
    max_per_user: int = 200
    """Maximum number of undelivered notices of a user; further notices are dropped and counted."""
    retry_min_s: float = 30.0
    """Delay after the first failure, which then doubles."""
    retry_max_s: float = 3600.0
    give_up_s: float = 86_400.0
    """Seconds after the event at which a notice is given up."""
    timeout_s: float = 10.0
    """Timeout of one delivery."""


class NoticeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice as commands show it."""

    notice_id: int
    user: str
    job_id: int = 0
    """0: the notice is not about a job."""
    on: str = ""
    kind: str = ""
    to: str = ""
    """The recipient; of a URL only the host, since the rest may be a secret."""
    state: str = "waiting"
    """``waiting``, ``delivered`` or ``given_up``."""
    queued_at: float = 0.0
    attempts: int = 0
    next_at: float | None = None
    ended_at: float | None = None
    why: str = ""
    """Why the last attempt failed."""
    text: str = ""


class EventInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the change log as commands show it."""

    seq: int
    at: float
    type: str
    job_id: int | None = None
    node: str = ""
    body: str = ""
    """The whole event as JSON, without secrets."""


def parse_target(text: str) -> Target:
    """Parse ``mail``, ``mail:ada@example.org`` or ``webhook:https://…``; ``ValueError`` with a sentence."""
    kind, _, to = text.strip().partition(":")
    if kind not in KINDS:
        way_out = suggestion(kind, KINDS, "for example mail or webhook:https://…")
        raise ValueError(f"`{text[:60]}` is not one of {', '.join(KINDS)}; {way_out}")
    if kind != MAIL and not to.strip():
        what = "a command" if kind == COMMAND else "a URL"
        raise ValueError(f"`{kind}` needs {what}; write {kind}:{'PROGRAM' if kind == COMMAND else 'https://…'}")
    if kind == COMMAND:
        refuse_relative(to.strip())
    return Target(kind=kind, to=to.strip())


def refuse_relative(command: str) -> None:
    """Raise ``ValueError`` for a command whose program has a relative path."""
    program = program_of(command)
    if "/" in program and program[0] not in "/~":
        message = f"`{program[:80]}` is a relative path, but the command may run on any node of the cluster"
        raise ValueError(f"{message}; write the full path, as in command:/home/ada/bin/collect")


def program_of(command: str) -> str:
    """Return the word of a shell command that names its program; empty if only the shell knows it, as in ``$TOOL``."""
    import re  # few jobs notify by a command

    match = re.match(_PROGRAM, command)
    return match["word"] if match else ""


def parse_occasions(text: str) -> tuple[str, ...]:
    """Parse ``begin,end,timeout_80``, ``all`` or ``none``; ``ValueError`` with a sentence."""
    events_of = {event: (event,) for event in (*OCCASIONS, ARRAY_TASKS)} | {"all": ALL, NONE: ()}
    return _occasions(text.lower().replace("-", "_"), events_of)


def parse_mail_type(text: str) -> tuple[str, ...]:
    """Parse Slurm's ``--mail-type``; ``ValueError`` with a sentence."""
    return _occasions(text.upper(), _SLURM)


def _occasions(text: str, events_of: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in events_of:
            raise ValueError(none_of(word, events_of))
    if len(words) > 1 and any(word.lower() == NONE for word in words):
        raise ValueError(f"`{text[:60]}` combines none with other values; remove one of them")
    return in_order(event for word in words for event in events_of[word])


def in_order(occasions: Iterable[str]) -> tuple[str, ...]:
    """Return each event once, in the order of `OCCASIONS`."""
    requested = set(occasions)
    return tuple(event for event in (*OCCASIONS, ARRAY_TASKS) if event in requested)


def shown(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Return the targets as users other than the job's owner may see them."""
    return tuple([msgspec.structs.replace(target, to=host_only(target.kind, target.to)) for target in targets])


def host_only(kind: str, to: str) -> str:
    """Return the recipient as users other than its owner may see it: of a URL the scheme and the host."""
    if kind not in (WEBHOOK, SLACK):
        return to
    scheme, _, rest = to.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/…"
