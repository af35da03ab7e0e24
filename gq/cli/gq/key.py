"""gq key: the key pair of a machine outside the cluster, such as a laptop.

Only makes it: who may come in with it is said on a host of the cluster, by `gqctl key add`.
"""

from __future__ import annotations

import os
from pathlib import Path

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import write_json_list, write_line
from gq.request.getopt import Arguments
from gq.request.option import Option

DEFAULT_PATH = "~/.config/gq/key"


def _new(arguments: Arguments) -> int:
    from gq.connection.curve import fresh_keys
    from gq.host.files import create_file, make_directory

    refuse_operands(arguments, "use --out=FILE for the file of the secret key")
    shown = arguments.text("out") or DEFAULT_PATH
    path = Path(shown).expanduser().absolute()
    if not path.parent.exists():
        make_directory(path.parent, 0o700)
    pair = fresh_keys()
    create_file(path, f"{pair.secret.decode()}\n", 0o600)
    public = pair.public.decode()
    if arguments.has("json"):
        write_json_list([{"public": public, "secret_file": str(path)}])
        return 0
    write_line(public)
    _tell(public, path)
    return 0


def _tell(public: str, path: Path) -> None:
    warn(f"The secret key is in {path}; keep it on this machine.")
    warn("Next, on a host of the cluster:")
    warn(f"  gqctl key add '{public}' --note {os.uname().nodename}")
    warn("Write what it prints to a gq.toml on this machine, and set GQ_CONFIG to that file.")
    if path != Path(DEFAULT_PATH).expanduser().absolute():
        warn(f'In its [client] table, also set key_file = "{path}".')


def _verbs() -> dict[str, Command]:
    return {
        "new": Command(
            name="gq key new",
            summary="Create a key for this machine and print the public key.",
            options=(
                Option(
                    name="out", metavar="FILE", help=f"File of the secret key, created with mode 0600 ({DEFAULT_PATH})."
                ),
                JSON,
            ),
            run=_new,
        )
    }


COMMAND = Command(
    name="gq key",
    summary="Manage the key that identifies you on a machine outside the cluster.",
    operands="VERB",
    verbs=_verbs,
)
