"""Checks of ``[notify]`` in gq.toml, and of targets against it.  Pure."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from gq.config.webhook import is_listed, is_metadata, known_problem, parse_rule, parse_url
from gq.errors import Refusal
from gq.model.ids import NAME
from gq.model.notice import COMMAND, MAIL, MAX_TO, SLACK, WEBHOOK, NotifySettings, Target, parse_target, refuse_relative

SMTP_PORT = 25
_ADDRESS = r"[A-Za-z0-9_][A-Za-z0-9._%+=/-]{0,63}(@[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)?"
_TABLE = "[notify] in gq.toml"


def problem_of(settings: NotifySettings) -> tuple[str, str] | None:
    """Return (key, error) of the first value with an error, or None."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, int | float) and not 0 < value < 2**31:
            return name, f"is {value:g}; it must be more than 0"
        try:
            _CHECKS.get(name, _nothing)(settings)
        except ValueError as error:
            return name, str(error)
    return None


def _nothing(settings: NotifySettings) -> None:
    """Accept any value."""


def _check_hosts(settings: NotifySettings) -> None:
    for rule in settings.webhook_hosts:
        if is_metadata(parse_rule(rule).host):
            raise ValueError(f"`{rule[:60]}` is the address of cloud credentials: no webhook may be sent there")


def _check_networks(settings: NotifySettings) -> None:
    for network in settings.webhook_networks:
        ipaddress.ip_network(network)


def _check_mail(settings: NotifySettings) -> None:
    if settings.mail and not settings.mail.startswith("/"):
        smtp_server(settings.mail)


def _check_sender(settings: NotifySettings) -> None:
    if settings.mail_from and not is_mail_address(settings.mail_from):
        raise ValueError(f"`{settings.mail_from[:60]}` is not an address")


def _check_domain(settings: NotifySettings) -> None:
    if settings.mail_domain and not NAME.fullmatch(settings.mail_domain):
        raise ValueError(f"`{settings.mail_domain[:60]}` is not a domain name")


def _check_default(settings: NotifySettings) -> None:
    if settings.default:
        refusal = refusal_of(settings, parse_target(settings.default))
        if refusal is not None:
            raise ValueError(f"`{settings.default[:60]}`: {refusal.message}")


_CHECKS = {
    "webhook_hosts": _check_hosts, "webhook_networks": _check_networks, "mail": _check_mail,
    "mail_from": _check_sender, "mail_domain": _check_domain, "default": _check_default,
}  # fmt: skip


def smtp_server(text: str) -> tuple[str, int]:
    """Parse ``smtp://HOST:PORT``; ``ValueError`` with a sentence."""
    parts = urlsplit(text)
    if parts.scheme != "smtp" or not parts.hostname or parts.path or parts.query or "@" in parts.netloc:
        raise ValueError(f"`{text[:60]}` is neither the path of sendmail nor smtp://HOST:PORT")
    return parts.hostname, parts.port or SMTP_PORT


def is_mail_address(text: str) -> bool:
    """Whether the text is one plain address, which cannot begin a header, a second address or an option."""
    return len(text) <= MAX_TO and re.fullmatch(_ADDRESS, text) is not None


def refusal_of(settings: NotifySettings, target: Target) -> Refusal | None:
    """Return why this cluster cannot notify the target, or None."""
    match target.kind:
        case "":
            return _refusal(
                "no notification target is given, and this cluster has no default",
                "add --notify=mail or another target",
            )
        case _ if target.kind == MAIL:
            return _of_mail(settings, target)
        case _ if target.kind in (WEBHOOK, SLACK):
            return _of_webhook(settings, target)
        case _ if target.kind == COMMAND:
            return _of_command(target)
        case _:
            return _refusal(
                f"`{target.kind[:20]}` is not a kind of notification", "use mail, webhook, slack or command"
            )


def _of_command(target: Target) -> Refusal | None:
    if not 0 < len(target.to) <= MAX_TO or not target.to.isprintable():
        return _refusal(f"the command must have 1 to {MAX_TO} printable characters", "")
    try:
        refuse_relative(target.to)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        return _refusal(message, hint)
    return None


def _of_mail(settings: NotifySettings, target: Target) -> Refusal | None:
    if not settings.mail:
        return _refusal("this cluster sends no mail", f"set `mail` of {_TABLE} to turn it on")
    if target.to and not is_mail_address(target.to):
        return _refusal(f"`{target.to[:60]!a}` is not a mail address", "for example ada@example.org")
    return None


def _of_webhook(settings: NotifySettings, target: Target) -> Refusal | None:
    try:
        url = parse_url(target.to)
    except ValueError as error:
        return _refusal(f"{target.kind}: {error}", f"for example {target.kind}:https://hooks.example.org/gq")
    if not settings.webhook_hosts:
        return _refusal("this cluster sends no webhooks", f"`webhook_hosts` of {_TABLE} lists the allowed hosts")
    if not is_listed(settings.webhook_hosts, url):
        message = f"webhooks to {url.authority} are not allowed"
        return _refusal(message, f"`webhook_hosts` of {_TABLE} lists the allowed hosts; ask an administrator")
    if problem := known_problem(url, settings.webhook_networks):
        message = f"webhooks to {url.authority} are not allowed: {problem}"
        return _refusal(message, f"`webhook_networks` of {_TABLE} lists the allowed addresses; ask an administrator")
    return None


def _refusal(message: str, hint: str) -> Refusal:
    return Refusal("bad_notify", f"--notify: {message}", hint)
