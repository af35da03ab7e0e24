"""Webhooks against real servers: what is refused before a connection, what is not followed, and every bound."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gq.config.config import parse_config
from gq.config.webhook import address_problem, is_listed, parse_rule, parse_url
from gq.errors import UsageError
from gq.model.notice import NotifySettings
from gqd.shell.notify.webhook import NotDelivered, post
from tests.requires import needs_program
from tests.shell.listeners import listening

BODY = msgspec.json.encode({"notice_id": 7, "text": "job 7 <a&b> has ended"}).decode()


def settings(*hosts: str, **more: Any) -> NotifySettings:
    return NotifySettings(webhook_hosts=hosts, timeout_s=1.0, **more)


class Opened:
    """Sockets that this process makes for the internet, and where they connect to."""

    def __init__(self) -> None:
        self.is_watching = False
        self.seen: list[object] = []
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        is_internet = event == "socket.__new__" and args[1] in (socket.AF_INET, socket.AF_INET6)
        if self.is_watching and (is_internet or event in ("socket.connect", "socket.getaddrinfo")):
            self.seen.append((event, args[1:]))

    @contextmanager
    def watched(self) -> Iterator[list[object]]:
        self.seen, self.is_watching = [], True
        try:
            yield self.seen
        finally:
            self.is_watching = False


OPENED = Opened()


# ── what arrives ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_listed_host_gets_the_whole_body_as_json() -> None:
    with listening() as listener:
        post(settings(listener.authority), "webhook", listener.url, BODY)

    [heard] = listener.heard
    assert (heard.path, heard.body.decode()) == ("/hook?secret=s3", BODY)
    assert heard.headers["Content-Type"] == "application/json"
    assert heard.headers["Host"] == listener.authority


def test_slack_gets_the_sentence_with_its_own_marks_made_harmless() -> None:
    with listening() as listener:
        post(settings(listener.authority), "slack", listener.url, BODY)

    assert listener.heard[0].said == {"text": "job 7 &lt;a&amp;b&gt; has ended"}


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    with listening() as listener:
        post(settings(listener.authority), "webhook", listener.url, BODY)

    assert len(listener.heard) == 1


# ── what is refused before a connection ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "address",
    ["168.63.129.16", "192.0.0.192", "fd00:ec2::254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::a9fe:a9fe",
     "::ffff:0:a9fe:a9fe", "2002:a9fe:a9fe::1"],
)  # fmt: skip
def test_a_metadata_address_is_one_in_any_of_its_forms_whatever_networks_are_open(address: str) -> None:
    open_to_all = settings("example.org", webhook_networks=("0.0.0.0/0", "::/0"))
    with OPENED.watched() as seen, pytest.raises(NotDelivered, match="the address of cloud credentials"):
        post(open_to_all, "webhook", "http://example.org/", BODY, lambda host, port: [address])

    assert seen == []


@pytest.mark.parametrize("address", ["2001:4860:4860::8888", "64:ff9b::808:808", "8.8.8.8", "::ffff:8.8.8.8"])
def test_what_is_of_the_public_internet_is_connected_to(address: str) -> None:
    assert address_problem(parse_url("https://example.org/"), address, ()) == ""


@pytest.mark.parametrize("listed", ["169.254.169.254", "metadata.example.org"])
def test_the_metadata_address_is_refused_without_a_connection_even_where_it_is_listed(listed: str) -> None:
    open_to_all = settings(listed, webhook_networks=("0.0.0.0/0", "::/0"))
    with OPENED.watched() as seen, pytest.raises(NotDelivered, match="the address of cloud credentials") as refused:
        post(open_to_all, "webhook", f"http://{listed}/latest", BODY, lambda host, port: ["169.254.169.254"])

    assert (seen, refused.value.is_final) == ([], True)


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1", "127.8.9.1", "::1", "169.254.1.1", "fe80::1", "fe80::1%lo", "10.0.0.1", "172.16.0.1", "192.168.1.1",
     "fd00::1", "0.0.0.0", "::", "224.0.0.1", "255.255.255.255", "100.64.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1",
     "64:ff9b::7f00:1", "2002:7f00:1::", "240.0.0.1", "::127.0.0.1", "::8.8.8.8", "::ffff:0:127.0.0.1", "fec0::1",
     "64:ff9b:1::7f00:1", "5f00::1", "192.0.0.10"],
)  # fmt: skip
def test_a_name_that_stands_for_an_inner_address_is_refused_without_a_connection(address: str) -> None:
    with OPENED.watched() as seen, pytest.raises(NotDelivered, match="neither a public address"):
        post(settings("example.org"), "webhook", "https://example.org/", BODY, lambda host, port: [address])

    assert seen == []


def test_a_name_that_stands_for_one_good_and_one_inner_address_is_refused() -> None:
    with OPENED.watched() as seen, pytest.raises(NotDelivered, match=r"example.org is 127\.0\.0\.1"):
        post(settings("example.org"), "webhook", "https://example.org/", BODY, lambda h, p: ["1.1.1.1", "127.0.0.1"])

    assert seen == []


def test_the_address_that_was_checked_is_the_one_that_is_connected_to_whatever_the_name_says_next() -> None:
    answers = iter([["127.0.0.1"], ["169.254.169.254"], ["127.0.0.2"]])
    with listening() as listener, OPENED.watched() as seen:
        port = listener.server.server_port
        allowed = settings("rebind.example.org", webhook_networks=("127.0.0.1/32",))
        post(allowed, "webhook", f"http://rebind.example.org:{port}/", BODY, lambda h, p: next(answers))
        connected = [args[-1] for event, args in seen if event == "socket.connect"]  # type: ignore[misc]

    assert connected == [("127.0.0.1", port)]
    assert [one.headers["Host"] for one in listener.heard] == [f"rebind.example.org:{port}"]
    assert next(answers) == ["169.254.169.254"], "the name was looked up once"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/", "http://localhost/", "http://2130706433/", "http://0x7f.1/", "http://[::1]/",
     "https://hooks.example.org.evil.org/", "https://evilhooks.example.org/", "https://hooks.example.org:8443/",
     "http://hooks.example.org/"],
)  # fmt: skip
def test_what_is_not_listed_is_not_even_looked_up(url: str) -> None:
    with OPENED.watched() as seen, pytest.raises(NotDelivered, match="does not list") as refused:
        post(settings("hooks.example.org:443"), "webhook", url, BODY)

    assert (seen, refused.value.is_final) == ([], True)


# ── what is not followed, and bounds ──────────────────────────────────────────────────────────────────────────


def test_a_redirect_to_loopback_is_not_followed() -> None:
    refusal = pytest.raises(NotDelivered, match="redirects are not followed")
    with listening() as inner, listening(302, location=inner.url) as outer, refusal as refused:
        post(settings(outer.authority), "webhook", outer.url, BODY)

    assert (len(outer.heard), inner.heard, refused.value.is_final) == (1, [], True)


@pytest.mark.parametrize(("status", "is_final"), [(400, True), (404, True), (429, False), (408, False), (503, False)])
def test_whether_it_is_worth_another_try_the_answer_says(status: int, is_final: bool) -> None:
    with listening(status) as listener, pytest.raises(NotDelivered, match=f"answered {status}") as refused:
        post(settings(listener.authority), "webhook", listener.url, BODY)

    assert refused.value.is_final is is_final


def test_nobody_there_is_worth_another_try() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotDelivered, match="Connection refused") as refused:
        post(settings("127.0.0.1"), "webhook", f"http://127.0.0.1:{port}/", BODY)

    assert not refused.value.is_final


@pytest.mark.parametrize(
    ("drip", "taken"), [(b"HTTP/1.1 2", False), (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n", True)]
)
def test_an_answer_that_drips_for_ever_ends_in_time(drip: bytes, taken: bool) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=_drip, args=(server, drip), daemon=True)
        thread.start()
        began_at = time.monotonic()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with nullcontext() if taken else pytest.raises(NotDelivered):
            post(settings(place), "webhook", f"http://{place}/", BODY)
        assert time.monotonic() - began_at < 5
        thread.join(10)
    assert not thread.is_alive()


def _drip(server: socket.socket, first: bytes) -> None:
    link, _ = server.accept()
    with link:
        try:
            link.sendall(first)
            for _ in range(200):
                time.sleep(0.05)
                link.sendall(b"x")
        except OSError:
            return


def test_of_a_large_answer_only_the_beginning_is_read() -> None:
    with listening(answer=b"x" * 50_000_000) as listener:
        began_at = time.monotonic()
        post(settings(listener.authority), "webhook", listener.url, BODY)

    assert time.monotonic() - began_at < 1.0


@needs_program("openssl")
def test_https_is_believed_only_with_a_certificate_of_that_name(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-days", "1", "-keyout", key, "-out", certificate]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with listening() as listener:
        listener.server.socket = context.wrap_socket(listener.server.socket, server_side=True)
        url = listener.url.replace("http:", "https:")
        with pytest.raises(NotDelivered, match="certificate") as refused:
            post(settings(listener.authority), "webhook", url, BODY)

    assert (listener.heard, refused.value.is_final) == ([], False)


# ── the list ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rule", "url", "listed"),
    [
        ("hooks.example.org", "https://HOOKS.example.org./x", True),
        ("*.example.org", "https://a.b.example.org/", True),
        ("*.example.org", "https://example.org/", False),
        ("*.example.org", "https://badexample.org/", False),
        ("10.0.0.1:8080", "http://10.0.0.1:8080/", True),
        ("10.0.0.1", "http://10.0.0.2/", False),
        ("[fd00::1]:443", "https://[FD00:0::1]/", True),
        ("example.org:8443", "https://example.org/", False),
    ],
)
def test_an_entry_lists_exactly_what_it_says(rule: str, url: str, listed: bool) -> None:
    assert is_listed([rule], parse_url(url)) is listed


@pytest.mark.parametrize(
    "rule", ["", "*", "*.*", "a b", "http://example.org", "example.org:0", "example.org/", "*.org:"]
)
def test_an_entry_that_says_nothing_is_an_error(rule: str) -> None:
    with pytest.raises(ValueError, match=r"is not NAME, \*\.NAME or ADDRESS"):
        parse_rule(rule)


def test_a_listed_address_may_be_an_inner_one() -> None:
    place = parse_url("http://10.0.0.1/")

    assert address_problem(place, "10.0.0.1", ()) == ""
    assert address_problem(parse_url("http://inner.example.org/"), "10.0.0.1", ("10.0.0.0/8",)) == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('webhook_hosts = ["http://x"]', "`notify.webhook_hosts`"),
        ('webhook_hosts = ["169.254.169.254"]', "`169.254.169.254` is the address of cloud credentials"),
        ('webhook_hosts = ["[::ffff:169.254.169.254]:80"]', "is the address of cloud credentials"),
        ('webhook_networks = ["10.0.0.1/8"]', "`notify.webhook_networks`"),
        ('mail = "mailto:x"', "`notify.mail` `mailto:x` is neither"),
        ('mail_from = "a b"', "`notify.mail_from`"),
        ('mail_domain = "-x"', "`notify.mail_domain`"),
        ('default = "mail"', "this cluster sends no mail"),
        ("max_per_user = 0", "`notify.max_per_user` is 0"),
        ("webhooks = true", "is not a setting of [notify]"),
    ],
)
def test_settings_that_make_no_sense_are_errors(line: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_config(f"[notify]\n{line}\n", "gq.toml")

    assert said in refused.value.message
