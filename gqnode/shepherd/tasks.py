"""The tasks of one step on this node: their start, their streams, their end.  Runs in the shepherd.

Frames of a task come in this order: `task_started`, its output, `task_exited`.  A process that a task leaves behind may
keep its output open: once the task is over, a stream also ends when no data came for `LINGER_S`.  When the last task of
the step is over, the step's remaining processes are killed, and `step_ended` is sent.
"""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import termios
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gqnode.shepherd.launch import Program, launch, read_status
from gqnode.shepherd.launch_failure import CannotLaunch, LaunchFailure, doing
from gqnode.shepherd.process_exit import ProcessExit
from gqnode.shepherd.processes import (
    FIRST_SWEEP_S,
    belongs,
    descendants,
    ignores,
    kill_all,
    marker_of,
    read_process,
    send_signal,
)
from gqnode.shepherd.reactor import READ, WRITE, Reactor
from gqnode.shepherd.stream import InputFeed, OutputStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gqnode.shepherd.frames import Head
    from gqnode.shepherd.specs import TaskSpec

LINGER_S = 1.0
_WINDOW_SIZE = struct.Struct("4H")


class Post(Protocol):
    """The part of the shepherd's link to the daemon that a step uses."""

    @property
    def is_ready(self) -> bool:
        """Whether bulk data may be sent."""
        ...

    def tell(self, head: Head, data: bytes = b"") -> None: ...


class Task:
    """A task's process with its pipes or its terminal."""

    def __init__(self, rank: int, pid: int, status_fd: int | None, streams: tuple[OutputStream, ...]) -> None:
        self.rank = rank
        self.pid = pid
        self.status_fd = status_fd
        """Launch status pipe; None once it is known whether the program runs."""
        self.streams = streams
        self.terminal_fd: int | None = None
        self.failure: LaunchFailure | None = None
        self.process_exit: ProcessExit | None = None
        self.is_start_told = False
        self.is_exit_told = False

    @property
    def is_settled(self) -> bool:
        return self.status_fd is None


class _Ends(NamedTuple):
    """Descriptors of a task's streams, on the shepherd's side and in the child."""

    stdin: int | None
    stdout: int
    stderr: int | None
    child: tuple[int, int, int]
    is_terminal: bool


class _StepInput:
    """Writes a step's standard input to every task that takes it; calls ``on_fed`` after each round."""

    def __init__(self, reactor: Reactor, tell_taken: Callable[[int], None], on_fed: Callable[[], None]) -> None:
        self._reactor = reactor
        self._send_taken = tell_taken
        self._on_fed = on_fed
        self._feed = InputFeed()
        self._tasks: dict[int, Task] = {}
        """Tasks that take input, by descriptor."""
        self._told_taken = 0

    def add(self, fd: int, task: Task) -> None:
        self._tasks[fd] = task
        self._feed.add_reader(fd)

    def take(self, offset: int, data: bytes, is_end: bool) -> None:
        self._feed.add(offset, data, is_end)
        self.feed()

    def wants_to_write(self, fd: int) -> bool:
        return fd in self._tasks and self._feed.wants_to_write(fd)

    def feed(self) -> None:
        """Write what the tasks take now, and watch for room in the others."""
        for fd, task in list(self._tasks.items()):
            is_terminal = task.terminal_fd == fd
            if self.wants_to_write(fd) and self._feed.write_to(fd, is_terminal):
                self._end(fd, is_terminal)
            if not is_terminal and fd in self._tasks:
                self._watch(fd)
        self._on_fed()
        if self._feed.taken != self._told_taken:
            self.tell_taken()

    def tell_taken(self) -> None:
        """Report how much input all tasks have taken."""
        self._told_taken = self._feed.taken
        self._send_taken(self._feed.taken)

    def forget(self, fd: int) -> None:
        """Leave out a descriptor that its owner closes."""
        if self._tasks.pop(fd, None) is not None:
            self._feed.remove_reader(fd)

    def close(self, task: Task) -> None:
        """End the input of a task that has ended."""
        for fd, owner in list(self._tasks.items()):
            if owner is task:
                self._end(fd, task.terminal_fd == fd)
        if self._feed.taken != self._told_taken:
            self.tell_taken()

    def _watch(self, fd: int) -> None:
        if self.wants_to_write(fd):
            self._reactor.watch(fd, WRITE, self.feed)
        else:
            self._reactor.forget(fd)

    def _end(self, fd: int, is_terminal: bool) -> None:
        self.forget(fd)
        if not is_terminal:
            self._reactor.forget(fd)
            os.close(fd)


class Step:
    """The tasks of one step, started together."""

    def __init__(self, number: int, cell: str, reactor: Reactor, post: Post) -> None:
        self.number = number
        self.cell = cell
        self._reactor = reactor
        self._post = post
        self._tasks: dict[int, Task] = {}
        self._input = _StepInput(reactor, self._tell_taken, self._watch_streams)
        self._is_followed = True
        self.is_detached = False
        """Whether the daemon said that no client will attach again."""
        self.is_end_told = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, specs: Iterable[TaskSpec]) -> None:
        for spec in specs:
            self._tasks[spec.rank] = self._start_task(spec)
        if any(task.failure for task in self._tasks.values()):
            self._tell_failed()
        self.pump()

    @property
    def pids(self) -> set[int]:
        """Process ids of all tasks, running or ended; each is also the id of a session."""
        return {task.pid for task in self._tasks.values() if task.pid}

    @property
    def terminal_pids(self) -> list[int]:
        """Process ids of the running tasks that have a terminal."""
        return [task.pid for task in self._tasks.values() if task.terminal_fd is not None and task.process_exit is None]

    @property
    def is_over(self) -> bool:
        """Whether all tasks have ended."""
        return all(task.process_exit is not None for task in self._tasks.values())

    @property
    def is_fetched(self) -> bool:
        """Whether the step is over and its output fetched or discarded."""
        streams = (stream for task in self._tasks.values() for stream in task.streams)
        return self.is_over and (self.is_detached or all(stream.is_fetched for stream in streams))

    def reaped(self, pid: int, process_exit: ProcessExit) -> bool:
        """Handle the exit of a process; return whether it was one of this step's tasks."""
        task = next((task for task in self._tasks.values() if task.pid == pid), None)
        if task is None:
            return False
        self._settle(task)
        if task.failure is not None:
            process_exit = process_exit._replace(code=task.failure.exit_code, signal=0)
        task.process_exit = process_exit
        if process_exit.shell_code:
            self._tell_failed()
        self._input.close(task)
        self._reactor.after(f"linger {self.number} {task.rank}", LINGER_S, partial(self._end_streams, task))
        self.pump()
        return True

    def tell_state(self) -> None:
        """Send a new daemon the events that it needs without a client."""
        if self.is_end_told:
            self.tell_end()
        elif any(task.process_exit and task.process_exit.shell_code for task in self._tasks.values()):
            self._tell_failed()

    def tell_end(self) -> None:
        """Report the end of the step: all tasks are over and no process of them is left."""
        deaths = [task.process_exit for task in self._tasks.values() if task.process_exit]
        worst = max(deaths, key=lambda process_exit: process_exit.shell_code, default=ProcessExit())
        used = reduce(ProcessExit.plus_usage, deaths, ProcessExit()).usage()
        oom = any(process_exit.oom for process_exit in deaths)
        self.is_end_told = True
        head: Head = {"is": "step_ended", "step": self.number}
        self._post.tell({**head, "code": worst.code, "signal": worst.signal, "oom": oom, **used})

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────

    def take_stdin(self, offset: int, data: bytes, is_end: bool) -> None:
        self._input.take(offset, data, is_end)

    def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size; the kernel notifies its foreground processes (SIGWINCH)."""
        for task in self._tasks.values():
            if task.terminal_fd is not None:
                set_window_size(task.terminal_fd, rows, columns)

    def acknowledge(self, positions: Iterable[tuple[int, str, int]]) -> None:
        for rank, name, offset in positions:
            task = self._tasks.get(rank)
            for stream in task.streams if task else ():
                if stream.name == name:
                    stream.acknowledge(offset)
        self._watch_streams()
        self.pump()

    def replay(self, positions: Iterable[tuple[int, str, int]]) -> None:
        """Send all unacknowledged events again, to a client that has output up to these positions."""
        self._is_followed = True
        for task in self._tasks.values():
            task.is_start_told = task.is_exit_told = False
            for stream in task.streams:
                stream.rewind()
        self.acknowledge(positions)
        self._input.tell_taken()

    def unfollow(self) -> None:
        """Keep output and send nothing until `replay`: the daemon is away, or new and without a client."""
        self._is_followed = False

    def detach(self) -> None:
        """Discard output from now on, so that no task waits for a client that will not come."""
        self.is_detached = True
        for task in self._tasks.values():
            for stream in task.streams:
                stream.discard()
        self._watch_streams()

    def pump(self) -> None:
        """Send all events that can be sent now."""
        if self._is_followed and not self.is_detached:
            for task in self._tasks.values():
                self._pump_task(task)

    # ── start of a task ───────────────────────────────────────────────────────────────────────────────────────

    def _start_task(self, spec: TaskSpec) -> Task:
        try:
            task, ends = _launch(spec, self.cell)
        except (CannotLaunch, OSError) as error:
            failure = (
                error.failure if isinstance(error, CannotLaunch) else LaunchFailure(f"cannot start a process: {error}")
            )
            task = Task(spec.rank, 0, None, (OutputStream("stdout", None), OutputStream("stderr", None)))
            task.failure = failure
            task.process_exit = ProcessExit(code=failure.exit_code)
            return task
        if ends.is_terminal:
            task.terminal_fd = ends.stdout
        if ends.stdin is not None:
            self._input.add(ends.stdin, task)
        assert task.status_fd is not None
        self._reactor.watch(task.status_fd, READ, partial(self._on_status, task))
        self._watch_task(task)
        return task

    def _on_status(self, task: Task) -> None:
        self._settle(task)
        self.pump()

    def _settle(self, task: Task) -> None:
        """Read whether the program runs."""
        if task.status_fd is not None:
            self._reactor.forget(task.status_fd)
            task.failure = read_status(task.status_fd)
            task.status_fd = None

    # ── output ────────────────────────────────────────────────────────────────────────────────────────────────

    def _watch_streams(self) -> None:
        for task in self._tasks.values():
            self._watch_task(task)

    def _watch_task(self, task: Task) -> None:
        """Watch only streams with room, because a hang-up would otherwise wake the shepherd all the time."""
        for stream in task.streams:
            if stream.fd is None:
                continue
            events = READ if stream.wants_data else 0
            if task.terminal_fd == stream.fd and self._input.wants_to_write(stream.fd):
                events |= WRITE
            if events:
                self._reactor.watch(stream.fd, events, partial(self._on_stream, task, stream))
            else:
                self._reactor.forget(stream.fd)

    def _on_stream(self, task: Task, stream: OutputStream) -> None:
        if task.terminal_fd is not None:
            self._input.feed()
        if stream.wants_data:
            self._read(task, stream)
        self._watch_task(task)
        self.pump()

    def _read(self, task: Task, stream: OutputStream) -> bool:
        fd = stream.fd
        assert fd is not None
        is_data = stream.read()
        if stream.fd is None:
            self._close(task, fd)
        return is_data

    def _end_streams(self, task: Task) -> None:
        """Close the quiet streams of an ended task, whose pipes other processes may still hold open."""
        is_open = False
        for stream in task.streams:
            if stream.fd is None:
                continue
            fd = stream.fd
            if stream.wants_data and not self._read(task, stream) and stream.fd is not None:
                stream.fd = None
                self._close(task, fd)
            is_open |= stream.fd is not None
        if is_open:
            self._reactor.after(f"linger {self.number} {task.rank}", LINGER_S, partial(self._end_streams, task))
        self._watch_task(task)
        self.pump()

    def _close(self, task: Task, fd: int) -> None:
        self._reactor.forget(fd)
        if task.terminal_fd == fd:
            task.terminal_fd = None
            self._input.forget(fd)
        os.close(fd)

    def _pump_task(self, task: Task) -> None:
        if not task.is_settled:
            return
        if not task.is_start_told and task.failure is None:
            self._post.tell({"is": "task_started", "step": self.number, "rank": task.rank, "pid": task.pid})
        task.is_start_told = True
        for stream in task.streams:
            self._pump_stream(task, stream)
        if task.process_exit and not task.is_exit_told and all(stream.is_told for stream in task.streams):
            task.is_exit_told = True
            self._tell_exit(task, task.process_exit)

    def _pump_stream(self, task: Task, stream: OutputStream) -> None:
        while self._post.is_ready and (chunk := stream.next_chunk()) is not None:
            offset, data, is_eof = chunk
            head: Head = {"is": "output", "step": self.number, "rank": task.rank, "stream": stream.name}
            self._post.tell({**head, "offset": offset, "eof": is_eof}, data)

    def _tell_failed(self) -> None:
        """Report the failure at once, before output that a client may be slow to take."""
        self._post.tell({"is": "task_failed", "step": self.number})

    def _tell_exit(self, task: Task, process_exit: ProcessExit) -> None:
        head: Head = {"is": "task_exited", "step": self.number, "rank": task.rank}
        why = task.failure.why if task.failure else ""
        self._post.tell(
            {**head, "code": process_exit.code, "signal": process_exit.signal, "oom": process_exit.oom, "why": why}
        )

    def _tell_taken(self, offset: int) -> None:
        self._post.tell({"is": "stdin_taken", "step": self.number, "offset": offset})


def set_window_size(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, _WINDOW_SIZE.pack(rows, columns, 0, 0))


def _launch(spec: TaskSpec, cell: str) -> tuple[Task, _Ends]:
    """Start the process of a task.  Raises `CannotLaunch` or `OSError`."""
    ends = _open_terminal(spec) if spec.stdin == "pty" else _open_pipes(spec)
    program = Program(
        argv=spec.argv,
        environment=spec.environment,
        cell=cell,
        chdir=spec.chdir,
        umask=spec.umask,
        cgroup_procs=spec.cgroup_procs,
        identity=spec.identity,
        confinement=spec.confinement,
        has_terminal=ends.is_terminal,
        cpus=spec.cpus,
        is_task=True,
    )
    try:
        launched = launch(program, lambda: ends.child, kept=ends.child)
    except OSError:
        for fd in {ends.stdin, ends.stdout, ends.stderr} - {None}:
            os.close(fd)  # type: ignore[arg-type]  # None is taken out
        raise
    finally:
        for fd in set(ends.child):
            os.close(fd)
    streams = (OutputStream("stdout", ends.stdout), OutputStream("stderr", ends.stderr))
    return Task(spec.rank, launched.pid, launched.status_fd, streams), ends


def _open_terminal(spec: TaskSpec) -> _Ends:
    with doing("open a terminal"):
        master, slave = os.openpty()
    set_window_size(slave, spec.rows, spec.columns)
    if spec.identity is not None:
        os.fchown(slave, spec.identity.uid, -1)
    os.set_blocking(master, False)
    return _Ends(stdin=master, stdout=master, stderr=None, child=(slave, slave, slave), is_terminal=True)


def _open_pipes(spec: TaskSpec) -> _Ends:
    with doing("make pipes"):
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        if spec.stdin == "null":
            in_read, in_write = os.open("/dev/null", os.O_RDONLY), None
        else:
            in_read, in_write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(in_write, False)
    os.set_blocking(out_read, False)
    os.set_blocking(err_read, False)
    if spec.identity is not None:  # who opens /dev/stdout anew is asked whose the pipe is
        for fd in (out_write, err_write, *([] if spec.stdin == "null" else [in_read])):
            os.fchown(fd, spec.identity.uid, -1)
    return _Ends(in_write, out_read, err_read, child=(in_read, out_write, err_write), is_terminal=False)


class AttemptSteps:
    """The steps of one attempt on this node, by number."""

    def __init__(self, cell: str, reactor: Reactor, post: Post) -> None:
        self._cell = cell
        self._reactor = reactor
        self._post = post
        self._steps: dict[int, Step] = {}
        self._known: set[int] = set()
        """Numbers of all steps that were ever started."""

    @property
    def are_fetched(self) -> bool:
        """Whether a client has received all output."""
        return all(step.is_fetched for step in self._steps.values())

    def start(self, number: int, tasks: Iterable[TaskSpec]) -> None:
        """Start the tasks of a step, once."""
        if number not in self._known:
            self._known.add(number)
            step = self._steps[number] = Step(number, f"{self._cell}.{number}", self._reactor, self._post)
            step.start(tasks)
            self._end(step)

    def on_frame(self, number: int, head: Head, data: bytes) -> None:
        """Carry out a command; one for a step that is forgotten, or of a newer daemon, is ignored."""
        step = self._steps.get(number)
        if step is None:
            return
        match head:
            case {"do": "stdin", "offset": int(offset), "eof": bool(is_end)}:
                step.take_stdin(offset, data, is_end)
            case {"do": "received", "positions": positions}:
                step.acknowledge(positions)
            case {"do": "replay", "positions": positions}:
                step.replay(positions)
            case {"do": "resize", "rows": int(rows), "columns": int(columns)}:
                step.resize(rows, columns)
            case {"do": "signal_step", "signum": int(signum)}:
                send_signal(_processes_of(step), signum)
                _hang_up(step, signum)
            case {"do": "detach"}:
                step.detach()
                self._forget(step)
            case _:
                pass

    def processes(self) -> list[int]:
        """Return the process ids of all tasks and their descendants."""
        return [pid for step in self._steps.values() for pid in _processes_of(step)]

    def hang_up(self, signum: int) -> None:
        """Send HUP, after TERM, to shells on terminals that ignore TERM."""
        for step in self._steps.values():
            _hang_up(step, signum)

    def reaped(self, pid: int, process_exit: ProcessExit) -> None:
        """Note the end of a process, which may have been a task."""
        for step in list(self._steps.values()):
            if step.reaped(pid, process_exit):
                self._end(step)
                return

    def end(self) -> None:
        """Report the end of each step; no process of the attempt is left."""
        for step in list(self._steps.values()):
            self._end(step)

    def pump(self) -> None:
        """Send on what waited for room on the link."""
        for step in self._steps.values():
            step.pump()

    def unfollow(self) -> None:
        """Forget the client of each step, since the link to the daemon is gone."""
        for step in self._steps.values():
            step.unfollow()

    def tell_state(self) -> None:
        """Send a new daemon all events of steps that do not wait for a client."""
        for step in self._steps.values():
            step.tell_state()

    def _end(self, step: Step) -> None:
        """Kill the processes that an ended step's tasks left behind, then report the step's end."""
        if not step.is_over or step.is_end_told:
            return
        if kill_all(lambda: _processes_of(step), freeze=False):
            self._reactor.after(f"end {step.number}", FIRST_SWEEP_S * 10, lambda: self._end(step))
            return
        step.tell_end()
        self._forget(step)

    def _forget(self, step: Step) -> None:
        if step.is_detached and step.is_end_told:
            self._steps.pop(step.number, None)


def _processes_of(step: Step) -> list[int]:
    """Return the step's tasks and their descendants, found by descent, by session, or by the marker."""
    own = set(step.pids)
    below = {pid for task in own for pid in descendants(task)}
    return [pid for pid in descendants(os.getpid()) if pid in own or pid in below or _is_of(step, pid, own)]


def _is_of(step: Step, pid: int, sessions: set[int]) -> bool:
    process = read_process(pid)
    return process is not None and (process.session in sessions or belongs(marker_of(pid), step.cell))


def _hang_up(step: Step, signum: int) -> None:
    """Send HUP to shells that ignore TERM, as the kernel does when their terminal goes away."""
    if signum == signal.SIGTERM:
        send_signal([pid for pid in step.terminal_pids if ignores(pid, signum)], signal.SIGHUP)
