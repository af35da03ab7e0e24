"""Posts a notice to a URL: checks the list of hosts again, resolves once, and connects to a checked address.

It follows no redirect, uses no proxy from the environment, and bounds the time and the size of the answer.  Runs in a
thread of its own.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from gq.config.webhook import ParsedUrl, address_problem, is_listed, parse_url
from gq.model.notice import SLACK, NotifySettings
from gq.version import VERSION

MAX_ANSWER = 64 * 1024
MAX_ADDRESSES = 4
PASSING = frozenset({408, 425, 429})
"""Client errors (4xx) that a later attempt may not meet."""

Resolve = Callable[[str, int], list[str]]


class NotDelivered(Exception):
    """A delivery failed, for the reason in the text; `is_final`: repeating it would not help."""

    def __init__(self, why: str, *, is_final: bool = False) -> None:
        super().__init__(why)
        self.is_final = is_final


class _Text(msgspec.Struct):
    text: str


def resolve(host: str, port: int) -> list[str]:
    """The addresses to which the name resolves now."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def post(settings: NotifySettings, kind: str, url: str, body: str, resolve: Resolve = resolve) -> None:
    """Post the notice, and return when the server has accepted it (2xx); raises `NotDelivered` otherwise."""
    place = _allowed(settings, url)
    addresses = _checked(settings, place, resolve)
    data = _for_slack(body) if kind == SLACK else body.encode()
    failure = NotDelivered(f"{place.host} has no address")
    for address in addresses[:MAX_ADDRESSES]:
        try:
            _take(place, _exchange(place, address, data, settings.timeout_s))
            return
        except (OSError, http.client.HTTPException) as error:
            failure = NotDelivered(f"{place.authority}: {error or type(error).__name__}")
    raise failure


def _allowed(settings: NotifySettings, url: str) -> ParsedUrl:
    """The parsed URL; `NotDelivered` if the configuration no longer permits it."""
    try:
        place = parse_url(url)
    except ValueError as error:
        raise NotDelivered(str(error), is_final=True) from None
    if not is_listed(settings.webhook_hosts, place):
        raise NotDelivered(f"`notify.webhook_hosts` does not list {place.authority}", is_final=True)
    return place


def _checked(settings: NotifySettings, place: ParsedUrl, resolve: Resolve) -> list[str]:
    """The addresses of the host; `NotDelivered` if any of them is not permitted."""
    try:
        addresses = resolve(place.host, place.port)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(f"{place.host} cannot be looked up: {error}") from None
    for address in addresses:
        problem = address_problem(place, address, settings.webhook_networks)
        if problem:
            raise NotDelivered(problem, is_final=True)
    return addresses


def _for_slack(body: str) -> bytes:
    """The body for Slack, with ``<``, ``>`` and ``&`` escaped, which have a meaning there."""
    text = msgspec.json.decode(body, type=_Text).text
    return msgspec.json.encode({"text": text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")})


def _exchange(place: ParsedUrl, address: str, data: bytes, timeout_s: float) -> int:
    """Exchange request and answer; returns the HTTP status.  At most `MAX_ANSWER` bytes of the answer are read.

    The connection goes to the checked address, whatever the name resolves to by now.
    """
    headers = {
        "Host": place.authority,
        "Content-Type": "application/json",
        "User-Agent": f"gq/{VERSION}",
        "Connection": "close",
    }
    link = _secured(place, socket.create_connection((address, place.port), timeout_s))
    with contextlib.closing(link), _ended_after(timeout_s, link):
        if isinstance(link, ssl.SSLSocket):
            link.do_handshake()
        connection = http.client.HTTPConnection(place.host, place.port)
        connection.sock = link
        connection.request("POST", place.path, data, headers)
        answer = connection.getresponse()
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(MAX_ANSWER)  # the body of the answer is not used
        return answer.status


def _secured(place: ParsedUrl, plain: socket.socket) -> socket.socket:
    """The link with TLS for https; the handshake comes later, under the time limit."""
    if place.scheme == "http":
        return plain
    context = ssl.create_default_context()
    return context.wrap_socket(plain, server_hostname=place.host, do_handshake_on_connect=False)


@contextmanager
def _ended_after(timeout_s: float, link: socket.socket) -> Iterator[None]:
    """Shut the link after `timeout_s` in total; the socket's own timeout begins again with each byte."""
    timer = threading.Timer(timeout_s, _shut, (link,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _shut(link: socket.socket) -> None:
    """Shut the socket from another thread, which ends its blocking calls."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(link, socket.SHUT_RDWR)


def _take(place: ParsedUrl, status: int) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise NotDelivered(f"{place.authority} answered {status}: redirects are not followed", is_final=True)
    is_final = 400 <= status < 500 and status not in PASSING
    raise NotDelivered(f"{place.authority} answered {status}", is_final=is_final)
