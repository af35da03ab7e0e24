"""Crontabs: set, show and remove them, and submit a job of the owner when an entry is due.  Pure.

Each due time of an entry is handled once: one turn has both the job and `CronFired`, or `CronFired` says why there is
no job.  The job takes the way of every submission: the shell looks up the owner and asks the site's submit hook
(`FireCron`), the answer comes as a `ClientRequest` (`CronDue`), and `job.decide_submit` decides.  If that answer is
lost, the entry is fired again.

Two events lead to notices: `CronFired` with ``why`` (no job was submitted, or due times were missed), and
`CronRunEnded` with ``why`` (the job did not succeed).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gq.calendar.schedule import instants, read_schedule
from gq.errors import Refusal
from gq.model.crontab import MAX_TEXT_BYTES, CronEntry, CronEntryInfo, CrontabInfo, Missed, Overlap
from gq.model.dependency import DependencyKind
from gq.model.ids import JobId
from gq.model.job import JobSpec
from gq.model.state import JobState, Outcome, state_word
from gq.wire import client
from gqd.control import access, audit, job
from gqd.control.access import Caller, Denied
from gqd.control.explain.limits import NoRoom
from gqd.state.cluster import Cluster
from gqd.state.crontab import Crontab, Entry, EntryKey
from gqd.state.effect import FireCron
from gqd.state.end_reason import how_it_ended
from gqd.state.events import event
from gqd.state.input import ClientRequest, CronDue, Peer
from gqd.state.records import Job

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

LATE_S = 300.0
"""A due time that is longer ago counts as missed: no controller was running."""
ASK_AGAIN_S = 60.0
"""Seconds after which an entry that was fired without an answer is fired again."""
MAX_LISTED = 20
"""Entries that one refusal lists."""
MAX_PER_TICK = 100
"""Due entries that one tick handles."""
MAX_LOOKED_BACK = 2000
"""Due times counted after an outage: for one entry, and for all entries of one tick (the last may exceed it)."""
MAX_NEXT = 100
MAX_NEXT_IN_ALL = 1000
"""Future due times in one answer, over all entries of the crontab."""
FULL = ("queue_full", "too_many_jobs")
"""Refusals of a submission that need not hold when the entry is due; `NoRoom` is one, too."""
NEVER = float("inf")


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_set(draft: TurnBuilder, caller: Caller, request: ClientRequest, body: client.SetCrontab) -> client.Crontab:
    """Every entry is checked as a submission would be, before anything changes; a refusal names its line."""
    owner = _owner(caller, request, body.user)
    _refuse_too_much(draft, body)
    refused = islice(_refused(draft, owner, request, body.jobs), MAX_LISTED)
    if first := next(refused, None):
        kind = Denied if isinstance(first.refusal, Denied) else Refusal
        raise kind(first.refusal.code, *_joined_refusals([first, *refused])) from None
    draft.volatile.zones |= request.zones
    entries = tuple([_known_entry(cron_job.entry) for cron_job in body.jobs])
    fact = event.CrontabSet(at=draft.now, user=owner.user, uid=owner.uid, text=body.text, entries=entries)
    draft.emit(fact)
    _schedule_all(draft)
    return client.Crontab(crontab=shown(draft, draft.cluster.crontabs[owner.user], 1))


class _RefusedEntry(NamedTuple):
    line: int
    refusal: Refusal


def _refused(
    draft: TurnBuilder, owner: Peer, request: ClientRequest, jobs: Iterable[client.CronJob]
) -> Iterator[_RefusedEntry]:
    for cron_job in jobs:
        try:
            _refuse_bad_entry(draft, owner, request, cron_job.entry)
        except Refusal as refusal:
            yield _RefusedEntry(cron_job.entry.line, refusal)


def _joined_refusals(refused: list[_RefusedEntry]) -> tuple[str, str]:
    """(message, hint) of all refused entries; several have one line each, with the hint in parentheses."""
    lines = [f"line {line}: {refusal.message}" for line, refusal in refused]
    if len(refused) == 1:
        return lines[0], refused[0].refusal.hint
    hints = [f" ({entry.refusal.hint})" if entry.refusal.hint else "" for entry in refused]
    more = f"\nthese are the first {MAX_LISTED}" if len(refused) == MAX_LISTED else ""
    return "\n".join(map("".join, zip(lines, hints, strict=True))) + more, ""


def _owner(caller: Caller, request: ClientRequest, user: str) -> Peer:
    if user in ("", caller.peer.user):
        return caller.peer
    named = request.named_user
    if named is None:
        raise Refusal("unknown_user", f"there is no user `{user}` on the controller's host")
    return Peer(uid=named.uid, gid=named.gid, user=named.user, groups=named.groups)


def _refuse_too_much(draft: TurnBuilder, body: client.SetCrontab) -> None:
    max_entries, size = draft.policy.limits.crontab_entries, len(body.text.encode(errors="replace"))
    if len(body.jobs) > max_entries:
        message = f"the crontab has {len(body.jobs)} entries; the maximum is {max_entries}"
        raise Refusal("crontab_too_large", message, "limits.crontab_entries in gq.toml sets the maximum")
    if size > MAX_TEXT_BYTES or "\0" in body.text:
        message = f"the crontab is {size} bytes long; the maximum is {MAX_TEXT_BYTES} bytes"
        raise Refusal("crontab_too_large", message, "move long commands into scripts")


def _refuse_bad_entry(draft: TurnBuilder, owner: Peer, request: ClientRequest, entry: CronEntry) -> None:
    spec = entry.spec
    try:
        read_schedule(entry.schedule)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise Refusal("bad_schedule", message, hint) from None
    if entry.zone and entry.zone not in request.zones:
        message = f"`{entry.zone[:60]}` is not a time zone of the controller's host"
        raise Refusal("unknown_zone", message, "for example CRON_TZ=Europe/Berlin")
    if spec.is_interactive:
        raise Refusal("bad_entry", "an entry needs a batch command, and this is an interactive job")
    terms = spec.dependency.terms if spec.dependency is not None else ()
    if any(term.kind is not DependencyKind.SINGLETON for term in terms):
        message = "an entry runs repeatedly, and its dependency names a job that runs once"
        raise Refusal("bad_entry", message, "--dependency=singleton waits for jobs of the same name")
    if not draft.policy.notify.mail and any(target.is_optional for target in spec.notify):
        hint = (
            "--notify=command:PROGRAM or --notify=webhook:URL is possible without mail; `mail` in gq.toml turns it on"
        )
        raise Refusal("bad_notify", "--mail-type: this cluster sends no mail", hint)
    caller = access.caller_of(owner, draft.cluster, draft.policy)
    try:
        job.prepare(draft, caller, request, _spec_of(entry, draft.now))
    except NoRoom:
        return
    except Refusal as refusal:
        if refusal.code not in FULL:
            raise


def _known_entry(entry: CronEntry) -> CronEntry:
    schedule = read_schedule(entry.schedule)
    spec = msgspec.structs.replace(entry.spec, cron=f"line {entry.line}: {schedule}")
    return msgspec.structs.replace(entry, schedule=schedule, spec=spec)


def _spec_of(entry: CronEntry, due_at: float) -> JobSpec:
    """The spec of the job for this due time: relative begin and deadline become instants."""
    spec = entry.spec
    if spec.begin_at is None and spec.deadline_at is None:
        return spec
    begin_at = None if spec.begin_at is None else due_at + spec.begin_at
    deadline_at = None if spec.deadline_at is None else due_at + spec.deadline_at
    return msgspec.structs.replace(spec, begin_at=begin_at, deadline_at=deadline_at)


def decide_remove(draft: TurnBuilder, caller: Caller, body: client.RemoveCrontab) -> client.Done:
    crontab = _known(draft.cluster, caller, body.user)
    draft.emit(event.CrontabRemoved(at=draft.now, user=crontab.user))
    _schedule_all(draft)
    return client.Done(text=f"the crontab of {crontab.user} is removed")


def get(draft: TurnBuilder, caller: Caller, body: client.GetCrontab) -> client.Crontab:
    crontab = _known(draft.cluster, caller, body.user)
    max_count = min(MAX_NEXT, max(1, MAX_NEXT_IN_ALL // max(1, len(crontab.entries))))
    return client.Crontab(crontab=shown(draft, crontab, min(max(body.count, 0), max_count)))


def list_all(draft: TurnBuilder, body: client.ListCrontabs, limit: int) -> client.Crontabs:
    users = sorted(user for user in draft.cluster.crontabs if user > body.after)
    found = [shown(draft, draft.cluster.crontabs[user], 1) for user in users[:limit]]
    bare = tuple([msgspec.structs.replace(crontab, text="") for crontab in found])
    return client.Crontabs(crontabs=bare, more=len(users) > limit)


def _known(cluster: Cluster, caller: Caller, user: str) -> Crontab:
    """The crontab of `user` (empty: of the caller), or `Refusal`."""
    user = user or caller.peer.user
    crontab = cluster.crontabs.get(user)
    if crontab is None:
        makes = "gqcron -e" if user == caller.peer.user else f"gqcron -u {user} -e"
        raise Refusal("no_crontab", f"no crontab for {user}", f"{makes} creates one")
    return crontab


# ── show ──────────────────────────────────────────────────────────────────────────────────────────────────────


def shown(draft: TurnBuilder, crontab: Crontab, count: int) -> CrontabInfo:
    """The crontab for an answer, with the next `count` due times of each entry."""
    entries = tuple([_entry_info(draft, entry, count) for entry in crontab.entries.values()])
    return CrontabInfo(user=crontab.user, set_at=crontab.set_at, text=crontab.text, entries=entries)


def _entry_info(draft: TurnBuilder, entry: Entry, count: int) -> CronEntryInfo:
    cron, zone = entry.cron, _zone(draft, entry)
    next_at = () if zone is None else tuple(islice(instants(cron.schedule, zone, draft.now), count))
    last = None if entry.last_job_id is None else draft.cluster.jobs.get(entry.last_job_id)
    return CronEntryInfo(
        line=cron.line,
        schedule=cron.schedule,
        zone=cron.zone,
        overlap=cron.overlap,
        missed=cron.missed,
        name=cron.spec.name,
        command=cron.spec.command,
        next_at=next_at,
        next=tuple([datetime.fromtimestamp(at, zone).isoformat() for at in next_at]),
        last_due_at=entry.last_due_at,
        job_id=entry.last_job_id,
        state=entry.last_state or ("" if last is None else state_word(last.state, last.outcome)),
        trouble=entry.trouble
        if zone is not None
        else f"the controller's host does not know the time zone `{cron.zone}`",
        trouble_at=entry.trouble_at,
    )


# ── due times ─────────────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """Fire the entries that are due."""
    volatile = draft.volatile
    if volatile.cron_due is None:
        _schedule_all(draft)
    if volatile.cron_next_at > draft.now or volatile.cron_due is None:
        return
    due = [key for key, at in volatile.cron_due.items() if at <= draft.now and not _is_asked(draft, key)]
    looked_back = 0
    for key in due[:MAX_PER_TICK]:
        looked_back += _fire_entry(draft, key)
        if looked_back >= MAX_LOOKED_BACK:
            break
    _find_next(draft)


def forget_schedule(draft: TurnBuilder) -> None:
    """Compute all due times anew: the controller's own time zone may have changed."""
    draft.volatile.cron_due = None
    draft.volatile.cron_next_at = 0.0


def _schedule_all(draft: TurnBuilder) -> None:
    crontabs = draft.cluster.crontabs.values()
    known = draft.volatile.cron_due or {}
    draft.volatile.cron_due = due = {}
    for crontab in crontabs:
        for number, entry in crontab.entries.items():
            key = EntryKey(crontab.user, number)
            at = known.get(key, NEVER) if crontab.set_at < draft.now else NEVER
            due[key] = _next_due(draft, entry) if at == NEVER else at
    draft.volatile.cron_asked.clear()
    _find_next(draft)


def _next_due(draft: TurnBuilder, entry: Entry) -> float:
    zone = _zone(draft, entry)
    return NEVER if zone is None else next(instants(entry.cron.schedule, zone, entry.followed_until), NEVER)


def _find_next(draft: TurnBuilder) -> None:
    volatile = draft.volatile
    due = (at for key, at in (volatile.cron_due or {}).items() if key not in volatile.cron_asked)
    again = (at + ASK_AGAIN_S for at in volatile.cron_asked.values())
    volatile.cron_next_at = min(min(due, default=NEVER), min(again, default=NEVER))


def _zone(draft: TurnBuilder, entry: Entry) -> tzinfo | None:
    """The time zone of the entry; None: this host does not know it (any more)."""
    return draft.volatile.zones.get(entry.cron.zone) if entry.cron.zone else draft.policy.zone


def _is_asked(draft: TurnBuilder, key: EntryKey) -> bool:
    asked_at = draft.volatile.cron_asked.get(key)
    return asked_at is not None and draft.now - asked_at < ASK_AGAIN_S


# ── a due entry ───────────────────────────────────────────────────────────────────────────────────────────────


class _Due(NamedTuple):
    """The due times of an entry that have passed and were not handled."""

    latest: float
    """The latest due time that has passed."""
    earlier: int
    """Count of unhandled due times before it."""


def _due(draft: TurnBuilder, entry: Entry, zone: tzinfo) -> _Due:
    """The unhandled due times of the entry; counting stops at `MAX_LOOKED_BACK`."""
    schedule, now = entry.cron.schedule, draft.now
    passed = _until(schedule, zone, entry.followed_until, now)
    of_late = _until(schedule, zone, max(passed[-1], now - 3600.0), now) if len(passed) == MAX_LOOKED_BACK else []
    return _Due((of_late or passed)[-1], len(passed) - 1)


def _until(schedule: str, zone: tzinfo, after: float, now: float) -> list[float]:
    passed = []
    for at in islice(instants(schedule, zone, after), MAX_LOOKED_BACK):
        if at > now:
            break
        passed.append(at)
    return passed


def _fire_entry(draft: TurnBuilder, key: EntryKey) -> int:
    """Fire a due entry, or record why not.  → count of unhandled due times before the latest."""
    entry = draft.cluster.crontabs[key.user].entries[key.number]
    zone = _zone(draft, entry)
    assert zone is not None, f"{key} is due in an unknown time zone"
    due = _due(draft, entry, zone)
    is_missed = draft.now - due.latest > LATE_S
    if is_missed and entry.cron.missed is Missed.SKIP:
        missed = due.earlier + 1
        _emit_fired(
            draft, key, due.latest, why=f"{_missed(missed)} (the last one: @{{{int(due.latest)}}})", missed=missed
        )
    elif why := _why_busy(draft.cluster, entry):
        _emit_fired(draft, key, due.latest, why=why, missed=due.earlier, is_busy=True)
    else:
        crontab = draft.cluster.crontabs[key.user]
        spec = _spec_of(entry.cron, draft.now if is_missed else due.latest)
        cron = CronDue(user=key.user, number=key.number, set_at=crontab.set_at, due_at=due.latest, earlier=due.earlier)
        draft.volatile.cron_asked[key] = draft.now
        draft.enqueue(FireCron(uid=crontab.uid, cron=cron, spec=spec))
    return due.earlier + 1


def _missed(count: int) -> str:
    times = "a due time was" if count == 1 else f"{count} due times were"
    return f"{times} missed: the controller was not running"


def _why_busy(cluster: Cluster, entry: Entry) -> str:
    """Empty: nothing of it is in the way."""
    last = None if entry.last_job_id is None else cluster.jobs.get(entry.last_job_id)
    if entry.cron.overlap is Overlap.ALLOW or last is None or last.state is JobState.ENDED:
        return ""
    word = "pending" if last.state is JobState.PENDING else "running"
    return f"job {last.job_id} of the previous run is still {word}"


def _emit_fired(
    draft: TurnBuilder,
    key: EntryKey,
    due_at: float,
    *,
    job_id: JobId | None = None,
    why: str = "",
    missed: int = 0,
    is_busy: bool = False,
) -> None:
    fact = event.CronFired(
        at=draft.now,
        user=key.user,
        number=key.number,
        due_at=due_at,
        job_id=job_id,
        why=why,
        missed=missed,
        is_known=is_busy and why == draft.cluster.crontabs[key.user].entries[key.number].trouble,
    )
    draft.emit(fact)
    draft.volatile.cron_asked.pop(key, None)
    if draft.volatile.cron_due is not None:
        draft.volatile.cron_due[key] = _next_due(draft, draft.cluster.crontabs[key.user].entries[key.number])
    draft.volatile.cron_next_at = 0.0  # the next tick finds the next due time once for all entries


def on_due(draft: TurnBuilder, request: ClientRequest, cron: CronDue) -> None:
    """The shell's answer to `FireCron`: submit the job, unless this due time has been handled meanwhile."""
    key = EntryKey(cron.user, cron.number)
    crontab = draft.cluster.crontabs.get(cron.user)
    entry = None if crontab is None or crontab.set_at != cron.set_at else crontab.entries.get(cron.number)
    if entry is None or cron.due_at <= entry.followed_until:
        return
    if busy := _why_busy(draft.cluster, entry):
        _emit_fired(draft, key, cron.due_at, why=busy, missed=cron.earlier, is_busy=True)
        return
    job_id, why = _submit(draft, request, cron)
    if job_id is not None and cron.earlier:
        why = f"before this one {_missed(cron.earlier)}"
    _emit_fired(draft, key, cron.due_at, job_id=job_id, why=why, missed=cron.earlier)


def _submit(draft: TurnBuilder, request: ClientRequest, cron: CronDue) -> tuple[JobId | None, str]:
    """Submit the job as its owner.  → (job id, "") or (None, why it was refused)."""
    body = request.body
    assert isinstance(body, client.Submit)
    try:
        if cron.why_not:
            raise Refusal("unknown_user", cron.why_not)
        if request.hook_refusal:
            raise Refusal("hook_refused", request.hook_refusal, request.hook_hint)
        caller = access.caller_of(request.peer, draft.cluster, draft.policy)
        answer = job.decide_submit(draft, caller, request, body)
    except Refusal as refusal:
        answer = client.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
    line = audit.request_event(draft.now, request.peer, draft.cluster, body, answer, request.hook)
    draft.emit(msgspec.structs.replace(line, origin="crontab"))
    if isinstance(answer, client.Submitted):
        return JobId(answer.job_id), ""
    assert isinstance(answer, client.Refused)
    return None, f"refused: {answer.message}"


# ── ends of its jobs ──────────────────────────────────────────────────────────────────────────────────────────


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """Record the end of the latest job of an entry."""
    ended = draft.cluster.jobs.get(fact.job_id) if isinstance(fact, event.JobEnded) else None
    if ended is None or not ended.spec.cron:
        return
    crontab = draft.cluster.crontabs.get(ended.user)
    for number, entry in crontab.entries.items() if crontab is not None else ():
        if entry.last_job_id == ended.job_id:
            _note_end(draft, EntryKey(ended.user, number), ended)


def _note_end(draft: TurnBuilder, key: EntryKey, ended: Job) -> None:
    state = state_word(ended.state, ended.outcome)
    why = "" if ended.outcome is Outcome.COMPLETED else f"job {ended.job_id} is {state}: {how_it_ended(ended)[0]}"
    draft.emit(
        event.CronRunEnded(
            at=draft.now, user=key.user, number=key.number, job_id=ended.job_id, state=state, why=why.removesuffix(": ")
        )
    )
