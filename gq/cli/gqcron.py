"""`gqcron`: a user's crontab, whose entries become jobs.

As crontab(1): edited in the user's editor, listed, removed, replaced by a file or by standard input.  Whatever is
wrong with a text is said with its line before anything is sent, and no text that somebody has written is lost.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from gq.calendar.times import zone_named
from gq.cli.framework.command import JSON, Command, report, warn
from gq.cli.framework.connection import ask, controller
from gq.cli.framework.output import Column, local_time, plural, write_json, write_json_list, write_table
from gq.cli.framework.submission import refuse_missing_programs, submission
from gq.errors import GqError, Refusal, UsageError
from gq.model.crontab import MAX_TEXT_BYTES, CronEntryInfo, CrontabInfo
from gq.request.crontab import CRON_OPTIONS, CronContext, parse_crontab
from gq.request.getopt import Arguments, whole_number
from gq.request.option import Option
from gq.units import iso_instant
from gq.wire.client import Crontab, Crontabs, Done, GetCrontab, ListCrontabs, RemoveCrontab, SetCrontab

FRESH = """\
# minute hour day-of-month month day-of-week command
# Write options of gqsub above an entry; they apply to that entry only.
# Times are in CRON_TZ (default: the controller's zone).
#
# CRON_TZ=Europe/Berlin
# #GQ --gpus=1 --time=2h --output=nightly-%j.log
# 0 20 * * 1-5 ./train.sh
"""
"""Initial text for a user without a crontab."""
NAME = "crontab"
"""Name of an edited text in error messages."""
EDITOR = "vi"
_SHOWING = ("list", "list-next", "status", "all")
_ACTIONS = ("edit", "list", "remove", "list-next", "status", "all")


def run(arguments: Arguments) -> int:
    action = _action(arguments)
    if arguments.has("json") and action not in _SHOWING:
        raise UsageError("contradiction", "`--json` works only with -l, -n, -s or -a", "remove it")
    match action:
        case "edit":
            return _edit(arguments.text("user"))
        case "list":
            _show_text(_get(arguments), arguments)
        case "remove":
            return _remove(arguments)
        case "list-next":
            count = arguments.read("list-next", lambda text: whole_number(text, 1, 100)) or 1
            _show_next(_get(arguments, count), arguments)
        case "status":
            _show_status(_get(arguments), arguments)
        case "all":
            _show_all(arguments)
        case _:
            return _install_file(arguments.operands[0], arguments.text("user"))
    return 0


def _action(arguments: Arguments) -> str:
    """Return the requested action; a file replaces the crontab.  ``--list`` with ``--status`` is ``--status``."""
    given = [name for name in _ACTIONS if arguments.has(name)]
    if len(given) == 2 and given[0] == "list" and given[1] in ("list-next", "status"):
        given = given[1:]
    if len(given) + len(arguments.operands) != 1:
        rule = "missing FILE or option" if not (given or arguments.operands) else "more than one action is given"
        hint = "-e edits, -l lists, -r removes, -n shows when entries are due, FILE (or -) replaces the crontab"
        raise UsageError("bad_operand", rule, hint)
    if arguments.has("ask") and given != ["remove"]:
        raise UsageError("contradiction", "`--ask` works only with -r", "add -r, or remove --ask")
    return given[0] if given else "file"


# ── asked of the controller ───────────────────────────────────────────────────────────────────────────────────


def _get(arguments: Arguments, count: int = 1) -> CrontabInfo:
    with controller() as client:
        return ask(client, GetCrontab(user=arguments.text("user"), count=count), Crontab).crontab


def _remove(arguments: Arguments) -> int:
    whose = f"the crontab of {arguments.text('user')}" if arguments.has("user") else "your crontab"
    if arguments.has("ask") and not _is_yes(f"remove {whose}?"):
        return 1
    with controller() as client:
        ask(client, RemoveCrontab(user=arguments.text("user")), Done)
    return 0


def _set(text: str, name: str, user: str) -> CrontabInfo:
    """`Refusal` or `UsageError` of the first complaint; all others have been told by then."""
    found = parse_crontab(text, name, _surroundings(user))
    for complaint in found.complaints[:-1]:
        report(complaint)
    if found.complaints:
        raise found.complaints[-1]
    for job in found.jobs:
        refuse_missing_programs(job.entry.spec.notify)
    with controller() as client:
        kept = ask(client, SetCrontab(text=text, jobs=found.jobs, user=user), Crontab).crontab
    for note in found.notes:
        warn(note)
    return kept


def _surroundings(user: str) -> CronContext:
    try:
        home = pwd.getpwnam(user).pw_dir if user else os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        raise Refusal("unknown_user", f"this host knows no user `{user or os.geteuid()}`") from None
    around = submission(NAME)
    return CronContext(
        home=home if home.startswith("/") else "/",
        host=around.submit_host,
        umask=around.umask,
        has_zone=_has_zone,
    )


def _has_zone(name: str) -> bool:
    try:
        zone_named(name)
    except ValueError:
        return False
    return True


def _install_file(operand: str, user: str) -> int:
    try:
        if operand == "-":
            data, name = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1), "stdin"
        else:
            with Path(operand).open("rb") as file:
                data, name = file.read(MAX_TEXT_BYTES + 1), operand
    except OSError as error:
        raise Refusal("no_crontab", f"cannot read `{operand}`: {error.strerror}") from error
    _set(_text(data, name), name, user)
    return 0


def _text(data: bytes, name: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise Refusal(
            "crontab_too_large", f"`{name}` is longer than {MAX_TEXT_BYTES} bytes", "move commands into scripts"
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise UsageError(
            "bad_crontab", f"{name}:{line}: the line is not UTF-8", "save the file as UTF-8 text"
        ) from None


# ── edited ────────────────────────────────────────────────────────────────────────────────────────────────────


def _edit(user: str) -> int:
    before = _present(user) or FRESH
    path = Path(tempfile.mkdtemp(prefix="gqcron-"), NAME)
    path.write_text(before)
    status = _edit_until_good(path, before, user)
    if status and path.read_bytes() != before.encode():
        warn(f"your text is saved in {path}; `gqcron {path}` installs it")
    else:
        shutil.rmtree(path.parent)
    return status


def _present(user: str) -> str:
    """Empty: there is none."""
    try:
        with controller() as client:
            return ask(client, GetCrontab(user=user), Crontab).crontab.text
    except Refusal as refusal:
        if refusal.code != "no_crontab":
            raise
        return ""


def _edit_until_good(path: Path, before: str, user: str) -> int:
    """The exit status; not 0: it is not good, and whoever wrote it has had enough."""
    while True:
        try:
            _open_editor(path)
            text = _text(path.read_bytes(), NAME)
            if text == before:
                warn("the crontab was not changed")
            else:
                _tell(_set(text, NAME, user))
        except GqError as error:
            report(error)
            if not _is_yes("edit it again?"):
                return error.exit_status
        else:
            return 0


def _open_editor(path: Path) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or EDITOR
    status = subprocess.run(["/bin/sh", "-c", f'{editor} "$1"', "sh", str(path)], check=False).returncode
    if status:
        message = f"the editor `{editor}` ended with status {status}; the crontab was not changed"
        raise Refusal("editor_failed", message, "set VISUAL or EDITOR to another editor")


def _tell(kept: CrontabInfo) -> None:
    due = sorted((at, entry.line) for entry in kept.entries for at in entry.next_at)
    first = f"; the next is due {local_time(due[0][0])} (line {due[0][1]})" if due else ""
    warn(f"the crontab has {plural(len(kept.entries), 'entry').replace('entrys', 'entries')}{first}")


def _is_yes(question: str) -> bool:
    """Asked until it is answered; who says nothing any more says no."""
    while True:
        sys.stderr.write(f"{question} (y/n) ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if answer.strip().lower() in ("y", "yes"):
            return True
        if not answer or answer.strip().lower() in ("n", "no"):
            return False


# ── shown ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _entry_json(entry: CronEntryInfo) -> dict[str, object]:
    return {
        "line": entry.line,
        "schedule": entry.schedule,
        "zone": entry.zone or None,
        "name": entry.name,
        "command": entry.command,
        "overlap": entry.overlap.value,
        "missed": entry.missed.value,
        "next_at": entry.next,
        "last_due_at": iso_instant(entry.last_due_at),
        "job_id": entry.job_id,
        "state": entry.state or None,
        "trouble": entry.trouble or None,
        "trouble_at": iso_instant(entry.trouble_at),
    }


def _show_text(crontab: CrontabInfo, arguments: Arguments) -> None:
    if arguments.has("json"):
        write_json({**_json(crontab), "text": crontab.text})
    else:
        sys.stdout.write(crontab.text)


def _json(crontab: CrontabInfo) -> dict[str, object]:
    entries = [_entry_json(entry) for entry in crontab.entries]
    return {"user": crontab.user, "set_at": iso_instant(crontab.set_at), "entries": entries}


def _show_next(crontab: CrontabInfo, arguments: Arguments) -> None:
    if arguments.has("json"):
        write_json(_json(crontab))
        return
    columns = (Column("LINE", is_number=True), Column("DUE"), Column("SCHEDULE"), Column("COMMAND", is_wide=True))
    rows = [
        (str(entry.line), _in_zone(at, entry.zone), entry.schedule, entry.command)
        for entry in crontab.entries
        for at in entry.next
    ]
    write_table(columns, [rows])


def _in_zone(moment: str, zone: str) -> str:
    """``Mon 2026-11-23 20:00 +01:00 Europe/Berlin``"""
    when = datetime.fromisoformat(moment)
    return f"{when:%a %Y-%m-%d %H:%M} {when.isoformat()[-6:]} {zone}".rstrip()


def _show_status(crontab: CrontabInfo, arguments: Arguments) -> None:
    if arguments.has("json"):
        write_json(_json(crontab))
        return
    columns = (
        Column("LINE", is_number=True), Column("SCHEDULE"), Column("LAST DUE"), Column("JOB", is_number=True),
        Column("STATE"), Column("NEXT DUE"), Column("COMMAND", is_wide=True), Column("TROUBLE", is_wrapped=True),
    )  # fmt: skip
    write_table(columns, [[_status_row(entry) for entry in crontab.entries]])


def _status_row(entry: CronEntryInfo) -> tuple[str, ...]:
    return (
        str(entry.line),
        entry.schedule,
        local_time(entry.last_due_at, "-"),
        "-" if entry.job_id is None else str(entry.job_id),
        entry.state or "-",
        local_time(next(iter(entry.next_at), None), "-"),
        entry.command,
        entry.trouble or "-",
    )


def _show_all(arguments: Arguments) -> None:
    found = _all_crontabs()
    if arguments.has("json"):
        write_json_list(_json(one) for one in found)
        return
    columns = (
        Column("USER"), Column("ENTRIES", is_number=True), Column("TROUBLED", is_number=True), Column("NEXT DUE"),
        Column("SET"),
    )  # fmt: skip
    write_table(columns, [[_user_row(one) for one in found]])


def _all_crontabs() -> list[CrontabInfo]:
    found: list[CrontabInfo] = []
    with controller() as client:
        while True:
            page = ask(client, ListCrontabs(after=found[-1].user if found else ""), Crontabs)
            found += page.crontabs
            if not page.more:
                return found


def _user_row(crontab: CrontabInfo) -> tuple[str, ...]:
    troubled = sum(bool(entry.trouble) for entry in crontab.entries)
    next_at = min(_due(crontab.entries), default=None)
    return (
        crontab.user, str(len(crontab.entries)), str(troubled), local_time(next_at, "-"), local_time(crontab.set_at)
    )  # fmt: skip


def _due(entries: Iterable[CronEntryInfo]) -> list[float]:
    return [at for entry in entries for at in entry.next_at]


COMMAND = Command(
    name="gqcron",
    summary="Run commands as jobs on a schedule, from a crontab.",
    operands="[FILE | -]",
    options=(
        Option(name="edit", letter="e", help="Edit the crontab in $VISUAL, $EDITOR or vi."),
        Option(name="list", letter="l", help="Print the crontab."),
        Option(name="remove", letter="r", help="Remove the crontab; jobs already queued continue."),
        Option(name="ask", letter="i", help="Ask before removing the crontab."),
        Option(name="user", letter="u", metavar="USER", help="Act on the crontab of this user."),
        Option(
            name="list-next",
            letter="n",
            metavar="[=COUNT]",
            if_bare="1",
            help="Show when each entry is due next, in its zone.",
        ),
        Option(name="status", letter="s", help="Show the state of each entry's last job, and errors."),
        Option(name="all", letter="a", help="List all crontabs (operators)."),
        JSON,
    ),
    run=run,
    details=(
        "FILE replaces the crontab; - is standard input. Lines have the form of crontab(5). Lines that begin with "
        "#GQ, #SCRON or #SBATCH hold options for the next entry: those of gqsub, and "
        + ", ".join(f"--{option.name}={option.metavar}" for option in CRON_OPTIONS)
        + "."
    ),
)
