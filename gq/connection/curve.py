"""CURVE keys on disk: creating them, reading them, and their file modes.

    keys/gqd.key          secret key of the controller's node listener, 0600
    keys/gqd.pub          its public key; goes to every node
    keys/nodes/NAME.pub   public key of a node that may join, at the controller
    keys/node-NAME.key    secret key of that node, 0600; goes to the node, and only there

A file holds one key in Z85 (40 characters).  A secret key that others may read is refused, not used.

The module also sets the time after which the kernel ends a tcp link with a silent peer.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import zmq

from gq.connection.locate import make_own_directory
from gq.errors import Refusal
from gq.model.key import is_key

SERVER = "gqd"
_TYPED_CHARACTERS = 8
"""First characters of a public key, which users type: letters and digits, so that no shell interprets them."""
_LOST_KEY_HINT = (
    "restore it from a backup, or join this node again; `gqd keygen` creates a new cluster key, which hosts that "
    "joined before do not accept"
)


class KeyPair(NamedTuple):
    """A key pair; both halves are in Z85."""

    public: bytes
    secret: bytes


def server_key_path(keys_dir: str) -> Path:
    return Path(keys_dir, f"{SERVER}.key")


def server_public_path(keys_dir: str) -> Path:
    return Path(keys_dir, f"{SERVER}.pub")


def node_key_path(keys_dir: str, node: str) -> Path:
    return Path(keys_dir, f"node-{node}.key")


def node_public_path(keys_dir: str, node: str) -> Path:
    return Path(keys_dir, "nodes", f"{node}.pub")


def is_ipv6(endpoint: str) -> bool:
    """Whether the endpoint is an IPv6 address; for a host name, libzmq tries only one address, and gq prefers IPv4."""
    return endpoint.startswith("tcp://[")


def detect_lost_peer(socket: zmq.Socket[bytes], within_s: int) -> None:
    """Make the kernel end a tcp link whose peer has acknowledged nothing for `within_s` seconds.

    Call it before the socket is bound or connected.  The kernel probes an idle link (TCP keepalive) and also ends a
    link whose peer does not read (TCP_USER_TIMEOUT).  libzmq's own heartbeat (ZMQ_HEARTBEAT_IVL) does the same and must
    not be used: libzmq 4.3 aborts the process (``Assertion failed: !_io_error``, zeromq/libzmq issue 4364) when the
    heartbeat of a link falls due after its peer has gone and before its messages are read, for instance while the
    socket is being closed.
    """
    socket.setsockopt(zmq.TCP_KEEPALIVE, 1)
    socket.setsockopt(zmq.TCP_KEEPALIVE_IDLE, max(1, within_s // 3))
    socket.setsockopt(zmq.TCP_KEEPALIVE_INTVL, max(1, within_s // 6))
    socket.setsockopt(zmq.TCP_KEEPALIVE_CNT, 4)
    socket.setsockopt(zmq.TCP_MAXRT, within_s * 1000)


def fresh_keys() -> KeyPair:
    while True:
        pair = KeyPair(*zmq.curve_keypair())
        if pair.public[:_TYPED_CHARACTERS].isalnum():
            return pair


def make_keys(secret_path: Path, public_path: Path) -> KeyPair:
    """Create and write a key pair; `Refusal` if a file already exists."""
    pair = fresh_keys()
    for path in (secret_path, public_path):
        if path.exists():
            raise _already_exists(path)
        make_own_directory(path.parent)
    _write(secret_path, pair.secret, 0o600)
    _write(public_path, pair.public, 0o644)
    return pair


def read_keys(secret_path: Path) -> KeyPair:
    """Read a secret key and return its pair; `Refusal` if others may read it."""
    secret = _read(secret_path)
    found = secret_path.stat()
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO) or found.st_uid not in (os.geteuid(), 0):
        raise Refusal(
            "unsafe_key", f"{secret_path} is readable by others", f"chmod 600 {secret_path}, or create a new key"
        )
    return KeyPair(zmq.curve_public(secret), secret)


def read_public(path: Path) -> bytes:
    return _read(path)


def pinned_nodes(keys_dir: str) -> dict[bytes, str]:
    """Return public key (Z85) → node of the nodes that may join.  Files that hold no key are left out."""
    pinned = {}
    for path in sorted(Path(keys_dir, "nodes").glob("*.pub")):
        try:
            pinned[_read(path)] = path.stem
        except Refusal:
            continue
    return pinned


def _read(path: Path) -> bytes:
    try:
        key = path.read_bytes().strip()
    except OSError as error:
        raise Refusal("no_key", f"the key {path} cannot be read: {error.strerror}", _LOST_KEY_HINT) from error
    if not is_key(key.decode("ascii", "replace")):
        raise Refusal("bad_key", f"{path} does not hold a key", _LOST_KEY_HINT)
    return key


def _already_exists(path: Path) -> Refusal:
    return Refusal("key_exists", f"{path} already exists", "remove it first to replace it")


def _write(path: Path, key: bytes, mode: int) -> None:
    """Create the file with exactly `mode` from the first moment; an existing file is refused."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise _already_exists(path) from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask left of it
        file.write(key + b"\n")
        file.flush()
        os.fsync(descriptor)
