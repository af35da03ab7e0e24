"""Who is told of what, and how: what a job asks for, the settings, and what was told.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gq.near_miss import none_of, suggestion

MAIL, WEBHOOK, SLACK, COMMAND = "mail", "webhook", "slack", "command"
KINDS = (MAIL, WEBHOOK, SLACK, COMMAND)
DEFAULT = ""
"""As the kind of a target: what ``[notify] default`` says."""

BEGIN, END, FAIL, REQUEUE, TIMEOUT, INVALID_DEPEND = "begin", "end", "fail", "requeue", "timeout", "invalid_depend"
ARRAY_TASKS = "array_tasks"
ASK = "ask"
"""Somebody asks a favour: told to all whom the job tells anything."""
TIMEOUTS = {"timeout_50": 0.5, "timeout_80": 0.8, "timeout_90": 0.9}
"""Event → share of the time limit that is used up."""
OCCASIONS = (BEGIN, END, FAIL, REQUEUE, TIMEOUT, INVALID_DEPEND, *TIMEOUTS)
ALL = (BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND)
USUAL = (END,)
"""Where nothing is said of when."""
NONE = "none"
MAX_TARGETS = 8
MAX_TO = 2048
"""Characters of an address, a URL or a command."""

_PROGRAM = r"\s*(?:[A-Za-z_]\w*=[^\s'\"$`\\]*\s+)*(?P<quote>['\"]?)(?P<word>[\w./~+@,:%-]+)(?P=quote)(?=[\s;&|<>()]|$)"
"""The first word of a shell command behind its assignments, where it is plain text."""

_SLURM = {
    "ALL": ALL, "NONE": (), "BEGIN": (BEGIN,), "END": (END,), "FAIL": (FAIL,), "REQUEUE": (REQUEUE,),
    "TIME_LIMIT": (TIMEOUT,), "TIME_LIMIT_50": ("timeout_50",), "TIME_LIMIT_80": ("timeout_80",),
    "TIME_LIMIT_90": ("timeout_90",), "INVALID_DEPEND": (INVALID_DEPEND,), "ARRAY_TASKS": (ARRAY_TASKS,),
    "STAGE_OUT": (),
}  # fmt: skip
"""Slurm's words; there is no burst buffer whose stage-out could be told of."""


class Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One way to tell a job's owner, and of what."""

    kind: str = DEFAULT
    to: str = ""
    """An address, a URL or a command; of mail empty: the owner."""
    on: tuple[str, ...] = USUAL
    """Of `OCCASIONS`, and ``array_tasks``: of each task of an array, not of all together."""
    is_optional: bool = False
    """As scripts for Slurm ask for mail: where the site sends none, the job is queued all the same."""


class Notifying(msgspec.Struct, frozen=True, kw_only=True):
    """``[notify]``"""

    webhook_hosts: tuple[str, ...] = ()
    """Where webhooks may go: ``NAME``, ``*.NAME`` or ``ADDRESS``, each with ``:PORT`` or without; empty: nowhere."""
    webhook_networks: tuple[str, ...] = ()
    """Addresses (``10.0.0.0/8``) that names of these hosts may stand for though they are not of the public internet."""
    mail: str = ""
    """Path of sendmail, or ``smtp://HOST:PORT``; empty: no mail is sent."""
    mail_from: str = ""
    """The sender; empty: ``gq`` at this host."""
    mail_domain: str = ""
    """Appended to names of users; empty: the mail system knows them."""
    default: str = ""
    """For who does not say how: ``mail``, ``slack:URL``, …"""
    max_per_user: int = 200
    """Notices that may wait to be delivered; what is more is dropped, and counted."""
    retry_min_s: float = 30.0
    """After the first failure, then doubling."""
    retry_max_s: float = 3600.0
    give_up_s: float = 86_400.0
    """So long after what it tells of."""
    timeout_s: float = 10.0
    """Of one delivery."""


class NoticeInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A notice as it is shown."""

    notice_id: int
    user: str
    job_id: int = 0
    """0: it is of no job."""
    on: str = ""
    kind: str = ""
    to: str = ""
    """Of a URL only the host: the rest may be a secret."""
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
    """A line of the change log as it is shown."""

    seq: int
    at: float
    type: str
    job_id: int | None = None
    node: str = ""
    body: str = ""
    """JSON: the whole of it, less what opens doors."""


def parse_target(text: str) -> Target:
    """``mail``, ``mail:ada@example.org``, ``webhook:https://…``; ``ValueError`` with a sentence."""
    kind, _, to = text.strip().partition(":")
    if kind not in KINDS:
        way_out = suggestion(kind, KINDS, "for example mail or webhook:https://…")
        raise ValueError(f"`{text[:60]}` names none of {', '.join(KINDS)}; {way_out}")
    if kind != MAIL and not to.strip():
        what = "a command" if kind == COMMAND else "a URL"
        raise ValueError(f"`{kind}` needs {what}; write {kind}:{'PROGRAM' if kind == COMMAND else 'https://…'}")
    if kind == COMMAND:
        refuse_relative(to.strip())
    return Target(kind=kind, to=to.strip())


def refuse_relative(command: str) -> None:
    """``ValueError`` for a command whose program has a relative path."""
    program = program_of(command)
    if "/" in program and program[0] not in "/~":
        message = f"`{program[:80]}` is a relative path, and the command runs on any node of the cluster"
        raise ValueError(f"{message}; write the whole path, as in command:/home/ada/bin/collect")


def program_of(command: str) -> str:
    """The word of a shell command that names its program; empty where only the shell can tell, as in ``$TOOL x``."""
    import re  # few jobs tell anybody by a command

    match = re.match(_PROGRAM, command)
    return match["word"] if match else ""


def parse_occasions(text: str) -> tuple[str, ...]:
    """``begin,end,timeout_80``, ``all``, ``none``; ``ValueError`` with a sentence."""
    known = {one: (one,) for one in (*OCCASIONS, ARRAY_TASKS)} | {"all": ALL, NONE: ()}
    return _occasions(text.lower().replace("-", "_"), known)


def parse_mail_type(text: str) -> tuple[str, ...]:
    """Slurm's ``--mail-type``; ``ValueError`` with a sentence."""
    return _occasions(text.upper(), _SLURM)


def _occasions(text: str, known: dict[str, tuple[str, ...]]) -> tuple[str, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in known:
            raise ValueError(none_of(word, known))
    if len(words) > 1 and any(word.lower() == NONE for word in words):
        raise ValueError(f"`{text[:60]}` says none and something; leave one of them out")
    return in_order(one for word in words for one in known[word])


def in_order(occasions: Iterable[str]) -> tuple[str, ...]:
    """Each once, in the order of the table."""
    said = set(occasions)
    return tuple(one for one in (*OCCASIONS, ARRAY_TASKS) if one in said)


def shown(targets: Iterable[Target]) -> tuple[Target, ...]:
    """As others than their owner may see them."""
    return tuple([msgspec.structs.replace(one, to=host_only(one.kind, one.to)) for one in targets])


def host_only(kind: str, to: str) -> str:
    """Of a URL: what may be shown to others than its owner."""
    if kind not in (WEBHOOK, SLACK):
        return to
    scheme, _, rest = to.partition("://")
    return f"{scheme}://{rest.partition('/')[0].partition('?')[0]}/…"
