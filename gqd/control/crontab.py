"""Crontabs: set, shown, removed; what is due becomes jobs of its owner.  Pure.

An entry is seen to once for each instant at which it is due: either a job and `CronFired` come in the same turn, or
`CronFired` says why there is none.  What makes a job goes the way of every submission: the shell is asked who the
owner is now, and the site's submit hook what it says (`FireCron`); the answer comes as a `ClientRequest` (`CronDue`),
and `job.decide_submit` decides.  If that answer is lost, it is asked again.

Whoever is to be told follows two events: `CronFired` with ``why`` (no job was made, or due times were missed), and
`CronRunEnded` with ``why`` (its job did not end well).
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
"""A due time that is longer ago was missed: there was no controller."""
ASK_AGAIN_S = 60.0
"""After an entry was fired and nothing came of it."""
MAX_TOLD = 20
"""Entries that one refusal tells of."""
MAX_PER_TICK = 100
"""Entries that are seen to in one."""
MAX_LOOKED_BACK = 2000
"""Due times that are counted after an outage: of one entry, and of all in one tick, but for the last of them."""
MAX_NEXT = 100
MAX_NEXT_IN_ALL = 1000
"""Of a crontab with many entries fewer of each are told."""
FULL = ("queue_full", "too_many_jobs")
"""Refusals of a submission that need not hold when the entry is due; `NoRoom` is one, too."""
NEVER = float("inf")


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────


def decide_set(draft: TurnBuilder, who: Caller, request: ClientRequest, body: client.SetCrontab) -> client.Crontab:
    """Every entry is checked as a submission would be, before anything changes; a refusal names its line."""
    owner = _owner(who, request, body.user)
    _refuse_too_much(draft, body)
    refused = islice(_refused(draft, owner, request, body.jobs), MAX_TOLD)
    if first := next(refused, None):
        kind = Denied if isinstance(first.refusal, Denied) else Refusal
        raise kind(first.refusal.code, *_told_together([first, *refused])) from None
    draft.volatile.zones |= request.zones
    entries = tuple([_known_entry(one.entry) for one in body.jobs])
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
    for one in jobs:
        try:
            _refuse_bad_entry(draft, owner, request, one.entry)
        except Refusal as refusal:
            yield _RefusedEntry(one.entry.line, refusal)


def _told_together(refused: list[_RefusedEntry]) -> tuple[str, str]:
    """(message, hint): a line for each of several, which has its hint behind it."""
    lines = [f"line {line}: {refusal.message}" for line, refusal in refused]
    if len(refused) == 1:
        return lines[0], refused[0].refusal.hint
    hints = [f" ({one.refusal.hint})" if one.refusal.hint else "" for one in refused]
    more = f"\nthese are the first {MAX_TOLD}" if len(refused) == MAX_TOLD else ""
    return "\n".join(map("".join, zip(lines, hints, strict=True))) + more, ""


def _owner(who: Caller, request: ClientRequest, user: str) -> Peer:
    if user in ("", who.peer.user):
        return who.peer
    named = request.named_user
    if named is None:
        raise Refusal("unknown_user", f"there is no user `{user}` on the controller's host")
    return Peer(uid=named.uid, gid=named.gid, user=named.user, groups=named.groups)


def _refuse_too_much(draft: TurnBuilder, body: client.SetCrontab) -> None:
    most, size = draft.policy.limits.crontab_entries, len(body.text.encode(errors="replace"))
    if len(body.jobs) > most:
        message = f"the crontab has {len(body.jobs)} entries, and {most} are the most"
        raise Refusal("crontab_too_large", message, "limits.crontab_entries in gq.toml sets it")
    if size > MAX_TEXT_BYTES or "\0" in body.text:
        message = f"the crontab is {size} bytes long, and {MAX_TEXT_BYTES} bytes of text are the most"
        raise Refusal("crontab_too_large", message, "put what is long into scripts")


def _refuse_bad_entry(draft: TurnBuilder, owner: Peer, request: ClientRequest, entry: CronEntry) -> None:
    spec = entry.spec
    try:
        read_schedule(entry.schedule)
    except ValueError as error:
        message, _, hint = str(error).partition("; ")
        raise Refusal("bad_schedule", message, hint) from None
    if entry.zone and entry.zone not in request.zones:
        message = f"`{entry.zone[:60]}` is no time zone that the controller's host knows"
        raise Refusal("unknown_zone", message, "for example CRON_TZ=Europe/Berlin")
    if spec.is_interactive:
        raise Refusal("bad_entry", "an entry runs a command, and this is an interactive job")
    terms = spec.dependency.terms if spec.dependency is not None else ()
    if any(term.kind is not DependencyKind.SINGLETON for term in terms):
        message = "an entry comes again and again, and its dependency is on a job that does not"
        raise Refusal("bad_entry", message, "--dependency=singleton waits for jobs of the same name")
    if not draft.policy.notify.mail and any(target.is_optional for target in spec.notify):
        hint = (
            "--notify=command:PROGRAM or --notify=webhook:URL is possible without mail; `mail` in gq.toml turns it on"
        )
        raise Refusal("bad_notify", "--mail-type: this cluster sends no mail", hint)
    who = access.caller_of(owner, draft.cluster, draft.policy)
    try:
        job.prepare(draft, who, request, _spec_of(entry, draft.now))
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
    """Of the job of this due time."""
    spec = entry.spec
    if spec.begin_at is None and spec.deadline_at is None:
        return spec
    begin_at = None if spec.begin_at is None else due_at + spec.begin_at
    deadline_at = None if spec.deadline_at is None else due_at + spec.deadline_at
    return msgspec.structs.replace(spec, begin_at=begin_at, deadline_at=deadline_at)


def decide_remove(draft: TurnBuilder, who: Caller, body: client.RemoveCrontab) -> client.Done:
    crontab = _known(draft.cluster, who, body.user)
    draft.emit(event.CrontabRemoved(at=draft.now, user=crontab.user))
    _schedule_all(draft)
    return client.Done(text=f"the crontab of {crontab.user} is removed")


def get(draft: TurnBuilder, who: Caller, body: client.GetCrontab) -> client.Crontab:
    crontab = _known(draft.cluster, who, body.user)
    most = min(MAX_NEXT, max(1, MAX_NEXT_IN_ALL // max(1, len(crontab.entries))))
    return client.Crontab(crontab=shown(draft, crontab, min(max(body.count, 0), most)))


def list_all(draft: TurnBuilder, body: client.ListCrontabs, limit: int) -> client.Crontabs:
    users = sorted(user for user in draft.cluster.crontabs if user > body.after)
    found = [shown(draft, draft.cluster.crontabs[user], 1) for user in users[:limit]]
    bare = tuple([msgspec.structs.replace(one, text="") for one in found])
    return client.Crontabs(crontabs=bare, more=len(users) > limit)


def _known(cluster: Cluster, who: Caller, user: str) -> Crontab:
    """Of this user; empty: of the caller."""
    user = user or who.peer.user
    crontab = cluster.crontabs.get(user)
    if crontab is None:
        makes = "gqcron -e" if user == who.peer.user else f"gqcron -u {user} -e"
        raise Refusal("no_crontab", f"no crontab for {user}", f"{makes} makes one")
    return crontab


# ── how it is shown ───────────────────────────────────────────────────────────────────────────────────────────


def shown(draft: TurnBuilder, crontab: Crontab, count: int) -> CrontabInfo:
    """With the next `count` due times of each entry."""
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
        trouble=entry.trouble if zone is not None else f"the controller's host does not know the zone `{cron.zone}`",
        trouble_at=entry.trouble_at,
    )


# ── when they are due ─────────────────────────────────────────────────────────────────────────────────────────


def tick(draft: TurnBuilder) -> None:
    """See to what is due."""
    volatile = draft.volatile
    if volatile.cron_due is None:
        _schedule_all(draft)
    if volatile.cron_next_at > draft.now or volatile.cron_due is None:
        return
    due = [key for key, at in volatile.cron_due.items() if at <= draft.now and not _is_asked(draft, key)]
    looked_back = 0
    for key in due[:MAX_PER_TICK]:
        looked_back += _follow_entry(draft, key)
        if looked_back >= MAX_LOOKED_BACK:
            break
    _find_next(draft)


def next_at(draft: TurnBuilder) -> float:
    """When a `Tick` is wanted for what is due next."""
    return draft.volatile.cron_next_at


def forget_schedule(draft: TurnBuilder) -> None:
    """The controller's own zone may be another one from now on."""
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
    """None: this host does not know it any more."""
    return draft.volatile.zones.get(entry.cron.zone) if entry.cron.zone else draft.policy.zone


def _is_asked(draft: TurnBuilder, key: EntryKey) -> bool:
    asked_at = draft.volatile.cron_asked.get(key)
    return asked_at is not None and draft.now - asked_at < ASK_AGAIN_S


# ── one that is due ───────────────────────────────────────────────────────────────────────────────────────────


class _Due(NamedTuple):
    latest: float
    """The last due time until now."""
    earlier: int
    """How many there were before it that nobody has seen to."""


def _due(draft: TurnBuilder, entry: Entry, zone: tzinfo) -> _Due:
    """A long outage of a frequent entry is not counted to its end."""
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


def _follow_entry(draft: TurnBuilder, key: EntryKey) -> int:
    """How many due times nobody had seen to."""
    entry = draft.cluster.crontabs[key.user].entries[key.number]
    zone = _zone(draft, entry)
    assert zone is not None, f"{key} is due in a zone that nobody knows"
    due = _due(draft, entry, zone)
    is_missed = draft.now - due.latest > LATE_S
    if is_missed and entry.cron.missed is Missed.SKIP:
        missed = due.earlier + 1
        _see_to(draft, key, due.latest, why=f"{_missed(missed)} (the last one: @{{{int(due.latest)}}})", missed=missed)
    elif why := _why_busy(draft.cluster, entry):
        _see_to(draft, key, due.latest, why=why, missed=due.earlier, is_busy=True)
    else:
        crontab = draft.cluster.crontabs[key.user]
        spec = _spec_of(entry.cron, draft.now if is_missed else due.latest)
        cron = CronDue(user=key.user, number=key.number, set_at=crontab.set_at, due_at=due.latest, earlier=due.earlier)
        draft.volatile.cron_asked[key] = draft.now
        draft.enqueue(FireCron(uid=crontab.uid, cron=cron, spec=spec))
    return due.earlier + 1


def _missed(count: int) -> str:
    times = "a due time was" if count == 1 else f"{count} due times were"
    return f"{times} missed: the controller was not there"


def _why_busy(cluster: Cluster, entry: Entry) -> str:
    """Empty: nothing of it is in the way."""
    last = None if entry.last_job_id is None else cluster.jobs.get(entry.last_job_id)
    if entry.cron.overlap is Overlap.ALLOW or last is None or last.state is JobState.ENDED:
        return ""
    word = "waits" if last.state is JobState.PENDING else "runs"
    return f"job {last.job_id} of the time before still {word}"


def _see_to(
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
    draft.volatile.cron_next_at = 0.0  # the next tick looks for it once, however many are seen to in between


def on_due(draft: TurnBuilder, request: ClientRequest, cron: CronDue) -> None:
    """The owner and the hook are known: make the job, unless somebody has seen to this due time meanwhile."""
    key = EntryKey(cron.user, cron.number)
    crontab = draft.cluster.crontabs.get(cron.user)
    entry = None if crontab is None or crontab.set_at != cron.set_at else crontab.entries.get(cron.number)
    if entry is None or cron.due_at <= entry.followed_until:
        return
    if busy := _why_busy(draft.cluster, entry):
        _see_to(draft, key, cron.due_at, why=busy, missed=cron.earlier, is_busy=True)
        return
    job_id, why = _submit(draft, request, cron)
    if job_id is not None and cron.earlier:
        why = f"before this one {_missed(cron.earlier)}"
    _see_to(draft, key, cron.due_at, job_id=job_id, why=why, missed=cron.earlier)


def _submit(draft: TurnBuilder, request: ClientRequest, cron: CronDue) -> tuple[JobId | None, str]:
    """As if the owner had submitted it; or why not."""
    body = request.body
    assert isinstance(body, client.Submit)
    try:
        if cron.why_not:
            raise Refusal("unknown_user", cron.why_not)
        if request.hook_refusal:
            raise Refusal("hook_refused", request.hook_refusal, request.hook_hint)
        who = access.caller_of(request.peer, draft.cluster, draft.policy)
        answer = job.decide_submit(draft, who, request, body)
    except Refusal as refusal:
        answer = client.Refused(code=refusal.code, message=refusal.message, hint=refusal.hint)
    line = audit.request_event(draft.now, request.peer, draft.cluster, body, answer, request.hook)
    draft.emit(msgspec.structs.replace(line, origin="crontab"))
    if isinstance(answer, client.Submitted):
        return JobId(answer.job_id), ""
    assert isinstance(answer, client.Refused)
    return None, f"refused: {answer.message}"


# ── how its jobs end ──────────────────────────────────────────────────────────────────────────────────────────


def react_to(draft: TurnBuilder, fact: event.Event) -> None:
    """The last job of an entry is over."""
    one = draft.cluster.jobs.get(fact.job_id) if isinstance(fact, event.JobEnded) else None
    if one is None or not one.spec.cron:
        return
    crontab = draft.cluster.crontabs.get(one.user)
    for number, entry in crontab.entries.items() if crontab is not None else ():
        if entry.last_job_id == one.job_id:
            _note_end(draft, EntryKey(one.user, number), one)


def _note_end(draft: TurnBuilder, key: EntryKey, one: Job) -> None:
    state = state_word(one.state, one.outcome)
    why = "" if one.outcome is Outcome.COMPLETED else f"job {one.job_id} is {state}: {how_it_ended(one)[0]}"
    draft.emit(
        event.CronRunEnded(
            at=draft.now, user=key.user, number=key.number, job_id=one.job_id, state=state, why=why.removesuffix(": ")
        )
    )
