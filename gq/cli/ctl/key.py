"""`gqctl key VERB`: the keys with which somebody comes in from another host."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from gq.cli.framework.command import JSON, Command, warn
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.operands import operands, refuse_operands
from gq.cli.framework.output import Column, JsonValue, local_time, write_json_list, write_line, write_table
from gq.connection.client import Client
from gq.errors import Refusal, UsageError
from gq.model.key import PUBLIC_KEY_CHARACTERS, KeyInfo, KeyKind
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import AddKey, Done, Identity, Keys, ListKeys, RevokeKey, WhoAmI

SHOWN_CHARACTERS = 8
LEAST_CHARACTERS = 6
"""Minimum number of characters of a key that name it."""

_WORDS = {KeyKind.NODE: "node", KeyKind.USER: "user", KeyKind.JOIN: "token"}
_COLUMNS = (
    Column("KEY"), Column("KIND"), Column("OF"), Column("ADDED"), Column("BY"), Column("NOTE", is_wide=True)
)  # fmt: skip


def short(public: str) -> str:
    """Enough of a key to name it by."""
    return public[:SHOWN_CHARACTERS]


def keys_of(client: Client, user: str = "") -> tuple[KeyInfo, ...]:
    """The keys that the caller may see."""
    return ask(client, ListKeys(user=user), Keys).keys


def key_json(key: KeyInfo) -> dict[str, JsonValue]:
    return {
        "public": key.public,
        "kind": _WORDS[key.kind],
        "name": key.name,
        "uid": key.uid,
        "is_login": key.is_login,
        "added_at": iso_instant(key.added_at),
        "added_by": key.added_by,
        "expires_at": iso_instant(key.expires_at),
        "joined": key.joined,
        "note": key.note,
    }


def of_prefix(arguments: Arguments, keys: Sequence[KeyInfo], what: str, hint: str) -> list[KeyInfo]:
    """The keys that the operands mean, each by its first characters."""
    if not arguments.operands:
        raise UsageError("missing_operand", f"{what} is missing", hint)
    return [_only_one(word, keys, what.lower(), hint) for word in arguments.operands]


def _only_one(prefix: str, keys: Sequence[KeyInfo], what: str, hint: str) -> KeyInfo:
    if len(prefix) < LEAST_CHARACTERS:
        raise UsageError("bad_value", f"`{prefix}` is too short for a {what}", f"give {LEAST_CHARACTERS} characters")
    found = [key for key in keys if key.public.startswith(prefix)]
    if not found:
        raise Refusal("unknown_key", f"no {what} begins with `{prefix}`", hint)
    if len(found) > 1:
        raise Refusal("ambiguous_key", f"{len(found)} {what}s begin with `{prefix}`", "give more characters")
    return found[0]


def _add(arguments: Arguments) -> int:
    [public] = operands(arguments, str, "PUBLIC", at_most=1)
    if public == "-":
        public = sys.stdin.read(1000).strip()
    if len(public) != PUBLIC_KEY_CHARACTERS:
        raise UsageError(
            "bad_key",
            f"a public key has {PUBLIC_KEY_CHARACTERS} characters, this has {len(public)}",
            "put the key in single quotes, or give `-` and the key on standard input",
        )
    with controller() as client:
        ask(client, AddKey(public=public, user=arguments.text("user"), note=arguments.text("note")), Done)
        identity = ask(client, WhoAmI(), Identity)
    if arguments.has("json"):
        controller_at = {"controller": identity.client_endpoint or None, "server_key": identity.server_key or None}
        write_json_list([{"public": public, "user": arguments.text("user") or identity.user, **controller_at}])
    else:
        _tell_client(identity)
    return 0


def _tell_client(identity: Identity) -> None:
    """Print the configuration that the key's machine needs to reach the cluster."""
    if not identity.client_endpoint:
        warn("The key is enrolled but cannot be used yet: gq.toml of the controller does not set")
        warn("`listen_clients` in [controller].")
        return
    warn("On the key's machine, write to /etc/gq/gq.toml or to the file that GQ_CONFIG names:")
    write_line("[client]")
    write_line(f'controller = "{identity.client_endpoint}"')
    write_line(f'server_key = "{identity.server_key}"')


def _show(arguments: Arguments) -> int:
    refuse_operands(arguments, "--user=USER shows the keys of one user")
    with controller() as client:
        keys = [key for key in keys_of(client, arguments.text("user")) if key.kind is not KeyKind.JOIN]
    if arguments.has("json"):
        write_json_list(key_json(key) for key in keys)
    else:
        write_table(_COLUMNS, [[_row(key) for key in keys]])
    return 0


def _row(key: KeyInfo) -> tuple[str, ...]:
    kind = "login" if key.is_login else _WORDS[key.kind]
    return short(key.public), kind, key.name, local_time(key.added_at or None, "-"), key.added_by or "-", key.note


def _revoke(arguments: Arguments) -> int:
    with controller() as client:
        for key in of_prefix(arguments, keys_of(client), "KEY", "`gqctl key show` lists the keys"):
            ask(client, RevokeKey(public=key.public), Done)
    return 0


def verbs() -> dict[str, Command]:
    return {
        "add": Command(
            name="gqctl key add",
            summary="Enrol a key for commands on a machine outside the cluster, as a user.",
            operands="PUBLIC",
            options=(
                Option(
                    name="user",
                    letter="u",
                    metavar="USER",
                    help="Owner of the key (default: you); administrators may enrol keys of others.",
                ),
                Option(name="note", metavar="TEXT", help="Note on where the key is used, for example `laptop`."),
                JSON,
            ),
            run=_add,
            details="PUBLIC is what `gq key new` printed on that machine, in single quotes; `-` reads it from "
            "standard input.",
        ),
        "show": Command(
            name="gqctl key show",
            summary="Show your keys; operators and administrators see all keys.",
            options=(Option(name="user", letter="u", metavar="USER", help="Only keys of this user."), JSON),
            run=_show,
        ),
        "revoke": Command(
            name="gqctl key revoke",
            summary="Revoke keys at once, also on open connections.",
            operands="KEY...",
            run=_revoke,
            details="KEY is the beginning of a key that `gqctl key show` shows.",
        ),
    }
