"""Sends one mail, by sendmail or SMTP, in a thread of its own.

Addresses must pass `gq.config.notify_settings.is_mail_address`, and `email` refuses newlines in headers, so that no
text can add a header or a recipient, and no address is taken for an option.
"""

from __future__ import annotations

import smtplib
import socket
import subprocess
from email.message import EmailMessage
from typing import Any

import msgspec

from gq.config.notify_settings import is_mail_address, smtp_server
from gq.model.notice import NotifySettings
from gqd.shell.notify.webhook import NotDelivered

SUBJECT_CHARACTERS = 150


def send(settings: NotifySettings, user: str, to: str, body: str) -> None:
    """Send the mail, and return when the mail system has accepted it; raises `NotDelivered` otherwise."""
    if not settings.mail:
        raise NotDelivered("`notify.mail` is no longer set", is_final=True)
    address = _address(settings, to or user)
    sender = settings.mail_from or f"gq@{socket.gethostname()}"
    message = compose(sender, address, body)
    try:
        if settings.mail.startswith("/"):
            _by_sendmail(settings, sender, address, message)
        else:
            _by_smtp(settings, sender, address, message)
    except (OSError, smtplib.SMTPException, subprocess.SubprocessError) as error:
        raise NotDelivered(f"the mail to {address} was not accepted: {error}"[:400]) from None


def _address(settings: NotifySettings, to: str) -> str:
    address = f"{to}@{settings.mail_domain}" if settings.mail_domain and "@" not in to else to
    if not is_mail_address(address):
        raise NotDelivered(f"{address[:80]!a} is not a mail address", is_final=True)
    return address


def compose(sender: str, address: str, body: str) -> EmailMessage:
    said: dict[str, Any] = msgspec.json.decode(body)
    text = str(said.get("text", ""))
    message = EmailMessage()
    message["From"], message["To"] = sender, address
    message["Subject"] = _plain(f"[{said.get('cluster', 'gq')}] {text}")[:SUBJECT_CHARACTERS]
    message["Auto-Submitted"] = "auto-generated"
    message["X-GQ-Notice"] = str(said.get("notice_id", ""))
    message.set_content("\n".join([text, "", *_lines(said)]) + "\n")
    return message


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _lines(said: dict[str, Any]) -> list[str]:
    shown = {name: value for name, value in said.items() if name != "text" and value not in (None, "", [], 0)}
    return [f"{name}: {_plain(_value(value))}" for name, value in shown.items()]


def _value(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _by_sendmail(settings: NotifySettings, sender: str, address: str, message: EmailMessage) -> None:
    command = [settings.mail, "-i", "-f", sender, "--", address]
    done = subprocess.run(
        command,
        input=message.as_bytes(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=settings.timeout_s,
        start_new_session=True,
        cwd="/",
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
    )
    if done.returncode:
        said = _plain(done.stderr[:200].decode(errors="replace")).strip()
        raise NotDelivered(f"{settings.mail} ended with status {done.returncode}: {said}")


def _by_smtp(settings: NotifySettings, sender: str, address: str, message: EmailMessage) -> None:
    host, port = smtp_server(settings.mail)
    with smtplib.SMTP(host, port, timeout=settings.timeout_s) as server:
        server.send_message(message, sender, [address])
