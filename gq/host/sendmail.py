"""Whether a sendmail program works for a daemon that may not gain rights (``NoNewPrivileges=`` of systemd)."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gq.errors import UsageError

WAY_OUT = 'mail = "smtp://localhost:25" sends mail to the same mail system over the network'
_HELPERS = ("postdrop",)
"""Set-gid programs beside a sendmail that deliver its mail: Postfix's."""
_NO_NEW_PRIVS = "NoNewPrivs:"


def rights_needed(program: str) -> str:
    """Return why `program` cannot deliver mail for a process without rights to gain; empty: no reason is known."""
    path = Path(os.path.realpath(program))
    for file in (path, *(path.parent / helper for helper in _HELPERS)):
        try:
            mode = file.stat().st_mode
        except OSError:
            continue
        if stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID):
            return (
                f"{file} is set-{'uid' if mode & stat.S_ISUID else 'gid'}, and gqd's processes may not gain privileges"
            )
    return ""


def check_sendmail(mail: str, config_path: str) -> None:
    """Raise `UsageError` if this process could not deliver mail by ``[notify] mail``."""
    if mail.startswith("/") and may_not_gain_rights() and (why := rights_needed(mail)):
        raise UsageError("bad_config", f"{config_path}: `notify.mail`: {mail} cannot be used: {why}", WAY_OUT)


def may_not_gain_rights() -> bool:
    """Whether this process, and so every child of it, has ``no_new_privs``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next((line.split()[1] for line in lines if line.startswith(_NO_NEW_PRIVS)), "0") == "1"
