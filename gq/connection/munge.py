"""MUNGE, for sites that have it: a credential proves the uid of a process on another host of the site.

The module owns the binding to libmunge, and the payload of gq's credentials.  It has both sides, since they must agree
on that payload: a command encodes, gqd decodes.  It is loaded only if gq.toml sets ``munge = true``.

A credential covers the public key of its link, and so is useless for another link; the prefix excludes credentials made
for other services.  munged itself ensures that a credential is accepted only once, and only for a while.  Both calls
may take ten seconds if munged hangs.
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from gq.errors import Refusal

LIBRARY = "libmunge.so.2"
DEFAULT_SOCKET = "/run/munge/munge.socket.2"
"""Shown in messages; libmunge knows its own default."""
MAX_PAYLOAD_BYTES = 256
_PREFIX = b"gq-client-key:"
_OPT_SOCKET = 8
_HOW_TO_INSTALL = "install MUNGE (package `munge` or `libmunge2`), or remove `munge` from gq.toml"


class Status(IntEnum):
    """Return values of libmunge that have a hint of their own."""

    DONE = 0
    NO_SOCKET = 6
    TIMEOUT = 7
    EXPIRED = 15
    REWOUND = 16
    REPLAYED = 17


class Decoded(NamedTuple):
    """The credential's uid and gid as munged of the encoding host certifies, and its payload."""

    uid: int
    gid: int
    payload: bytes


class MungeRefused(Refusal):
    """A credential that is not accepted; `uid` if it is known nevertheless."""

    def __init__(self, code: str, message: str, hint: str = "", uid: int | None = None) -> None:
        super().__init__(code, message, hint)
        self.uid = uid


def payload_of(public_key: str) -> bytes:
    """Return the payload of this key's (Z85) credential."""
    return _PREFIX + public_key.encode("ascii")


def encode(payload: bytes, socket: str = "") -> str:
    """Return a credential for this process's uid.  Raises `Refusal` if libmunge or munged is missing."""
    library = load()
    context = _context(library, socket)
    credential = ctypes.c_void_p()
    try:
        status = library.munge_encode(ctypes.byref(credential), context, payload, len(payload))
        if status != Status.DONE:
            raise _refusal(status, _words(library, context, status), socket)
        assert credential.value is not None
        return ctypes.string_at(credential.value).decode("ascii")
    finally:
        _free(credential)
        library.munge_ctx_destroy(context)


def decode(credential: str, socket: str = "") -> Decoded:
    """Return the credential's uid, gid and payload.  Raises `MungeRefused` if munged does not accept it."""
    library = load()
    context = _context(library, socket)
    payload, length = ctypes.c_void_p(), ctypes.c_int(0)
    uid, gid = ctypes.c_uint32(2**32 - 1), ctypes.c_uint32(2**32 - 1)
    try:
        status = library.munge_decode(
            credential.encode("ascii", "replace"),
            context,
            ctypes.byref(payload),
            ctypes.byref(length),
            ctypes.byref(uid),
            ctypes.byref(gid),
        )
        if status != Status.DONE:
            known = uid.value if uid.value != 2**32 - 1 else None
            raise _refusal(status, _words(library, context, status), socket, known)
        return Decoded(uid.value, gid.value, _bytes(payload, length.value))
    finally:
        _free(payload)
        library.munge_ctx_destroy(context)


# ── libmunge ──────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def load() -> ctypes.CDLL:
    """Load the library; `Refusal` if it is not installed."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise Refusal("no_munge", f"{LIBRARY} cannot be loaded: {error}", _HOW_TO_INSTALL) from None
    library.munge_ctx_create.restype = ctypes.c_void_p
    library.munge_ctx_destroy.argtypes = [ctypes.c_void_p]
    for name in ("munge_ctx_strerror", "munge_strerror"):
        getattr(library, name).restype = ctypes.c_char_p
    library.munge_ctx_strerror.argtypes = [ctypes.c_void_p]
    library.munge_encode.argtypes = [
        ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int,
    ]  # fmt: skip
    library.munge_decode.argtypes = [
        ctypes.c_char_p, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int),
        ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32),
    ]  # fmt: skip
    return library


def _context(library: ctypes.CDLL, socket: str) -> ctypes.c_void_p:
    context = ctypes.c_void_p(library.munge_ctx_create())
    if not context.value:
        raise MemoryError("munge_ctx_create")
    if socket:
        library.munge_ctx_set(context, ctypes.c_int(_OPT_SOCKET), ctypes.c_char_p(socket.encode()))
    return context


def _words(library: ctypes.CDLL, context: ctypes.c_void_p, status: int) -> str:
    said = library.munge_ctx_strerror(context) or library.munge_strerror(status) or b""
    return str(said.decode(errors="replace"))


def _bytes(payload: ctypes.c_void_p, length: int) -> bytes:
    return ctypes.string_at(payload.value, length) if payload.value and 0 < length <= MAX_PAYLOAD_BYTES else b""


def _free(memory: ctypes.c_void_p) -> None:
    """Free memory of libmunge, which malloc allocated, even after a refusal."""
    if memory.value:
        _libc().free(memory)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None)
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None
    return libc


def _refusal(status: int, words: str, socket: str, uid: int | None = None) -> MungeRefused:
    place = socket or DEFAULT_SOCKET
    match status:
        case Status.NO_SOCKET | Status.TIMEOUT:
            hint = f"is munged running? `systemctl start munge`; gq.toml says where its socket is: {place}"
            return MungeRefused("munge_down", f"munged does not answer: {words}", hint)
        case Status.REPLAYED:
            return MungeRefused(
                "munge_replayed", "this MUNGE credential was used before", "create a new credential", uid
            )
        case Status.EXPIRED:
            hint = "create a new credential; if it is fresh, compare the clocks of both hosts"
            return MungeRefused("munge_expired", "this MUNGE credential has expired", hint, uid)
        case Status.REWOUND:
            message = "this MUNGE credential is dated in the future"
            return MungeRefused("munge_expired", message, "compare the clocks of both hosts", uid)
        case _:
            hint = "all hosts of a site need the same munge.key; check this host's"
            return MungeRefused("munge_invalid", f"MUNGE rejects this credential: {words}", hint)
