"""`gqctl token VERB`: what lets a host become a node, once.

The key pair is made here and only its public half is sent: the token itself is nowhere but in what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from gq.cli.ctl.key import key_json, keys_of, of_prefix, short
from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import Column, JsonValue, is_terminal, local_time, write_json_list, write_table
from gq.host.files import create_file
from gq.model.key import KeyInfo, KeyKind
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import iso_instant, parse_duration_s
from gq.wire.client import CreateToken, Done, RevokeKey, TokenCreated

DEFAULT_TTL = "1h"

_COLUMNS = (
    Column("TOKEN"), Column("FOR"), Column("LOGIN"), Column("UNTIL"), Column("USED BY"),
    Column("CREATED BY", is_wide=True),
)  # fmt: skip


def _create(arguments: Arguments) -> int:
    from gq.connection.curve import fresh_keys
    from gq.connection.token import format_token

    refuse_operands(arguments, "use --node-name=NAME to name the node")
    pair = fresh_keys()
    request = CreateToken(
        public=pair.public.decode(),
        ttl_s=arguments.read("ttl", _ttl_s) or _ttl_s(DEFAULT_TTL),
        node=arguments.text("node-name"),
        is_login=arguments.has("login"),
    )
    path = arguments.text("out")
    is_json = arguments.has("json")
    with _token_file(path) as out, controller() as client:
        answer = ask(client, request, TokenCreated)
        token = format_token(answer.server_key.encode(), pair.secret)
        if path or not is_json:
            out.write(f"{token}\n")
    if is_json:
        write_json_list([_json(request, answer, "" if path else token)])
    elif path or is_terminal():  # who reads it from a pipe knows what to do with it
        _tell(request, answer, path)
    return 0


def _json(request: CreateToken, answer: TokenCreated, token: str) -> dict[str, JsonValue]:
    return {
        "token": token or None,
        "node": request.node or None,
        "is_login": request.is_login,
        "endpoint": answer.endpoint,
        "expires_at": iso_instant(answer.expires_at),
    }


def _ttl_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if not seconds:
        raise ValueError(f"`{text}` is not a valid lifetime; for example 10m, 1h or 1d")
    return seconds


@contextmanager
def _token_file(path: str) -> Iterator[TextIO]:
    """Standard output, or a new file that only its owner reads; there before a token is made, gone if none is."""
    if not path:
        yield sys.stdout
        return
    create_file(Path(path), "", 0o600)
    try:
        with Path(path).open("w") as file:
            yield file
    except BaseException:
        Path(path).unlink()
        raise


def _tell(request: CreateToken, answer: TokenCreated, path: str) -> None:
    """How to use it, apart from the token itself."""
    who = f"the {'login ' if request.is_login else ''}node {request.node}" if request.node else _any(request.is_login)
    warn(f"The token lets {who} join, once.")
    warn(f"Before {local_time(answer.expires_at)}, run on that host as root:")
    warn(f"  gqnode join {answer.endpoint} --token-file {Path(path).name if path else 'FILE'} --start")
    if not path:
        warn("without --token-file, gqnode reads the token from standard input")


def _any(is_login: bool) -> str:
    return "one login node" if is_login else "one node"


def _list(arguments: Arguments) -> int:
    refuse_operands(arguments)
    with controller() as client:
        tokens = [key for key in keys_of(client) if key.kind is KeyKind.JOIN]
    if arguments.has("json"):
        write_json_list(key_json(token) for token in tokens)
    else:
        write_table(_COLUMNS, [[_row(token) for token in tokens]])
    return 0


def _row(token: KeyInfo) -> tuple[str, ...]:
    login = "yes" if token.is_login else "no"
    until = local_time(token.expires_at, "-")
    return short(token.public), token.name or "any", login, until, token.joined or "-", token.added_by


def _revoke(arguments: Arguments) -> int:
    with controller() as client:
        tokens = [key for key in keys_of(client) if key.kind is KeyKind.JOIN]
        for token in of_prefix(arguments, tokens, "TOKEN", "`gqctl token list` lists the tokens"):
            ask(client, RevokeKey(public=token.public), Done)
    return 0


def verbs() -> dict[str, Command]:
    return {
        "create": Command(
            name="gqctl token create",
            summary="Create a token with which one host may join as a node.",
            options=(
                Option(name="ttl", metavar="TIME", help=f"How long the token is valid ({DEFAULT_TTL})."),
                Option(name="node-name", metavar="NAME", help="Let only a node of this name join."),
                Option(
                    name="login", help="Let a login node join: it runs no jobs and vouches for all users of its host."
                ),
                Option(
                    name="out", metavar="FILE", help="Write the token to a new file (0600), not to standard output."
                ),
                JSON,
            ),
            run=_create,
            details="The token is a secret: pass it on in a file or a pipe, never on a command line. In a pipe, only "
            "the token is printed.",
        ),
        "list": Command(name="gqctl token list", summary="Show all tokens.", options=(JSON,), run=_list),
        "revoke": Command(
            name="gqctl token revoke",
            summary="Revoke tokens; nodes that have joined with them stay.",
            operands="TOKEN...",
            run=_revoke,
            details="TOKEN is the beginning of a token that `gqctl token list` shows.",
        ),
    }
