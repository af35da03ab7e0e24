"""The permitted targets of webhooks: URLs, the administrator's list of hosts, and the addresses of host names.  Pure.

The sender looks a name up once; this module checks the resulting address, and the sender connects to exactly that
address, so that a name server cannot give the check and the connection different addresses.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

from gq.model.notice import MAX_TO

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

PORTS = {"http": 80, "https": 443}
METADATA = (
    ipaddress.ip_network("169.254.169.254/32"), ipaddress.ip_network("169.254.170.2/32"),
    ipaddress.ip_network("100.100.100.200/32"), ipaddress.ip_network("fd00:ec2::254/128"),
    ipaddress.ip_network("168.63.129.16/32"), ipaddress.ip_network("192.0.0.192/32"),
)  # fmt: skip
"""Addresses at which clouds serve a machine's credentials: no webhook may reach them, whatever is listed."""
LOOPBACK = ("127.0.0.1", "::1")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_EMBEDDING = (_NAT64, ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("::ffff:0:0:0/96"))
"""IPv6 networks whose last 32 bits are an IPv4 address."""
_SPECIAL = ipaddress.IPv4Network("192.0.0.0/24")
"""IPv4 network that is reserved for protocols as a whole."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""The IPv6 addresses that are assigned to the public internet; many others are merely unassigned."""
_HOST = r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*"


class ParsedUrl(NamedTuple):
    """The parts of a URL."""

    scheme: str
    host: str
    """A name in lower case, or an address without brackets."""
    port: int
    path: str
    """The path with its query."""

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


class HostRule(NamedTuple):
    """An entry of ``webhook_hosts``."""

    host: str
    port: int | None


def parse_url(url: str) -> ParsedUrl:
    """Parse a plain http or https URL; ``ValueError`` with a sentence."""
    if len(url) > MAX_TO:
        raise ValueError(f"the URL has {len(url)} characters; the maximum is {MAX_TO}")
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        raise ValueError("the URL has invalid characters; write them as %XX")
    parts = urlsplit(url)
    if not parts.scheme:
        raise ValueError(f"`{url.partition('/')[0][:60]}` does not begin with http:// or https://")
    if parts.scheme not in PORTS:
        raise ValueError(f"`{parts.scheme[:20]}` is neither http nor https")
    if "@" in parts.netloc:
        raise ValueError("a user name or password in the URL is not supported; use a secret path or query")
    host = (parts.hostname or "").rstrip(".")
    if not host or not (is_address(host) or re.fullmatch(_HOST, host)):
        raise ValueError(f"`{host[:60]}` is not a host name")
    query = f"?{parts.query}" if parts.query else ""
    return ParsedUrl(parts.scheme, host, parts.port or PORTS[parts.scheme], f"{parts.path or '/'}{query}")


def is_address(host: str) -> bool:
    return _address(host) is not None


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_rule(text: str) -> HostRule:
    """Parse ``NAME``, ``*.NAME`` or ``ADDRESS``, with or without ``:PORT``; ``ValueError`` with a sentence."""
    match = re.fullmatch(r"(?P<host>\[[^\]]+\]|[^:\[\]]+|[0-9a-f:]+:[0-9a-f:]*)(?::(?P<port>\d{1,5}))?", text.lower())
    host = "" if match is None else match["host"].strip("[]").rstrip(".")
    port = None if match is None or match["port"] is None else int(match["port"])
    name = host.removeprefix("*.")
    is_name = bool(re.fullmatch(_HOST, name)) and (host == name or "." in name)
    if not (is_name or is_address(host)) or not (port is None or 0 < port < 65536):
        raise ValueError(f"`{text[:60]}` is not NAME, *.NAME or ADDRESS, with :PORT or without")
    return HostRule(host, port)


def is_metadata(host: str) -> bool:
    """Whether the text is, in any notation, an address at which clouds serve credentials of machines."""
    address = _address(host)
    return address is not None and any(meant in network for meant in _with_embedded(address) for network in METADATA)


def known_problem(url: ParsedUrl, networks: Iterable[str]) -> str:
    """Return why every address of the host known without a look-up is forbidden; empty: unknown, or permitted."""
    addresses = LOOPBACK if url.host == "localhost" else (url.host,) if is_address(url.host) else ()
    problems = [address_problem(url, address, networks) for address in addresses]
    return problems[0] if problems and all(problems) else ""


def is_listed(hosts: Iterable[str], url: ParsedUrl) -> bool:
    """Whether the administrator's list permits webhooks to this host and port."""
    return any(_matches(parse_rule(rule), url) for rule in hosts)


def _matches(rule: HostRule, url: ParsedUrl) -> bool:
    if rule.port not in (None, url.port):
        return False
    if rule.host.startswith("*."):
        return not is_address(url.host) and url.host.endswith(rule.host[1:])
    if is_address(rule.host):
        return _address(rule.host) == _address(url.host)
    return rule.host == url.host


def address_problem(url: ParsedUrl, address: str, networks: Iterable[str]) -> str:
    """Return why a webhook may not connect to this address of the host; empty: it may.

    An address that the URL itself names has been checked against the list already.
    """
    found = _address(address.partition("%")[0])
    if found is None:
        return f"`{address[:60]}` is not an address"
    allowed = [ipaddress.ip_network(network) for network in networks]
    for meant in _with_embedded(found):
        if any(meant in network for network in METADATA):
            return f"{meant} is the address of cloud credentials, and no webhook may be sent there"
        if meant == _address(url.host) or any(meant in network for network in allowed):
            continue
        if not _is_public(meant):
            return f"{url.host} is {meant}, which is neither a public address nor in `notify.webhook_networks`"
    return ""


def _is_public(address: Address) -> bool:
    if not address.is_global or address.is_multicast:
        return False
    if isinstance(address, ipaddress.IPv4Address):
        return address not in _SPECIAL
    return address in _UNICAST or address in _NAT64


def _with_embedded(address: Address) -> list[Address]:
    """Return the address, and the IPv4 addresses that are embedded in it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    hidden: list[Address] = [address]
    last = int(address) & 0xFFFFFFFF
    if last > 1 and any(address in network for network in _EMBEDDING):  # `::` and `::1` are addresses of their own
        hidden.append(ipaddress.IPv4Address(last))
    if address.sixtofour is not None:
        hidden.append(address.sixtofour)
    if address.teredo is not None:
        hidden.extend(address.teredo)
    return hidden
