"""Tokens as text: what is written is read again, and what is no token is refused without being repeated."""

from __future__ import annotations

import pytest
import zmq

from gq.connection.curve import fresh_keys
from gq.connection.token import MARK, format_token, parse_token
from gq.errors import Refusal

SERVER = zmq.curve_keypair()[0]
JOIN = fresh_keys()
TOKEN = format_token(SERVER, JOIN.secret)


@pytest.mark.parametrize("text", [TOKEN, f"  {TOKEN}\n"], ids=["bare", "in space"])
def test_a_token_gives_both_keys_again(text: str) -> None:
    assert parse_token(text) == (SERVER, JOIN)


def test_a_token_is_one_short_word_that_no_shell_changes() -> None:
    assert len(TOKEN) == 90
    assert set(TOKEN) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "it is empty"),
        ("hello", f"it does not begin with `{MARK}`"),
        (TOKEN[1:], f"it does not begin with `{MARK}`"),
        (TOKEN[:-1], "is cut off"),
        (TOKEN[:-40], "it is cut off"),
        (MARK, "it is cut off"),
        (TOKEN + "AAAA", "it is too long"),
        (TOKEN[:-2] + "é", "it has invalid characters"),
        (TOKEN[:-1] + "!", "it has invalid characters"),
        (TOKEN[:20] + "\n" + TOKEN[20:], "it has invalid characters"),
    ],
    ids=["nothing", "words", "no head", "one short", "half", "head alone", "long", "accent", "mark", "two lines"],
)
def test_what_is_no_token_is_refused_without_being_repeated(text: str, why: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_token(text)

    assert refused.value.code == "bad_token"
    assert why in refused.value.message
    assert TOKEN[4:20] not in str(refused.value)


def test_the_first_characters_of_a_key_need_no_quotes() -> None:
    assert all(fresh_keys().public[:8].isalnum() for _ in range(20))
