"""Running one step from the client's side: tasks on every node of it, as if they were one program here.

Owns the loop of `gqrun`: output, standard input, signals, the terminal, the exit code, and what happens when a task
fails, a node goes away or the job ends underneath.  One thread, one poll.  What is where is decided by gqd; which
bytes are news is decided by `step_links`.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from enum import Enum, auto

import msgspec
import zmq

from gq.cli.step.async_client import AsyncClient
from gq.cli.step.signals import SignalPipe, describe
from gq.cli.step.stdin import StdinFeed
from gq.cli.step.step_links import StepLink
from gq.cli.step.task_output import TaskOutput
from gq.cli.step.terminal import RawTerminal, window_size
from gq.connection.locate import Location
from gq.model.ids import JobId, RequestId, StepId
from gq.model.state import ACTIVE_WORDS
from gq.wire import client as ask
from gq.wire import step as wire

FORWARDED = (
    signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM,
    signal.SIGCONT,
)  # fmt: skip
_SLICE_MS = 100
_BACKLOG_BYTES = 1 << 20
"""Unwritten output above which the links are not read."""
_REPORT_DOWN_S = 5.0
"""A node that is away for so long is worth a word."""
_INQUIRY_S = 3.0
"""Between questions to gqd while something is odd."""
_GIVE_UP_S = 5.0
"""How long a node may owe the ends of its tasks after gqd has said that the step is over."""
_TWICE_S = 1.0
"""Two Ctrl-C within this kill the tasks."""
_WITHOUT_CONTROLLER_S = 2.0
"""Tasks are ended by gqd's order; if it does not answer for so long, they are signalled from here."""
_GRACE_S = 30.0
_LAST_WORDS_S = 5.0
"""A step that has this terminal, and was told to end because we were, is killed after so long; and after as long again
we go without having heard its end: whoever ends us does not wait."""

Note = Callable[[str], None]


class Bring(msgspec.Struct, frozen=True, kw_only=True):
    """The commands, environment and standard input that `gqrun` brings to the step's tasks."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    chdir: str
    umask: int
    programs: dict[str, tuple[str, ...]] = {}
    """Commands by role, which replace `argv` for that role's tasks."""
    stdin_fd: int | None = 0
    """None: the tasks read ``/dev/null``."""
    stdin_rank: int | None = None
    """Only this task reads it; None: all."""
    is_pty: bool = False
    tells_codes: bool = True
    """Say on stderr which task failed with which code; a command that is alone returns it, as ssh(1) does."""


class _Ending(Enum):
    """Why the step is being ended from here."""

    BAD_EXIT = auto()
    KILLED = auto()
    READER_GONE = auto()
    NODE_REFUSED = auto()
    TOLD_TO_END = auto()


class StepRun:
    """A step from attaching to the last byte of output; `run` returns the exit code."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[bytes]],
        client: AsyncClient,
        created: ask.StepCreated,
        bring: Bring,
        output: TaskOutput,
        note: Note,
    ) -> None:
        self._created = created
        self._client = client
        self._output = output
        self._note = note
        self._bring = bring
        attach = self._attach()
        self._links = [StepLink(context, node, attach) for node in created.nodes]
        readers = [link for link in self._links if bring.stdin_rank is None or bring.stdin_rank in link.ranks]
        self._stdin = StdinFeed(bring.stdin_fd, readers)
        self._ending: _Ending | None = None
        self._stop_request: RequestId | None = None
        self._stop_asked_at = 0.0
        self._stop_is_ordered = False
        self._signals_left: list[tuple[float, int]] = []
        """When to send which signal, if gqd does not do it."""
        self._failures: set[str] = set()
        """Reasons why tasks could not be started that were reported: many tasks fail for the same one."""
        self._counted: dict[int, int] = {}
        """Exit code by rank, without those that we ended ourselves."""
        self._interrupted_at = 0.0
        self._kills = 0
        self._kill_at: float | None = None
        self._leave_at: float | None = None
        """Told to end: when to kill the tasks, and when to go whatever becomes of them."""
        self._told_down: set[str] = set()
        self._inquiry: RequestId | None = None
        self._inquired_at = 0.0
        self._over_at: float | None = None
        """When gqd first said that the step is over."""
        self._over_state = ""

    def _attach(self) -> wire.Attach:
        created, bring = self._created, self._bring
        return wire.Attach(
            step_id=StepId(JobId(created.job_id), created.attempt, created.step),
            key=created.key,
            argv=bring.argv,
            programs=bring.programs,
            environment=bring.environment,
            chdir=bring.chdir,
            umask=bring.umask,
            pty=window_size() if bring.is_pty else None,
            stdin_rank=-1 if bring.stdin_fd is None else bring.stdin_rank,
        )

    def run(self, job_end: Callable[[float], str]) -> int:
        """Until every task has ended and all output is written.

        `job_end` is called on every turn and says what became of the job, as far as the caller knows; empty while
        it goes on.
        """
        watched = (*FORWARDED, signal.SIGWINCH) if self._bring.is_pty else FORWARDED
        with SignalPipe(watched) as signals:
            try:
                while not self._is_finished:
                    self._wait(signals)
                    now = time.monotonic()
                    self._turn(signals, now)
                    if self._over_at is None and (state := job_end(now)):
                        self._over_at, self._over_state = now, state
                self._drain(signals)
            finally:
                for link in self._links:
                    link.close()
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """The highest of the tasks'; those that were ended because another failed do not count."""
        return max(self._counted.values(), default=1)

    @property
    def _is_finished(self) -> bool:
        return all(link.is_over for link in self._links)

    # ── one turn ──────────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, signals: SignalPipe) -> None:
        """Until something can be done."""
        poller = zmq.Poller()
        poller.register(signals.fd, zmq.POLLIN)
        poller.register(self._client.socket, zmq.POLLIN)
        if self._output.backlog < _BACKLOG_BYTES:
            for link in self._links:
                if link.socket is not None and not link.is_over:
                    poller.register(link.socket, link.polls_for)
        for writer in self._output.writers:
            if writer.backlog:
                poller.register(writer.fd, zmq.POLLOUT)
        self._stdin_is_ready = False
        if self._stdin.wants_more:
            assert self._stdin.fd is not None
            poller.register(self._stdin.fd, zmq.POLLIN)
        ready = dict(poller.poll(_SLICE_MS))
        self._stdin_is_ready = self._stdin.wants_more and self._stdin.fd in ready

    def _turn(self, signals: SignalPipe, now: float) -> None:
        for signum in signals.taken():
            self._take_signal(signum, now)
        for link in self._links:
            if not link.is_over:
                self._serve(link, now)
        self._output.push()
        if self._output.reader_is_gone and self._ending is None:
            self._end(_Ending.READER_GONE, now)
        if self._stdin_is_ready:
            self._stdin.read()
        self._stdin.pump()
        self._escalate(now)
        self._meet_end(now)
        self._mind_the_lost(now)

    def _serve(self, link: StepLink, now: float) -> None:
        link.keep_up(now)
        if link.socket is None or self._output.backlog >= _BACKLOG_BYTES:
            return
        for message in link.receive(now):
            match message:
                case wire.Output():
                    self._output.feed(message.rank, message.stream, message.data)
                case wire.TaskExited():
                    self._take_exit(link, message, now)
                case wire.StepRefused():
                    self._take_refusal(link, message, now)
                case _:
                    pass

    def _drain(self, signals: SignalPipe) -> None:
        """Write what is left; Ctrl-C throws it away, and so does a terminal that nobody reads."""
        while self._output.backlog and (self._leave_at is None or time.monotonic() < self._leave_at):
            poller = zmq.Poller()
            poller.register(signals.fd, zmq.POLLIN)
            for writer in self._output.writers:
                if writer.backlog:
                    poller.register(writer.fd, zmq.POLLOUT)
            poller.poll(1000)
            self._output.push()
            if any(signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) for signum in signals.taken()):
                return

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_exit(self, link: StepLink, exited: wire.TaskExited, now: float) -> None:
        self._output.finish(exited.rank)
        code = exited.exit.shell_code
        was_ended_by_us = self._ending is not None and exited.exit.signal in (signal.SIGTERM, signal.SIGKILL)
        if was_ended_by_us and self._counted:
            return
        self._counted[exited.rank] = code
        if exited.exit.is_success:
            return
        is_news = self._bring.tells_codes or exited.why or exited.oom
        if not was_ended_by_us and is_news and exited.why not in self._failures:
            self._note(f"{link.name}: task {exited.rank}: {_how_it_ended(exited)}")
            if exited.why:
                self._failures.add(exited.why)
        if self._created.layout.kill_on_bad_exit and self._ending is None and not self._is_finished:
            self._end(_Ending.BAD_EXIT, now)

    def _take_refusal(self, link: StepLink, refusal: wire.StepRefused, now: float) -> None:
        self._note(f"{link.name}: {refusal.message}")
        for rank in set(link.ranks) - set(link.exits):
            self._counted[rank] = 1
            self._output.finish(rank)
        if self._ending is None:
            self._end(_Ending.NODE_REFUSED, now)

    def _end(self, why: _Ending, now: float) -> None:
        """Have all tasks ended: TERM, grace, KILL, by gqd's order (which reaches nodes that we cannot)."""
        self._ending = why
        body = ask.SignalStep(job_id=self._created.job_id, step=self._created.step)
        self._stop_request = self._client.ask(body, now)
        self._signals_left = [
            (now + _WITHOUT_CONTROLLER_S, signal.SIGTERM),
            (now + _WITHOUT_CONTROLLER_S + _GRACE_S, signal.SIGKILL),
        ]

    def _escalate(self, now: float) -> None:
        """Hear what gqd answered, and do without it where it does not."""
        for request_id, body in self._client.answers():
            if request_id == self._stop_request and isinstance(body, ask.Done):
                self._signals_left = []
            elif request_id == self._inquiry:
                self._take_inquiry(body, now)
        self._client.keep_up(now)
        while self._signals_left and self._signals_left[0][0] <= now:
            self._signal_all(self._signals_left.pop(0)[1])

    # ── signals ───────────────────────────────────────────────────────────────────────────────────────────────

    def _take_signal(self, signum: int, now: float) -> None:
        match signum:
            case signal.SIGINT:
                self._interrupt(now)
            case signal.SIGWINCH:
                for link in self._links:
                    link.resize(window_size())
            case signal.SIGHUP | signal.SIGTERM if self._bring.is_pty:
                self._signal_all(signum)
                self._take_leave(now)
            case _:
                self._signal_all(signum)

    def _take_leave(self, now: float) -> None:
        """Our terminal is gone, or we are to end: so is the step, which may not care for the signal."""
        if self._leave_at is None:
            self._kill_at, self._leave_at = now + _LAST_WORDS_S, now + 2 * _LAST_WORDS_S
            self._end(_Ending.TOLD_TO_END, now)

    def _meet_end(self, now: float) -> None:
        """Do what time has brought to a step that was told to end."""
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self._signal_all(signal.SIGKILL)
        if self._leave_at is not None and now >= self._leave_at:
            self._leave_alone("gqrun was told to end")

    def _interrupt(self, now: float) -> None:
        is_second = now - self._interrupted_at <= _TWICE_S
        self._interrupted_at = now
        if not is_second:
            self._signal_all(signal.SIGINT)
            self._note("interrupt sent to the tasks; again within 1 s kills them")
            return
        self._kills += 1
        if self._kills == 1:
            self._note("killing the tasks")
            self._end(_Ending.KILLED, now)
            self._signal_all(signal.SIGKILL)
        else:
            raise KeyboardInterrupt  # the nodes do not answer, and the user has waited enough

    def _signal_all(self, signum: int) -> None:
        for link in self._links:
            if not link.is_over:
                link.signal(signum)

    # ── nodes that are away ───────────────────────────────────────────────────────────────────────────────────

    def _mind_the_lost(self, now: float) -> None:
        """Tell of nodes that do not answer, and give them up when gqd knows that their part is over."""
        lost = [link for link in self._links if not link.is_over and link.down_for(now) >= _REPORT_DOWN_S]
        for link in lost:
            if link.name not in self._told_down:
                self._told_down.add(link.name)
                self._note(f"node {link.name} does not answer; waiting for it")
        for link in self._links:
            if link.is_attached and link.name in self._told_down:
                self._told_down.discard(link.name)
                self._note(f"node {link.name} is back")
        if self._over_at is not None and now - self._over_at >= _GIVE_UP_S:
            self._give_up(now)
        elif (lost or self._signs_of_an_end) and not self._client.is_open(self._inquiry):
            self._inquire(now)

    @property
    def _signs_of_an_end(self) -> bool:
        """Whether tasks were killed by others: the job may be over, and the other tasks unreachable."""
        return any(code in (128 + signal.SIGTERM, 128 + signal.SIGKILL) for code in self._counted.values())

    def _inquire(self, now: float) -> None:
        if now - self._inquired_at < _INQUIRY_S:
            return
        self._inquired_at = now
        question = ask.ListJobs(filter=ask.JobFilter(job_ids=(self._created.job_id,)), with_steps=True)
        self._inquiry = self._client.ask(question, now)

    def _take_inquiry(self, body: ask.ReplyBody, now: float) -> None:
        if not isinstance(body, ask.Jobs):
            return
        state = self._step_state(body)
        if state and self._over_at is None:
            self._over_at, self._over_state = now, state
        elif not state:
            self._over_at = None

    def _step_state(self, jobs: ask.Jobs) -> str:
        """Return the step's final state as far as gqd knows it; empty while it runs."""
        mine = self._created
        job = next((job for job in jobs.jobs if job.job_id == mine.job_id), None)
        if job is None:
            return f"job {mine.job_id} is gone"
        if job.state not in ACTIVE_WORDS or job.attempt != mine.attempt:
            return f"job {mine.job_id} has ended: {job.state}"
        step = next((step for step in job.steps if step.step == mine.step and step.attempt == mine.attempt), None)
        if step is None or step.end_at is not None:
            return f"step {mine.job_id}.{mine.step} is over"
        return ""

    def _give_up(self, now: float) -> None:
        silent = [link for link in self._links if not link.is_over]
        names = ", ".join(link.name for link in silent)
        self._note(f"{self._over_state}; nothing more was heard of its tasks on {names}")
        self._leave_alone(self._over_state)

    def _leave_alone(self, why: str) -> None:
        """Nothing more is expected of the tasks that have not ended."""
        for link in self._links:
            if link.is_over:
                continue
            link.failure = wire.StepRefused(code="lost", message=why)
            for rank in set(link.ranks) - set(link.exits):
                self._counted[rank] = 1
                self._output.finish(rank)


def lead_step(
    location: Location,
    created: ask.StepCreated,
    bring: Bring,
    output: TaskOutput,
    note: Note,
    job_end: Callable[[float], str] = lambda now: "",
) -> int:
    """Run a step that has been made, with this terminal if it is to have one; its exit code."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    client = AsyncClient(context, location)
    try:
        step = StepRun(context, client, created, bring, output, note)
        with RawTerminal() if bring.is_pty else contextlib.nullcontext():
            return step.run(job_end)
    finally:
        client.close()
        context.term()


def _how_it_ended(exited: wire.TaskExited) -> str:
    if exited.oom:
        return "ended at its memory limit (out of memory)"
    if exited.why:
        return exited.why
    if exited.exit.signal:
        return describe(exited.exit.signal)
    return f"exited with code {exited.exit.code}"


def say(command: str) -> Note:
    """Notes of a command to its user, on stderr; within a raw terminal a line needs its carriage return."""

    def note(text: str) -> None:
        end = "\r\n" if sys.stderr.isatty() else "\n"
        with contextlib.suppress(OSError):  # a terminal that hung up
            sys.stderr.write(f"{command}: {text}{end}")
            sys.stderr.flush()

    return note
