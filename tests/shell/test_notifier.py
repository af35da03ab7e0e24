"""Notices on their way out of a controller: retries, restarts, mail, and that nothing waits for them."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from gq.model.notice import NotifySettings
from gqd.shell.inbox import Inbox
from gqd.shell.listeners.users import UserDirectory
from gqd.shell.notify import mail
from gqd.shell.notify.notifier import SCRIPT, SCRIPT_DIGEST, Notifier
from gqd.shell.notify.webhook import NotDelivered
from gqd.state.effect import SendNotice
from gqd.state.input import Input, NoticeCommand, NoticeReported
from tests.shell.listeners import SmtpListener, listening, serving

BODY = msgspec.json.encode(
    {
        "notice_id": 3,
        "cluster": "lab",
        "text": "job 3 (a\r\nBcc: all@example.org) has ended",
        "state": "FAILED",
        "why": "",
    }
).decode()


def notice(kind: str = "webhook", to: str = "", number: int = 3) -> SendNotice:
    return SendNotice(notice_id=number, user="ada", uid=0, kind=kind, to=to, body=BODY)


def taken_out(settings: NotifySettings, *notices: SendNotice) -> list[tuple[Input, dict[str, bytes]]]:
    """What comes of them, in the inbox."""
    inbox = Inbox(100, on_item=lambda: None, on_room=lambda: None)
    courier = Notifier(settings, UserDirectory(0, is_shared=True), inbox)

    async def scene() -> None:
        for one in notices:
            courier.take(one)
        until = time.monotonic() + 10
        while len(inbox) < len(notices):
            assert time.monotonic() < until
            await asyncio.sleep(0.01)

    asyncio.run(scene())
    courier.close()
    return [(item.input, item.blobs) for item in inbox.take(100)]


def test_what_came_of_each_goes_into_the_inbox() -> None:
    with listening() as good, listening(503) as bad:
        settings = NotifySettings(webhook_hosts=("127.0.0.1",), timeout_s=2)
        came = dict.fromkeys(
            one for one, _ in taken_out(settings, notice(to=good.url, number=1), notice(to=bad.url, number=2))
        )

    why = f"{bad.authority} answered 503"
    assert set(came) == {NoticeReported(notice_id=1), NoticeReported(notice_id=2, why=why)}


def test_a_command_comes_back_with_its_owner_and_its_script_and_is_not_run_here(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    one = SendNotice(notice_id=5, user="root", uid=0, kind="command", to=f"touch {ran}", body=BODY)
    [(came, blobs)] = taken_out(NotifySettings(), one)

    assert isinstance(came, NoticeCommand)
    assert (came.peer.user, came.peer.uid, blobs) == ("root", 0, {SCRIPT_DIGEST: SCRIPT})
    assert not ran.exists()


def test_the_command_of_a_user_who_is_gone_is_given_up() -> None:
    one = SendNotice(notice_id=5, user="no-such-user", uid=54321, kind="command", to="true", body=BODY)
    [(came, _)] = taken_out(NotifySettings(), one)

    assert isinstance(came, NoticeReported)
    assert came.is_final and "no-such-user" in came.why


# ── mail ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def sendmail(tmp_path: Path) -> Path:
    """A sendmail that keeps its arguments and what it was given."""
    program = tmp_path / "sendmail"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/arguments\ncat > {tmp_path}/mail\n')
    program.chmod(0o755)
    return program


def test_sendmail_gets_one_address_and_headers_that_nobody_can_add_to(sendmail: Path) -> None:
    settings = NotifySettings(mail=str(sendmail), mail_from="gq@lab.example.org", mail_domain="example.org")
    mail.send(settings, "ada", "", BODY)

    arguments = sendmail.with_name("arguments").read_text().splitlines()
    assert arguments == ["-i", "-f", "gq@lab.example.org", "--", "ada@example.org"]
    head, _, text = sendmail.with_name("mail").read_text().partition("\n\n")
    names = [line.partition(":")[0] for line in head.splitlines() if not line[0].isspace()]
    assert "Bcc" not in names and names.count("To") == 1
    assert "Subject: [lab] job 3 (a  Bcc: all@example.org) has ended" in head
    assert "state: FAILED" in text


@pytest.mark.parametrize("to", ["a@b\r\nBcc: c", "a@b,c@d", "-oX/tmp/x", "a b", "<a@b>", '"a"@b', "a@b@c", ""])
def test_what_is_no_plain_address_is_never_handed_on(sendmail: Path, to: str) -> None:
    with pytest.raises(NotDelivered, match="is not a mail address") as refused:
        mail.send(NotifySettings(mail=str(sendmail)), to, to, BODY)

    assert refused.value.is_final
    assert not sendmail.with_name("arguments").exists()


def test_a_sendmail_that_fails_or_hangs_is_tried_again(sendmail: Path) -> None:
    sendmail.write_text("#!/bin/sh\necho queue full >&2\nexit 75\n")
    with pytest.raises(NotDelivered, match="ended with status 75: queue full"):
        mail.send(NotifySettings(mail=str(sendmail)), "ada", "", BODY)
    sendmail.write_text("#!/bin/sh\nexec sleep 60\n")
    began_at = time.monotonic()
    with pytest.raises(NotDelivered, match="was not accepted"):
        mail.send(NotifySettings(mail=str(sendmail), timeout_s=0.3), "ada", "", BODY)

    assert time.monotonic() - began_at < 10


def test_smtp_gets_the_same_mail() -> None:
    listener = SmtpListener()
    with serving(listener.server):
        mail.send(NotifySettings(mail=listener.place, mail_from="gq@lab.example.org"), "ada", "ada@example.org", BODY)

    assert any(line.startswith("mail FROM:<gq@lab.example.org>") for line in listener.said)
    assert [line for line in listener.said if line.startswith("rcpt")] == ["rcpt TO:<ada@example.org>"]
    assert "To: ada@example.org" in listener.said
