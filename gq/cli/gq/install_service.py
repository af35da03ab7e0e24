"""gq install-service: the systemd units of the daemons, so that they run from boot on.

What the units say is in `gq.host.service` and its templates.
"""

from __future__ import annotations

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import JsonValue, write_json_list, write_line
from gq.connection.locate import SYSTEM_CONFIG
from gq.errors import Refusal, UsageError
from gq.host import service
from gq.request.getopt import Arguments
from gq.request.option import Option


def run(arguments: Arguments) -> int:
    refuse_operands(arguments, "give --controller, --node or both")
    wanted = [
        name for option, name in (("controller", service.CONTROLLER), ("node", service.NODE)) if arguments.has(option)
    ]
    if not wanted:
        raise UsageError("missing_option", "no unit given", "give --controller, --node or both")
    is_json = arguments.has("json")
    prefix = arguments.text("prefix").rstrip("/")
    if arguments.has("print"):
        texts = [service.unit_text(name, SYSTEM_CONFIG).rstrip("\n") for name in wanted]
        if is_json:
            write_json_list({"unit": name, "text": text} for name, text in zip(wanted, texts, strict=True))
        else:
            write_line("\n".join(texts))
        return 0
    if arguments.has("start"):
        _check_start(prefix)
    installed: list[JsonValue] = []
    for name in wanted:
        path, is_new = service.install_unit(name, SYSTEM_CONFIG, prefix)
        installed.append({"unit": name, "path": str(path), "is_new": is_new})
        if not is_json:
            write_line(str(path))
        if not is_new:
            warn(f"{path} already exists")
        if arguments.has("start"):
            service.enable(name)
    if is_json:
        write_json_list(installed)
    elif not arguments.has("start") and not prefix:
        units = " ".join(wanted)
        warn("to start now and at every boot:")
        warn(f"  systemctl daemon-reload && systemctl enable --now {units}")
    return 0


def _check_start(prefix: str) -> None:
    if prefix:
        raise UsageError("contradiction", "`--start` and `--prefix` exclude each other", "give one")
    if not service.has_systemd():
        raise Refusal(
            "no_systemd",
            "systemd does not run on this host",
            "use `gqd start` and `gqnode start` to start the daemons without systemd",
        )


COMMAND = Command(
    name="gq install-service",
    summary="Install systemd units that start the daemons at boot (as root).",
    options=(
        Option(name="controller", help="Install the unit of gqd."),
        Option(name="node", help="Install the unit of gqnode."),
        Option(name="prefix", metavar="DIR", help="Write to DIR/etc/systemd/system, for a package."),
        Option(name="print", help="Print the units; write nothing."),
        Option(name="start", help="Start the daemons now and at every boot."),
        JSON,
    ),
    run=run,
)
