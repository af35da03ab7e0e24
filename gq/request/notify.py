"""Reads ``--notify``, ``--notify-on``, ``--mail-type`` and ``--mail-user`` into notification targets.  Pure.

The controller knows and checks which hosts and addresses are allowed.
"""

from __future__ import annotations

from gq.errors import UsageError
from gq.model.notice import ARRAY_TASKS, MAIL, MAX_TARGETS, MAX_TO, USUAL, Target, in_order
from gq.model.notice import parse_mail_type as mail_type
from gq.model.notice import parse_occasions as occasions
from gq.model.notice import parse_target as target
from gq.request.getopt import Arguments
from gq.request.option import bad_value

OPTIONS = ("notify", "notify-on", "mail-type", "mail-user")


def targets(arguments: Arguments) -> tuple[Target, ...]:
    """Return the targets of all four options; empty: no notifications."""
    found = (*_by_notify(arguments), *_by_mail_type(arguments))
    if len(found) > MAX_TARGETS:
        message = f"`--notify` is given {len(found)} times; a job can have at most {MAX_TARGETS} targets"
        raise UsageError("bad_value", message, "remove some, or let one target forward to the others")
    return found


def _by_notify(arguments: Arguments) -> tuple[Target, ...]:
    given = arguments.last("notify-on")
    found = tuple([_target(arguments, index) for index in range(len(arguments.every("notify")))])
    events = arguments.read("notify-on", occasions)
    if events is None:
        return found
    if events == () or given is None:
        return ()
    on = in_order((*events, *USUAL)) if events == (ARRAY_TASKS,) else events
    return tuple([Target(kind=target.kind, to=target.to, on=on) for target in found or (Target(),)])


def _target(arguments: Arguments, index: int) -> Target:
    given = arguments.every("notify")[index]
    try:
        found = target(given.value)
    except ValueError as error:
        raise bad_value(given, str(error)) from error
    if len(found.to) > MAX_TO or not found.to.isprintable():
        raise bad_value(given, f"the target must have 1 to {MAX_TO} printable characters")
    return found


def _by_mail_type(arguments: Arguments) -> tuple[Target, ...]:
    """Return the target of ``--mail-type``; as in Slurm, ``--mail-user`` alone has no effect."""
    on = arguments.read("mail-type", mail_type)
    if not on or set(on) == {ARRAY_TASKS}:
        return ()
    return (Target(kind=MAIL, to=arguments.text("mail-user").strip(), on=on, is_optional=True),)
