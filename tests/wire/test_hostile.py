"""Whatever bytes arrive, decoding gives a message or a `ProtocolError`, and costs little."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gq.errors import ProtocolError
from gq.model.ids import RequestId
from gq.model.job import JobSpec
from gq.wire import client, node, step
from gq.wire.codec import MAX_MESSAGE_BYTES, Codec
from tests.wire.samples import LOG_TICKET, wire_messages

CODECS: dict[str, Codec[Any]] = {
    "requests": client.REQUESTS,
    "introductions": client.INTRODUCTIONS,
    "request heads": client.REQUEST_HEADS,
    "replies": client.REPLIES,
    "node messages": node.NODE_MESSAGES,
    "controller messages": node.CONTROLLER_MESSAGES,
    "to the door": step.TO_DOOR,
    "from the door": step.FROM_DOOR,
}
MESSAGES = list(wire_messages())
MAX_SCRIPT = client.MAX_SCRIPT_BYTES
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS.keys())


def decodes_or_is_refused(codec: Codec[Any], data: bytes) -> bool:
    """True if it was refused as it must be; anything but `ProtocolError` fails the test."""
    try:
        codec.decode(data)
    except ProtocolError as error:
        assert error.code in ("malformed", "too_large")
        assert len(error.message) < 1000
        return True
    return False


@every_codec
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_by_all_that_reads_a_body(codec: Codec[Any], data: bytes) -> None:
    assert decodes_or_is_refused(codec, data) or codec is client.REQUEST_HEADS


@pytest.mark.parametrize(("codec", "message"), [pytest.param(c, m, id=name) for name, c, m in MESSAGES])
def test_a_message_cut_short_anywhere_is_refused(codec: Codec[Any], message: Any) -> None:
    data = codec.encode(message)

    assert all(decodes_or_is_refused(codec, data[:length]) for length in range(len(data)))
    assert decodes_or_is_refused(codec, data + b"\x00"), "bytes after the end"


@given(which=st.sampled_from(MESSAGES), place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_message_with_a_changed_byte_is_a_message_or_is_refused(
    which: tuple[str, Codec[Any], Any], place: int, byte: int
) -> None:
    _, codec, message = which
    data = bytearray(codec.encode(message))
    data[place % len(data)] = byte

    refused = decodes_or_is_refused(codec, bytes(data))
    assert refused or codec.encode(codec.decode(bytes(data)))


@given(which=st.sampled_from(MESSAGES), other=st.sampled_from(list(CODECS)))
def test_a_message_for_another_socket_is_refused(which: tuple[str, Codec[Any], Any], other: str) -> None:
    _, codec, message = which
    wrong = CODECS[other]
    is_head = wrong is client.REQUEST_HEADS and codec in (client.REQUESTS, client.REPLIES, client.INTRODUCTIONS)

    assert wrong is codec or is_head or decodes_or_is_refused(wrong, codec.encode(message))


@every_codec
@pytest.mark.parametrize("opening", [b"\x91", b"\x81\x01", b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_nesting_without_end_and_sizes_that_are_lies_are_refused(codec: Codec[Any], opening: bytes) -> None:
    assert decodes_or_is_refused(codec, opening * 100_000)


def test_a_message_over_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolError) as caught:
        client.REQUESTS.decode(bytes(MAX_MESSAGE_BYTES + 1))

    assert caught.value.code == "too_large"
    assert str(MAX_MESSAGE_BYTES) in caught.value.message


def test_each_way_has_the_limit_that_its_contents_need() -> None:
    script = client.request(RequestId(bytes(16)), client.Submit(spec=JobSpec(name="large"), script=bytes(MAX_SCRIPT)))
    orders = node.Orders(orders=(), blobs={"d": bytes(MAX_SCRIPT)})

    assert client.REQUESTS.decode(script).body.script == bytes(MAX_SCRIPT)  # type: ignore[union-attr]
    assert node.CONTROLLER_MESSAGES.decode(node.CONTROLLER_MESSAGES.encode(orders)) == orders


@given(data=st.binary(max_size=120))
def test_a_random_ticket_opens_nothing(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        step.unseal(data, b"k" * 32)


@given(place=st.integers(0, len(LOG_TICKET) - 1), flip=st.integers(1, 255))
def test_a_ticket_with_one_changed_byte_opens_nothing(place: int, flip: int) -> None:
    data = bytearray(LOG_TICKET)
    data[place] ^= flip

    with pytest.raises(ProtocolError, match="not signed for this node"):
        step.unseal(bytes(data), b"k" * 32)
