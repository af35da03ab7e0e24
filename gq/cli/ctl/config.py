"""`gqctl config VERB`: what gq.toml says, where each value comes from, trying another, and reading it again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gq.cli.framework.command import JSON, Command
from gq.cli.framework.connection import ask, chosen_cluster, controller
from gq.cli.framework.operands import refuse_operands
from gq.cli.framework.output import (
    Column,
    JsonValue,
    sentence,
    write_json_list,
    write_line,
    write_sentence,
    write_table,
)
from gq.errors import Refusal, UsageError
from gq.request.getopt import Arguments
from gq.request.option import Option
from gq.units import render_instants
from gq.wire.client import CheckConfig, Done, ReloadConfig

_COLUMNS = (Column("SETTING"), Column("VALUE", is_wide=True, is_wrapped=True), Column("FROM", is_wide=True))


def _show(arguments: Arguments) -> int:
    from gq.config.config import DEFAULT, load_config  # reads TOML, which no other command does

    settings = list(load_config(chosen_cluster()).settings())
    chosen = [setting for setting in settings if _is_meant(setting[0], arguments.operands)]
    if arguments.operands and not chosen:
        raise Refusal("unknown_setting", f"`{arguments.operands[0]}` is not a setting", "gqctl config show lists all")
    if arguments.has("set"):
        chosen = [one for one in chosen if one[2] != DEFAULT]
    if arguments.has("json"):
        write_json_list(_json(*one) for one in chosen)
    else:
        write_table(_COLUMNS, [[(key, _text(value), origin.rpartition("/")[2]) for key, value, origin in chosen]])
    return 0


def _is_meant(key: str, wanted: tuple[str, ...]) -> bool:
    """A setting by its name, or by that of a table that it is in."""
    return not wanted or any(key == one or key.startswith(f"{one}.") for one in wanted)


def _json(key: str, value: object, origin: str) -> dict[str, JsonValue]:
    return {"setting": key, "value": value, "from": origin}


def _text(value: object) -> str:
    """Return the setting's value roughly as gq.toml writes it."""
    return "-" if value is None else " ".join(_words(msgspec.to_builtins(value))) or "-"


def _words(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield "true" if value else "false"
        case float():
            yield f"{value:g}"
        case dict():
            yield from (f"{name}={' '.join(_words(one))}" for name, one in value.items() if one or one == 0)
        case list() | tuple():
            alike = Counter(" ".join(_words(one)) for one in value)
            yield ", ".join(f"{count} × ({text})" if count > 1 else text for text, count in alike.items())
        case _:
            yield str(value)


def _reload(arguments: Arguments) -> int:
    refuse_operands(arguments)
    with controller() as client:
        done = ask(client, ReloadConfig(), Done)
    if arguments.has("json"):
        write_json_list([{"message": render_instants(done.text)}])
    elif done.text:
        write_sentence(sentence(done.text))
    return 0


def _check(arguments: Arguments) -> int:
    if len(arguments.operands) != 1:
        raise UsageError("operands", f"`gqctl config check` takes one FILE, not {len(arguments.operands)}")
    path = Path(arguments.operands[0])
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise Refusal("unreadable_config", f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refusal("unreadable_config", f"{path} is not UTF-8 text") from None
    from gq.config.config import parse_config  # reads TOML, which few commands do

    parse_config(text, str(path))  # what is wrong with it is said also where no controller answers
    with controller() as client:
        done = ask(client, CheckConfig(text=text, path=str(path)), Done)
    if arguments.has("json"):
        write_json_list([{"file": str(path), "is_valid": True, "message": render_instants(done.text)}])
        return 0
    write_line(f"{path} is valid; nothing was changed")
    for line in done.text.split("\n"):
        write_sentence(line)
    return 0


def verbs() -> dict[str, Command]:
    return {
        "show": Command(
            name="gqctl config show",
            summary="Show the settings of gq.toml on this host, and where each value comes from.",
            operands="[SETTING...]",
            options=(Option(name="set", help="Only the settings that the file sets."), JSON),
            run=_show,
            details="SETTING is a setting, such as limits.jobs, or a table, such as limits.",
        ),
        "check": Command(
            name="gqctl config check",
            summary="Check whether a file is a valid gq.toml and show what it would change; change nothing.",
            operands="FILE",
            options=(JSON,),
            run=_check,
        ),
        "reload": Command(
            name="gqctl config reload",
            summary="Make the controller reload its gq.toml; an invalid file changes nothing.",
            options=(JSON,),
            run=_reload,
        ),
    }
