"""Opens a PAM session in a process that is about to become a user's, for the limits that its modules set.

It uses ctypes, so that a node without libpam works.  The session is never closed: the process that opened it becomes
the user's program.  Nothing is authenticated here, no account is checked, and no module may ask questions.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any

LIBRARY = "libpam.so.0"
SERVICE_DIRECTORIES = ("/etc/pam.d", "/usr/lib/pam.d")
_SERVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SUCCESS, _CONVERSATION_ERROR = 0, 19
_SILENT = 0x8000
_DATA_SILENT = 0x40000000
_Conversation = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p
)


class PamError(Exception):
    """PAM failed; the message is one sentence."""


class _Conv(ctypes.Structure):
    """``struct pam_conv`` of <security/_pam_types.h>."""

    _fields_ = (("conv", _Conversation), ("appdata_ptr", ctypes.c_void_p))


def check_service(service: str) -> None:
    """Raise `PamError` if no session of this service can be opened on this machine."""
    if not _SERVICE.fullmatch(service):
        raise PamError(f"`{service}` is not a valid name of a PAM service")
    if not any(os.path.exists(f"{directory}/{service}") for directory in SERVICE_DIRECTORIES):
        raise PamError(f"the PAM service `{service}` has no file in {SERVICE_DIRECTORIES[0]}")
    _library()


def open_session(service: str, user: str) -> None:
    """Open a session; the limits that its modules set on this process stay in force."""
    library = _library()
    handle = ctypes.c_void_p()
    conversation = _Conv(_Conversation(_say_nothing), None)
    started = library.pam_start(service.encode(), user.encode(), ctypes.byref(conversation), ctypes.byref(handle))
    if started != _SUCCESS:
        raise PamError(f"PAM cannot start the service `{service}` for {user}: error {started}")
    opened = library.pam_open_session(handle, _SILENT)
    why = library.pam_strerror(handle, opened)
    library.pam_end(handle, opened | _DATA_SILENT)
    if opened != _SUCCESS:
        raise PamError(f"PAM cannot open a session of `{service}` for {user}: {(why or b'').decode(errors='replace')}")


def _library() -> Any:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise PamError(f"{LIBRARY} cannot be loaded: {error}") from error
    library.pam_strerror.restype = ctypes.c_char_p
    return library


def _say_nothing(*_: object) -> int:
    return _CONVERSATION_ERROR
