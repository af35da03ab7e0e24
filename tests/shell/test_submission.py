"""Scripts and environments become names: the same bytes, the same name; nothing of them stays in the spec."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from gq.errors import Refusal
from gq.wire.client import Submit
from gqd.shell.listeners.submission import take_blobs
from tests.shell.rig import job

SCRIPT = b"#!/bin/sh\ntrue\n"


def submit(**fields: object) -> Submit:
    return msgspec.structs.replace(job(), **fields)


def test_a_script_and_an_environment_are_named_by_their_sha256() -> None:
    bare, blobs = take_blobs(submit(script=SCRIPT, environment={"A": "1"}), 100, 100)
    assert bare.script == b""
    assert bare.environment == {}
    assert bare.spec.script_digest == hashlib.sha256(SCRIPT).hexdigest()
    assert set(blobs) == {bare.spec.script_digest, bare.spec.environment_digest}
    assert msgspec.msgpack.decode(blobs[bare.spec.environment_digest]) == {"A": "1"}


def test_the_order_of_an_environment_does_not_matter() -> None:
    one, _ = take_blobs(submit(environment={"A": "1", "B": "2"}), 100, 100)
    other, _ = take_blobs(submit(environment={"B": "2", "A": "1"}), 100, 100)
    assert one.spec == other.spec


def test_names_that_a_client_made_up_are_replaced() -> None:
    forged = msgspec.structs.replace(job().spec, script_digest="0" * 64, environment_digest="1" * 64)
    bare, blobs = take_blobs(submit(spec=forged, script=b"", environment={}), 100, 100)
    assert (bare.spec.script_digest, bare.spec.environment_digest, blobs) == ("", "", {})


def test_a_mere_test_stores_nothing() -> None:
    bare, blobs = take_blobs(submit(test_only=True), 100, 100)
    assert bare.spec.script_digest
    assert blobs == {}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"script": b"x" * 101}, "script_too_large"),
        ({"environment": {"A": "x" * 100}}, "environment_too_large"),
    ],
)
def test_what_is_over_its_limit_is_refused(fields: dict[str, object], code: str) -> None:
    with pytest.raises(Refusal) as caught:
        take_blobs(submit(**fields), 100, 100)
    assert caught.value.code == code
    assert "100" in caught.value.message
