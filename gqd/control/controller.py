"""The controller's core: takes inputs, returns events and effects.  It dispatches and holds no policy itself.  Pure.

The same class runs in the daemon, in tests and in the simulator.  The shell calls `resume` once after a start and
`handle` for every input; while `wants_plan` is true it runs the planner, and passes the plan to `adopt`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import assert_never

import msgspec

from gq.errors import Refusal
from gq.wire import client
from gq.wire.step import LogTicket, seal
from gqd.control import (
    access,
    array,
    array_end,
    ask,
    attempt,
    audit,
    chain,
    crontab,
    deadline,
    dependency,
    elastic,
    environment,
    info,
    job,
    key,
    long_poll,
    node,
    orders,
    owed_order,
    parked,
    preemption,
    replan,
    replies,
    snapshot,
    step,
    suspend,
)
from gqd.control.access import Caller
from gqd.control.accounts import account, association, limit, listing, share
from gqd.control.explain import explain, explanation
from gqd.control.forecast import estimate, extend, whatif
from gqd.control.job_filter import select_lines
from gqd.control.notices import notice, owner
from gqd.control.reservation import info as reservation_info
from gqd.control.reservation import occurrence, reservation
from gqd.control.turn import Turn, TurnBuilder
from gqd.sched.adoption import PlanValidator
from gqd.sched.limits.ledger import Ledger
from gqd.sched.priority.factors import Ranking, rank
from gqd.sched.snapshot.model import Snapshot
from gqd.state.cluster import Cluster
from gqd.state.effect import (
    ReadConfig,
    RemoveKeyFile,
    Reply,
    ReplyAccuracy,
    ReplyAudit,
    ReplyHistory,
    ReplyScript,
)
from gqd.state.events import event
from gqd.state.input import (
    ClientRequest,
    ConfigChecked,
    ConfigRefused,
    DoorIncident,
    Input,
    KeyFileDeleted,
    NodeHeartbeat,
    NodeHello,
    NodeJoin,
    NodeReport,
    NoticeCommand,
    NoticeReported,
    PolicyChanged,
    Tick,
    TimeLeapt,
)
from gqd.state.job_view import tasks_asked
from gqd.state.plan import Plan
from gqd.state.policy import Policy
from gqd.state.volatile import StepWaiter, Volatile

_ANSWERS: msgspec.msgpack.Decoder[client.ReplyBody] = msgspec.msgpack.Decoder(client.ReplyBody)

Change = (
    client.Submit | client.CancelJobs | client.SignalStep | client.HoldJobs | client.ReleaseJobs | client.RequeueJobs
    | client.UpdateJob | client.NotifyJob | client.ExtendJob | client.SuspendJobs | client.ResumeJobs
    | client.AskJob | client.AnswerAsks | client.EndInteractive | client.CreateStep
    | client.UpdateNodes | client.RemoveNode | client.CreateToken | client.AddKey | client.RevokeKey
    | client.SubmitChain | client.SetAccount | client.RemoveAccount | client.SetMember | client.RemoveMember
    | client.SetQos | client.RemoveQos | client.SetLimit | client.RemoveLimit | client.ReloadConfig | client.SetCrontab
    | client.RemoveCrontab | client.SetReservation | client.EditOccurrence | client.SkipOccurrence
    | client.EndReservation | client.DeleteReservation
)  # fmt: skip
"""Requests that change something: carried out once per request id, with the answer remembered."""

TICKET_S = 3600.0
LIST_ORDER_S = 1.0
"""Seconds for which lists may reuse a computed queue order."""
MAX_ANSWERS = 500_000
"""Remembered answers; beyond that the oldest tenth is forgotten, however recent."""
FORGET_EVERY_S = 10.0


class Controller:
    """Owns the cluster in memory and is its only writer."""

    def __init__(self, cluster: Cluster, policy: Policy) -> None:
        self.cluster = cluster
        self.policy = policy
        self.volatile = Volatile()
        self.forecasts = estimate.ForecastQueue()
        self._ranked: tuple[float, Ranking] | None = None
        """The queue order last computed for a list, and when; None once an event has happened since."""

    # ── what the shell calls ──────────────────────────────────────────────────────────────────────────────────

    def handle(self, happened: Input, now: float) -> Turn:
        """Handle one input.  → its turn"""
        draft = self._draft(now)
        limit.roll_over_periods(draft)
        match happened:
            case ClientRequest():
                self._on_request(draft, happened)
            case NodeReport():
                node.on_report(draft, happened)
            case NodeHeartbeat():
                node.on_heartbeat(draft, happened)
            case NodeHello():
                node.on_hello(draft, happened)
            case TimeLeapt():
                self.volatile.leap(happened.by_s, now)
            case PolicyChanged():
                self._on_policy_changed(draft, happened)
            case ConfigRefused():
                self._on_config_refused(draft, happened)
            case ConfigChecked():
                unknown = association.unknown_of_partitions(self.cluster, happened.partitions)
                text = "\nwarning: ".join([happened.text, *unknown])
                replies.send(draft, happened.request, client.Done(text=text))
            case Tick():
                self._on_tick(draft)
            case NodeJoin():
                key.decide_join(draft, happened)
            case KeyFileDeleted():
                node.on_key_file_deleted(draft, happened)
            case DoorIncident():
                draft.emit(audit.incident_event(now, happened))
            case NoticeReported():
                notice.on_reported(draft, happened)
            case NoticeCommand():
                notice.on_command(draft, happened)
            case _ as never:
                assert_never(never)
        return self._close(draft)

    def adopt(self, plan: Plan, now: float) -> Turn:
        """Carry out a plan; every start, preemption and resize is checked again on the live cluster."""
        draft = self._draft(now)
        limit.roll_over_periods(draft)
        self.volatile.plan = plan
        self.volatile.planned_at = now
        self.volatile.is_planning = False
        if plan.resumes_at is not None or plan.searches_from is not None or plan.is_worth_another:
            self.volatile.wants_plan = True  # the plan is incomplete: continue it
        preemption.reconcile_claims(draft, plan)
        if plan.starts or plan.preemptions or plan.growths:
            limits = limit.view(self.cluster, self.policy, now)
            ledger = Ledger(limits)
            view = snapshot.without_queue(self.cluster, self.policy, self.volatile, now)
            validator = PlanValidator(replace(view, limits=limits))
            for start in plan.starts:
                if not attempt.decide_start(draft, ledger, start, validator):
                    self.volatile.wants_plan = True
            decided = [one for one in plan.preemptions if preemption.decide(draft, ledger, one, validator)]
            if len(decided) < len(plan.preemptions):
                self.volatile.wants_plan = True
            elastic.decide_shrinks(draft, decided)
            for growth in plan.growths:
                elastic.decide_growth(draft, ledger, growth, validator)
        return self._close(draft)

    def resume(self, now: float) -> Turn:
        """Restore volatile state after a restart, and give nodes time for their hello, after which orders are sent."""
        self.volatile = Volatile(started_at=now, there_since=now, zones=self.volatile.zones)
        self.forecasts = estimate.ForecastQueue()
        for one in self.cluster.jobs.values():
            if one.spec.is_interactive and one.end_at is None:
                self.volatile.client_seen_at[one.job_id] = now
        for name in self.cluster.nodes:
            self.volatile.heard_at[name] = now
        draft = self._draft(now)
        share.reconcile_half_life(draft)
        for held in list(self.cluster.attempts.values()):
            for name in held.parts:
                orders.send_owed(draft, held, name)
        for name in self.cluster.void_key_files:
            draft.enqueue(RemoveKeyFile(node=name))
        preemption.resume(draft)
        notice.resume(draft)
        return self._close(draft)

    def wants_plan(self, now: float) -> bool:
        """Whether a planning pass is worthwhile now."""
        volatile = self.volatile
        if not self.cluster.queue and not elastic.wants_plan(self.cluster):
            volatile.wants_plan = False
        return volatile.wants_plan and now - volatile.planned_at >= self.policy.timers.schedule_min_interval_s

    def snapshot(self, now: float) -> Snapshot:
        """The snapshot for the next pass; taking it clears the request for a plan."""
        self.volatile.wants_plan = False
        self.volatile.is_planning = True
        self.volatile.updated_jobs.clear()
        return snapshot.take(self.cluster, self.policy, self.volatile, now)

    def wants_estimates(self, now: float) -> bool:
        """Whether a slice of a forecast is worthwhile now."""
        return self.forecasts.is_wanted(self.cluster, self.volatile, now)

    def is_asked_for_estimates(self) -> bool:
        """Whether a client waits for a forecast."""
        return self.forecasts.is_waited_for

    def estimate(self, budget: int, now: float) -> Turn:
        """Compute a slice of the forecast (`gqd.control.forecast.estimate`); the last slice emits its results."""
        draft = self._draft(now)
        self.forecasts.work(draft, budget)
        return self._close(draft)

    def next_wakeup(self, now: float) -> float | None:
        """The latest instant for the next `Tick`; None: the regular ticks are enough."""
        volatile = self.volatile
        due = (
            volatile.next_time_event_at,
            volatile.cron_next_at,
            None if volatile.plan is None else volatile.plan.changes_at,
            notice.next_at(volatile),
            preemption.next_at(self.cluster),
        )
        wanted = [at for at in due if at is not None and at > now]
        if self.cluster.reservations and self.volatile.bookings_due_at < math.inf:
            wanted.append(max(now, self.volatile.bookings_due_at))
        return min(wanted, default=None)

    def _on_policy_changed(self, draft: TurnBuilder, happened: PolicyChanged) -> None:
        self.policy = draft.policy = happened.policy
        self.volatile.possible_shapes.clear()
        share.reconcile_half_life(draft)
        crontab.forget_schedule(draft)
        self.volatile.periods_until = 0.0  # days may begin at other instants in the new time zone
        self.volatile.bookings_due_at = 0.0
        self.volatile.bookings_tried.clear()  # partitions may have other nodes
        self.volatile.wants_plan = True
        unknown = association.unknown_of_partitions(self.cluster, draft.policy.partitions)
        text = "; warning: ".join([happened.text, *unknown])
        if happened.request is None:
            draft.emit(audit.signal_event(draft.now, client.ReloadConfig, detail=text))
            return
        answer = client.Done(text=text)
        replies.remember(draft, happened.request, answer)
        replies.send(draft, happened.request, answer)

    def _on_config_refused(self, draft: TurnBuilder, happened: ConfigRefused) -> None:
        if happened.request is None:
            draft.emit(audit.signal_event(draft.now, client.ReloadConfig, happened.code, happened.message))
            return
        answer = client.Refused(code=happened.code, message=happened.message, hint=happened.hint)
        replies.record(draft, happened.request, answer)
        replies.send(draft, happened.request, answer)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_request(self, draft: TurnBuilder, request: ClientRequest) -> None:
        body = request.body
        if request.cron is not None:
            crontab.on_due(draft, request, request.cron)
            return
        try:
            caller = access.caller_of(request.peer, self.cluster, self.policy)
            access.authorise(caller, body, self.cluster)
            if not isinstance(body, Change):
                answer = self._read(draft, request, caller)
            elif (known := self.cluster.answers.get(request.request_id)) is not None and known.uid == request.peer.uid:
                answer = _ANSWERS.decode(known.answer)
            else:
                answer = self._change(draft, request, caller, body)
                if answer is not None:
                    replies.remember(draft, request, answer)
        except Refusal as refusal:
            answer = replies.refused(refusal)
            if isinstance(body, Change) or isinstance(refusal, access.Denied):
                replies.record(draft, request, answer)
        if answer is not None:
            replies.send(draft, request, answer)

    def _change(
        self, draft: TurnBuilder, request: ClientRequest, caller: Caller, body: Change
    ) -> client.ReplyBody | None:
        """Carry out a request that changes something.  → the answer; None: it comes later."""
        if request.hook_refusal:
            raise Refusal("hook_refused", request.hook_refusal, request.hook_hint)
        match body:
            case client.Submit() if body.test_only:
                whatif.decide_test(draft, self.forecasts, caller, request, body)
                return None
            case client.Submit():
                return job.decide_submit(draft, caller, request, body)
            case client.CancelJobs():
                return job.decide_cancel(draft, caller, request.request_id, body)
            case client.SignalStep():
                return job.decide_signal_step(draft, request.request_id, body)
            case client.HoldJobs():
                return job.decide_hold(draft, caller, body)
            case client.ReleaseJobs():
                return job.decide_release(draft, caller, body)
            case client.RequeueJobs():
                return job.decide_requeue(draft, caller, body)
            case client.UpdateJob():
                return job.decide_update(draft, caller, request, body)
            case client.NotifyJob():
                return job.decide_notify(draft, request.request_id, body)
            case client.ExtendJob():
                extend.decide_extend(draft, self.forecasts, request, body)
                return None
            case client.AskJob():
                return ask.decide_ask(draft, caller, body)
            case client.AnswerAsks():
                return ask.decide_answer(draft, caller, body)
            case client.SuspendJobs():
                return suspend.decide_suspend(draft, body)
            case client.ResumeJobs():
                return suspend.decide_resume(draft, body)
            case client.EndInteractive():
                return job.decide_end_interactive(draft, body)
            case client.CreateStep():
                return long_poll.on_create_step(draft, request, body)
            case client.UpdateNodes():
                return node.decide_update(draft, caller, body)
            case client.RemoveNode():
                return node.decide_remove(draft, caller, body)
            case client.CreateToken():
                return key.decide_create_token(draft, caller, body)
            case client.AddKey():
                return key.decide_add_key(draft, caller, request, body)
            case client.RevokeKey():
                return key.decide_revoke_key(draft, caller, body)
            case client.ReloadConfig():
                draft.enqueue(ReadConfig(request=request))
                return None
            case client.SubmitChain():
                return chain.decide_submit(draft, caller, request, body)
            case client.SetAccount():
                return account.decide_set_account(draft, caller, body)
            case client.RemoveAccount():
                return account.decide_remove_account(draft, body)
            case client.SetMember():
                return account.decide_set_member(draft, caller, body)
            case client.RemoveMember():
                return account.decide_remove_member(draft, body)
            case client.SetQos():
                return account.decide_set_qos(draft, body)
            case client.RemoveQos():
                return account.decide_remove_qos(draft, body)
            case client.SetLimit():
                return limit.decide_set_limit(draft, body)
            case client.RemoveLimit():
                return limit.decide_remove_limit(draft, body)
            case client.SetReservation():
                return reservation.decide_set(draft, caller, request, body)
            case client.EditOccurrence():
                return reservation.decide_edit(draft, caller, body)
            case client.SkipOccurrence():
                return reservation.decide_skip(draft, caller, body)
            case client.EndReservation():
                return reservation.decide_end(draft, caller, body)
            case client.DeleteReservation():
                return reservation.decide_delete(draft, caller, body)
            case client.SetCrontab():
                return crontab.decide_set(draft, caller, request, body)
            case client.RemoveCrontab():
                return crontab.decide_remove(draft, caller, body)
            case _ as never:
                assert_never(never)

    def _read(self, draft: TurnBuilder, request: ClientRequest, caller: Caller) -> client.ReplyBody | None:
        """Answer a request that changes nothing; None: the answer comes later, or from the store."""
        body = request.body
        match body:
            case client.ListJobs():
                return self._list_jobs(draft, caller, body)
            case client.QueryHistory():
                route, request_id = request.route, request.request_id
                for tasks in body.filter.tasks.values():
                    tasks_asked(tasks)  # `Refusal` here, not in the middle of the answer
                draft.enqueue(ReplyHistory(route=route, request_id=request_id, query=body, shown_to=caller.shown_to))
                return None
            case client.Explain():
                return self._explain(draft, caller, body)
            case client.GetScript():
                digest = array.one_of(self.cluster, body.job_id, body.task).spec.script_digest
                draft.enqueue(ReplyScript(route=request.route, request_id=request.request_id, digest=digest))
                return None
            case client.WaitJobs():
                return long_poll.on_wait_jobs(draft, request, body, caller.shown_to)
            case client.KeepAlive():
                return job.decide_keep_alive(draft, body)
            case client.CheckpointDone():
                return preemption.decide_checkpoint(draft, body)
            case client.ResumeDone():
                return preemption.decide_caught_up(draft, body)
            case client.GiveUpGpus():
                return elastic.decide_accept(draft, body)
            case client.AccessLog():
                return self._log_access(draft, request, body)
            case client.GetJobEnvironment():
                return environment.environment_of(draft, body.job_id)
            case client.ListNodes():
                return self._list_nodes(draft, body)
            case client.GetCluster():
                shown = info.cluster_info(self.cluster, self.policy, self.volatile, draft.now)
                return client.Cluster(info=shown)
            case client.Ping():
                return client.Done()
            case client.WhoAmI():
                return self._identity(draft, caller)
            case client.ListKeys():
                return key.list_keys(draft, caller, body)
            case client.EstimateStarts():
                estimate.decide_estimate(draft, self.forecasts, request, body)
                return None
            case client.WhatIf():
                whatif.decide_what_if(draft, self.forecasts, caller, request, body)
                return None
            case client.QueryAccuracy():
                draft.enqueue(ReplyAccuracy(route=request.route, request_id=request.request_id, query=body))
                return None
            case client.ListPriorities():
                page = self._page(body.limit)
                return share.list_priorities(self.cluster, self.policy, body, page, draft.now)
            case client.ListShares():
                return share.list_shares(self.cluster, self.policy, body, draft.now)
            case client.GetCrontab():
                return crontab.get(draft, caller, body)
            case client.ListCrontabs():
                return crontab.list_all(draft, body, self._page(body.limit))
            case client.ListAccounts():
                return listing.list_accounts(draft, body, None if body.limit is None else self._page(body.limit))
            case client.ListReservations():
                return reservation_info.list_reservations(draft, request, body, self._page(body.limit))
            case client.QueryBookings():
                reservation_info.query_bookings(draft, request, body)
                return None
            case client.QueryAudit():
                query = msgspec.structs.replace(body, limit=self._page(body.limit))
                draft.enqueue(ReplyAudit(route=request.route, request_id=request.request_id, query=query))
                return None
            case client.CheckConfig():
                draft.enqueue(ReadConfig(request=request))
                return None
            case client.ListAsks():
                return ask.list_asks(draft, caller, body, self._page(body.limit))
            case client.ListNotices():
                notice.list_notices(draft, caller, request, body, self._page(body.limit))
                return None
            case client.QueryEvents():
                notice.query_events(draft, caller, request, body, self._page(body.limit))
                return None
            case _:
                raise AssertionError(f"{type(body).__name__} is a change, or has no case here")

    def _page(self, wanted: int) -> int:
        return min(max(wanted, 1), self.policy.limits.page)

    def _identity(self, draft: TurnBuilder, caller: Caller) -> client.Identity:
        return client.Identity(
            user=caller.peer.user,
            uid=caller.peer.uid,
            role=caller.role.name.lower(),
            origin=audit.origin_of(caller.peer, self.cluster),
            cluster=self.policy.cluster,
            now=draft.now,
            client_endpoint=self.policy.client_endpoint,
            server_key=self.policy.server_key,
        )

    def _list_jobs(self, draft: TurnBuilder, caller: Caller, body: client.ListJobs) -> client.Jobs:
        limit = self._page(body.limit)
        is_ranked = body.in_queue_order or not body.brief
        ranking = self._ranking(draft) if is_ranked else None
        order = info.queue_order(self.cluster, ranking) if body.in_queue_order and ranking is not None else None
        lines = select_lines(self.cluster, body.filter, body.after, order)
        page = list(islice(lines, limit + 2))
        if len(page) > limit and page[limit - 1].job is page[limit].job:
            limit += 1  # a page ends with a job, since the next one begins after it
        if body.brief:
            brief = [info.brief_job_info(self.cluster, self.volatile, job, part) for job, part in page[:limit]]
            return client.Jobs(jobs=tuple(brief), more=len(page) > limit)
        shown = [
            info.job_info_for(caller.shown_to, self.cluster, self.volatile, job, body.with_steps, part)
            for job, part in page[:limit]
        ]
        if ranking is not None:
            info.add_priorities(self.cluster, self.policy, ranking, shown)
        return client.Jobs(jobs=tuple(shown), more=len(page) > limit)

    def _ranking(self, draft: TurnBuilder) -> Ranking:
        """The queue order, cached briefly so that the pages of a long list agree while nothing happens."""
        if self._ranked is None or draft.events or not 0 <= draft.now - self._ranked[0] < LIST_ORDER_S:
            ranking = rank(self.cluster, self.policy, draft.now)
            self._ranked = (draft.now, replace(ranking, factors={}, points={}))  # what is kept is kept small
        return self._ranked[1]

    def _explain(self, draft: TurnBuilder, caller: Caller, body: client.Explain) -> client.Explanation:
        one = array.cancelled_in(self.cluster, body.job_id, body.task)
        if one is not None:
            story, state = explain.explain_cancelled(one)
        else:
            one = array.one_of(self.cluster, body.job_id, body.task)
            story = explain.explain(self.cluster, self.policy, self.volatile, one, draft.now)
            state = info.job_info(self.cluster, self.volatile, one).state
        if not caller.may_steer(one):
            story = explain.public(story, one)
        return explanation.as_reply(self.cluster, one, state, story)

    def _list_nodes(self, draft: TurnBuilder, body: client.ListNodes) -> client.Nodes:
        nodes = sorted(self.cluster.nodes.values(), key=snapshot.natural_order)
        if body.names:
            nodes = [node.known(draft, name) for name in dict.fromkeys(body.names)]
        shown = (info.node_info(self.cluster, self.policy, self.volatile, one, draft.now) for one in nodes)
        return client.Nodes(nodes=tuple(shown))

    def _log_access(self, draft: TurnBuilder, request: ClientRequest, body: client.AccessLog) -> client.LogAccess:
        """The place of the job's output, and a ticket with which the client reads it from the node."""
        one = array.started_one(self.cluster, body.job_id, body.task)
        shown = info.job_info(self.cluster, self.volatile, one)
        held = self.cluster.attempt_of(one)
        if one.spec.is_interactive:
            raise Refusal("no_log", f"job {one.job_id} is interactive: its output went to its terminal")
        path = shown.error_path if body.stream == "error" else shown.output_path
        if held is None:
            past = path if one.attempt else ""  # its node was forgotten with the attempt
            return client.LogAccess(job_id=one.job_id, attempt=one.attempt, state=shown.state, path=past)
        home = self.cluster.nodes.get(held.batch_node)
        if home is None:
            hint = f"on a shared file system the file is {path}"
            raise Refusal("no_log", f"the output of job {one.job_id} is on {held.batch_node}, which was removed", hint)
        reader_uid = request.peer.uid or one.uid  # nodes never read a file as root
        ticket = LogTicket(one.job_id, one.attempt, path, reader_uid, draft.now + TICKET_S)
        return client.LogAccess(
            job_id=one.job_id,
            attempt=one.attempt,
            state=shown.state,
            node=home.name,
            path=path,
            endpoint=home.step_endpoint,
            public_key=home.step_public_key,
            ticket=seal(ticket, home.ticket_key),
            exit_code=shown.exit_code,
            signal=shown.signal,
            allocated_at=held.allocated_at,
        )

    # ── time and reactions ────────────────────────────────────────────────────────────────

    def _on_tick(self, draft: TurnBuilder) -> None:
        node.tick(draft)
        attempt.tick(draft)
        step.tick(draft)
        suspend.tick(draft)
        owed_order.tick(draft)
        parked.tick(draft)
        preemption.tick(draft)
        elastic.tick(draft)
        deadline.tick(draft)
        dependency.tick(draft)
        job.tick(draft)
        key.tick(draft)
        notice.tick(draft)
        occurrence.tick(draft)
        crontab.tick(draft)
        self.forecasts.tick(draft)
        self._forget_requests(draft)
        plan = self.volatile.plan
        due_at = (self.volatile.next_time_event_at, None if plan is None else plan.changes_at)
        if any(at is not None and at <= draft.now for at in due_at):
            self.volatile.wants_plan = True
        self.volatile.next_time_event_at = self._next_time_event(draft.now)

    def _next_time_event(self, after: float) -> float | None:
        """The first instant after `after` at which time alone may start or end a job."""
        due = [one.backoff_until for one in self.cluster.nodes.values() if one.backoff_until > after]
        for job_id in self.cluster.timed:
            waiting = self.cluster.jobs[job_id]
            if waiting.spec.begin_at is not None and waiting.spec.begin_at > after:
                due.append(waiting.spec.begin_at)
            due.extend(until for until in waiting.avoid.values() if until > after)
        plan = self.volatile.plan
        if plan is not None and plan.changes_at is not None and plan.changes_at > after:
            due.append(plan.changes_at)
        due += (at for at in self.cluster.deadlines.values() if at > after)
        due += (at for at in self.cluster.dependants.due.values() if at > after)
        return min(due, default=None)

    def _forget_requests(self, draft: TurnBuilder) -> None:
        """Forget remembered answers that are too old or too many; they are stored in the order of time."""
        answers = self.cluster.answers
        before = draft.now - self.policy.limits.request_memory_s
        oldest = next(iter(answers.values()), None)
        if oldest is not None and oldest.at < before - FORGET_EVERY_S:
            draft.emit(event.RequestsForgotten(at=draft.now, before=before))
        elif len(answers) > MAX_ANSWERS:
            before = next(islice(answers.values(), len(answers) // 10, None)).at
            draft.emit(event.RequestsForgotten(at=draft.now, before=before))

    def _draft(self, now: float) -> TurnBuilder:
        return TurnBuilder(self.cluster, self.policy, self.volatile, now)

    def _close(self, draft: TurnBuilder) -> Turn:
        """Finish the turn: react to its events, and send the held-back answers that are due now."""
        self._react(draft)
        touched = draft.touched_jobs() if self.volatile.step_waiters or self.volatile.job_waiters else set()
        if self.volatile.step_waiters:
            for waiter, answer in long_poll.take_ready_steps(draft, touched):
                if isinstance(answer, client.Refused):
                    replies.record(draft, _request_of(waiter), answer)
                else:
                    replies.remember(draft, _request_of(waiter), answer)
                draft.enqueue(Reply(route=waiter.route, request_id=waiter.request_id, body=answer))
        if self.volatile.job_waiters:
            long_poll.answer_job_waiters(draft, touched)
        notice.send(draft)
        if draft.events:
            self._ranked = None
            if any(not isinstance(fact, estimate.BESIDE_THE_POINT) for fact in draft.events):
                self.volatile.has_stale_estimates = True
                self.volatile.changes += 1
        return draft.build()

    def _react(self, draft: TurnBuilder) -> None:
        """Let every module react to the events of the turn, and to the events that the reactions emit."""
        handled = 0
        while True:
            for fact in islice(draft.events, handled, None):  # the list may grow meanwhile
                array_end.react_to(draft, fact)
                dependency.react_to(draft, fact)
                notice.react_to(draft, fact)
                owner.react_to(draft, fact)
                occurrence.react_to(draft, fact)
                crontab.react_to(draft, fact)
                preemption.react_to(draft, fact)
                replan.react_to(draft, fact)
            handled = len(draft.events)
            preemption.withdraw_notices(draft)
            parked.resume_unneeded(draft)
            if len(draft.events) == handled:
                return


def _request_of(waiter: StepWaiter) -> ClientRequest:
    return ClientRequest(peer=waiter.peer, route=waiter.route, request_id=waiter.request_id, body=waiter.body)
