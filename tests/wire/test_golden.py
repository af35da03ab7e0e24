"""What gq sends is what it sent before, and what it once sent it still reads."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import msgspec
import pytest

from gq.errors import ProtocolError
from gq.model.explanation import Fact
from gq.model.ids import RequestId
from gq.wire import client, node, step
from gq.wire.codec import OLDEST_WIRE_VERSION, WIRE_VERSION, Codec
from tests.wire.record import current_bytes, golden_path, read_golden
from tests.wire.samples import enum_types, members, wire_messages

MESSAGES = [pytest.param(name, codec, message, id=name) for name, codec, message in wire_messages()]
HOW_TO_RECORD = "if the protocol was meant to change: python -m tests.wire.record, and look at the difference"


def test_every_message_has_a_name_of_its_own() -> None:
    names = Counter(name for name, _, _ in wire_messages())

    assert [name for name, count in names.items() if count > 1] == []


def test_every_type_of_every_union_is_among_the_samples() -> None:
    unions = (
        client.RequestBody,
        client.Introduce,
        client.ReplyBody,
        Fact,
        node.Order,
        node.ReportBody,
        step.ToDoor,
        step.FromDoor,
    )
    carriers = {node.Report.__name__, node.Orders.__name__}
    kinds = {kind.__name__ for union in unions for kind in members(union)}
    kinds |= {kind.__name__ for union in (node.NodeMessage, node.ControllerMessage) for kind in members(union)}

    assert {name.partition(".")[2] for name, _, _ in wire_messages()} == kinds - carriers


@pytest.mark.parametrize(("name", "codec", "message"), MESSAGES)
def test_a_message_is_sent_as_the_bytes_that_were_recorded(name: str, codec: Codec[Any], message: Any) -> None:
    forms = read_golden().get(name)

    assert forms, f"{name} has no golden bytes; {HOW_TO_RECORD}"
    assert codec.encode(message).hex() == forms[-1], f"{name} is sent differently now; {HOW_TO_RECORD}"


@pytest.mark.parametrize(("name", "codec", "message"), MESSAGES)
def test_a_message_reads_back_as_what_was_sent(name: str, codec: Codec[Any], message: Any) -> None:
    assert codec.decode(codec.encode(message)) == message


@pytest.mark.parametrize("version", range(OLDEST_WIRE_VERSION, WIRE_VERSION + 1))
@pytest.mark.parametrize(("name", "codec", "message"), MESSAGES)
def test_every_form_that_was_ever_sent_is_still_read(name: str, codec: Codec[Any], message: Any, version: int) -> None:
    for data in read_golden(version).get(name, []):
        assert type(codec.decode(bytes.fromhex(data))) is type(message)


def test_no_message_that_was_recorded_has_gone() -> None:
    known = set(current_bytes()) | {f"enum.{kind.__name__}" for kind in enum_types()}

    assert set(read_golden()) - known == set(), "a peer of the last version may still send it"


@pytest.mark.parametrize("kind", enum_types(), ids=lambda kind: kind.__name__)
def test_words_that_cross_the_wire_are_added_to_and_never_changed(kind: Any) -> None:
    recorded = read_golden()[f"enum.{kind.__name__}"]

    assert [member.value for member in kind] == recorded, HOW_TO_RECORD


def test_a_recorded_log_ticket_opens_with_its_key_and_with_no_other() -> None:
    sealed = bytes.fromhex(read_golden()["step.LogTicket"][-1])

    assert step.unseal(sealed, b"k" * 32) == step.LogTicket(7, 2, "/home/ada/gq-7.out", 1000, 1.5)
    with pytest.raises(ProtocolError, match="not signed for this node"):
        step.unseal(sealed, b"x" * 32)


def test_the_golden_file_is_written_as_the_recorder_writes_it() -> None:
    text = golden_path().read_text()

    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"


# ── a peer of the version before, or of the next ──────────────────────────────────────────────────────────────

STRICT = ("spec", "resources", "step")
"""Fields whose types refuse what they do not know: a wish that is not understood must not be dropped in silence."""


def bare(codec: Codec[Any], message: Any) -> Any:
    """The message as plain lists and dicts."""
    return msgspec.msgpack.decode(codec.encode(message))


def bodies(plain: Any) -> list[dict[str, Any]]:
    """Every map in a message that is a tagged body (a GPU has a ``type`` too, which is none)."""
    found = [plain] if isinstance(plain, dict) and _kind(plain) else []
    children = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    return found + [body for child in children for body in bodies(child)]


@pytest.mark.parametrize(("name", "codec", "message"), MESSAGES)
def test_a_field_of_a_newer_peer_is_passed_over(name: str, codec: Codec[Any], message: Any) -> None:
    plain = bare(codec, message)
    for body in bodies(plain):
        body["added_in_the_next_version"] = 1

    assert bodies(plain)
    assert codec.decode(msgspec.msgpack.encode(plain)) == message


@pytest.mark.parametrize(("name", "codec", "message"), MESSAGES)
def test_a_field_that_an_older_peer_does_not_send_takes_its_default(name: str, codec: Codec[Any], message: Any) -> None:
    for place, body in enumerate(bodies(bare(codec, message))):
        for field in _optional_fields(body):
            plain = bare(codec, message)
            del bodies(plain)[place][field]
            assert type(codec.decode(msgspec.msgpack.encode(plain))) is type(message), field


FACT_KINDS = {kind.__struct_config__.tag: kind for kind in members(Fact)}


def _kind(body: dict[str, Any]) -> type[msgspec.Struct] | None:
    """The type of a tagged body; facts have a tag field of their own."""
    found = (getattr(module, str(body.get("type")), None) for module in (client, node, step))
    return next((kind for kind in found if kind is not None), FACT_KINDS.get(body.get("kind")))


def _optional_fields(body: dict[str, Any]) -> list[str]:
    kind = _kind(body)
    assert kind is not None
    return [field.name for field in msgspec.structs.fields(kind) if not field.required]


@pytest.mark.parametrize("name", ["client.Submit", "client.UpdateJob", "client.CreateStep"])
def test_a_wish_that_is_not_understood_is_refused(name: str) -> None:
    codec, message = next((codec, message) for known, codec, message in wire_messages() if known == name)
    plain = bare(codec, message)
    body = bodies(plain)[0]
    wish = next(body[field] for field in STRICT if field in body)
    wish["unheard_of"] = 1

    with pytest.raises(ProtocolError, match="unheard_of"):
        codec.decode(msgspec.msgpack.encode(plain))


def test_the_head_of_a_request_can_be_read_when_its_body_is_unknown() -> None:
    data = msgspec.msgpack.encode([WIRE_VERSION + 1, b"r" * 16, {"type": "FromTheFuture"}])

    with pytest.raises(ProtocolError):
        client.REQUESTS.decode(data)
    assert client.REQUEST_HEADS.decode(data) == client.RequestHead(WIRE_VERSION + 1, RequestId(b"r" * 16))
