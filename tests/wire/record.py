"""Record the bytes of every message: ``python -m tests.wire.record``, after a change of the protocol.

The file keeps every form that a message has had in this version of the wire, the newest last: the newest is what
gq sends, all of them are what it must read.  Look at what the command changed before you commit it.
"""

from __future__ import annotations

import json
from pathlib import Path

from gq.wire.codec import WIRE_VERSION
from tests.wire.samples import LOG_TICKET, enum_types, wire_messages

GOLDEN = Path(__file__).parent / "golden"


def golden_path(version: int = WIRE_VERSION) -> Path:
    return GOLDEN / f"v{version}.json"


def read_golden(version: int = WIRE_VERSION) -> dict[str, list[str]]:
    """Name of a message → its forms as hexadecimal bytes; name of an enumeration → its values."""
    path = golden_path(version)
    recorded: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
    return recorded


def current_bytes() -> dict[str, str]:
    """What this version of the code makes of the samples."""
    made = {name: codec.encode(message).hex() for name, codec, message in wire_messages()}
    return made | {"step.LogTicket": LOG_TICKET.hex()}


def record() -> None:
    golden = read_golden()
    for name, data in current_bytes().items():
        forms = golden.setdefault(name, [])
        if data not in forms:
            forms.append(data)
    for kind in enum_types():
        golden[f"enum.{kind.__name__}"] = [member.value for member in kind]
    golden_path().parent.mkdir(exist_ok=True)
    golden_path().write_text(json.dumps(golden, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
