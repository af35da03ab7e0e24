"""The shepherd: one small process per attempt and node that holds the attempt's processes and outlives the daemon.

It is forked by the forkserver and never execs.  It is a child subreaper outside the cell, so that every process of the
job stays its descendant and killing the cell does not kill it.  It runs the batch script and the tasks of steps,
records how the script ended, and kills the remaining processes: when the script is over by itself, when the daemon
sends `empty`, and (where the kernel does not limit memory) when the attempt is over its memory limit.

In the attempt's directory it makes:

* ``ctl``: the socket that a restarted daemon connects to.  It exists from before the attempt begins until its end is
  recorded: making it fails the second time, so no attempt is ever started twice.  It is a hard link to the socket that
  the shepherd keeps for all its life, in the directory above.
* ``script``: the batch script.
* ``end.json``: how the script ended, and, once no process is left, the resources used by all processes; the last
  complete line of this attempt counts.  It is made durable (fsync) only while no daemon is connected: a connected
  daemon writes its own record before it reports, and one record is enough.

Without a daemon the shepherd ends as soon as no process is left; the recorded end tells the next daemon the rest.  If
``begin`` allows it, the shepherd then waits idle for another attempt: forking the interpreter, and every page that is
then copied, costs more than everything else that a short job needs.  An idle shepherd holds no process, no control
socket and nothing of its last attempt; a shepherd that entered a mount namespace or ran steps ends instead.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from gqnode.shepherd import keyring, private_tmp
from gqnode.shepherd.batch import Batch
from gqnode.shepherd.daemon_link import DaemonLink, is_trusted
from gqnode.shepherd.durable import append_line
from gqnode.shepherd.launch_failure import CannotLaunch
from gqnode.shepherd.memory_watch import MemoryWatch
from gqnode.shepherd.process_exit import ProcessExit, process_exit_of
from gqnode.shepherd.processes import (
    belongs,
    descendants,
    ignores,
    kill_all,
    marker_of,
    read_process,
    send_signal,
    stop_all,
)
from gqnode.shepherd.reactor import READ, Reactor
from gqnode.shepherd.specs import ShepherdSpec, shepherd_spec, task_spec
from gqnode.shepherd.tasks import Step

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gqnode.shepherd.frames import Head

CONTROL_SOCKET = "ctl"
DOOR_PREFIX = ".ctl-"
END_FILE = "end.json"
CRASH_FILE = "shepherd.log"

MEMORY_SAMPLE_S = 0.5
FIRST_SWEEP_S = 0.002
LONGEST_SWEEP_S = 0.5
STOP_ROUNDS = 200
"""Rounds of SIGSTOP after the first, for an attempt that forks all the time; with their delays 10 s in all."""
STOP_AGAIN_S = 0.002
LONGEST_STOP_AGAIN_S = 0.05
RETRY_S = 5.0
SWEEPS_BEFORE_FREEZING = 4
MAX_LIVES = 200
"""Attempts that one shepherd holds in succession, as a bound on any leak."""
SETTLE_S = 0.005
"""How long a new process is waited for: mostly it is the program by then, and no page that this one writes to has to be
copied meanwhile.  What hangs longer is heard of later."""
FETCH_S = 10.0
"""How long a shepherd with nothing left to hold stays for a client that has not fetched all output."""

_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def run(directory: str, link: socket.socket) -> None:
    """The life of a shepherd, in a process of its own; returns when it may end."""
    try:
        os.chdir(directory)
    except OSError:
        return  # the attempt was removed from the spool: nobody wants it any more
    try:
        os.umask(0o077)
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _LIBC.prctl(_PR_SET_NAME, b"gq-shepherd", 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        shepherd = Shepherd(directory, link)
        while not shepherd.is_done:
            shepherd.turn()
        shepherd.close()
    except BaseException:
        import traceback  # half as much as all the rest: only when something is wrong already

        with open(CRASH_FILE, "a") as file:
            file.write(traceback.format_exc())


class Shepherd:
    """Handles commands from the daemon and sends events; all work is done in `turn`."""

    def __init__(self, directory: str, link: socket.socket) -> None:
        self._reactor = Reactor()
        self._lives = 0
        self._make_door()
        self._be_new(directory)
        self._wake_on_death()
        self._meet(link)
        self._daemon.flush()

    def _be_new(self, directory: str) -> None:
        """Reset all state for a new attempt, whose directory is the working directory."""
        self._cell = directory
        self._batch: Batch | None = None
        self._steps: dict[int, Step] = {}
        self._known_steps: set[int] = set()
        self._total = ProcessExit()
        self._watch: MemoryWatch | None = None
        self._over_memory: set[int] = set()
        self._is_begun = False
        self._is_emptying = False
        self._is_emptied = False
        self._is_late = False
        self._is_in_grace = False
        self._is_private = False
        self._may_rest = False
        self._is_resting = False
        self._sweeps = 0
        self._news: list[Head] = []
        self._is_unrecorded = False
        self._lives += 1
        self._open_door()

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to hold, to record, to send or to be fetched."""
        if not self._daemon.is_open:
            return not self._is_unrecorded if self._is_emptied else not self._is_begun
        return not self._is_resting and self._holds_nothing and self._daemon.is_flushed

    @property
    def _holds_nothing(self) -> bool:
        """Whether the attempt has no process left and its output is fetched, or was not fetched in time."""
        is_fetched = all(step.is_fetched for step in self._steps.values())
        return self._is_emptied and (is_fetched or self._is_late)

    def turn(self) -> None:
        self._reactor.turn()
        self._reap()
        self._publish()
        if self._may_rest and self._holds_nothing and self._daemon.is_open and not self._is_unrecorded:
            self._rest()
        self._daemon.flush()

    def close(self) -> None:
        self._daemon.close()
        self._door.close()
        with suppress(FileNotFoundError):  # a daemon that is new has tidied up
            os.unlink(self._door_name, dir_fd=self._above)

    # ── from one attempt to the next ──────────────────────────────────────────────────────────────────────────

    def _rest(self) -> None:
        """Wait idle until the daemon sends another attempt or closes the link."""
        self._may_rest = False
        self._is_resting = True
        for key in ("late", "record"):
            self._reactor.cancel(key)
        self._batch = None
        self.tell({"is": "free"})

    def _hold(self, directory: str) -> None:
        """Take another attempt."""
        os.chdir(directory)
        self._be_new(directory)
        self._tell_here()

    # ── links ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _make_door(self) -> None:
        """Bind the control socket by a relative path, since the path of a socket is limited to 107 bytes."""
        self._above = os.open("..", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._door_name = f"{DOOR_PREFIX}{os.getpid()}"
        with suppress(FileNotFoundError):  # of one that was killed and had this number
            os.unlink(self._door_name, dir_fd=self._above)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.bind(f"../{self._door_name}")
        self._door.listen(4)
        self._door.setblocking(False)

    def _open_door(self) -> None:
        os.link(self._door_name, CONTROL_SOCKET, src_dir_fd=self._above)
        self._reactor.watch(self._door.fileno(), READ, self._accept)

    def _close_door(self) -> None:
        """Remove ``ctl`` before the daemon learns that the attempt is over and may reuse the directory."""
        self._reactor.forget(self._door.fileno())
        with suppress(FileNotFoundError):  # a job of the same user can have removed it
            os.unlink(CONTROL_SOCKET)

    def _accept(self) -> None:
        try:
            link, _ = self._door.accept()
        except OSError:
            return
        if not is_trusted(link):
            link.close()
            return
        self._daemon.close()
        self._may_rest = False  # whether this daemon would give it another attempt it has not said
        self._unfollow()
        self._meet(link)
        self._tell_all()

    def _meet(self, link: socket.socket) -> None:
        self._daemon = DaemonLink(self._reactor, link, self._on_frame, self._pump, self._on_gone)
        self._tell_here()

    def _tell_here(self) -> None:
        self.tell({"is": "here", "pid": os.getpid()})

    def _on_gone(self) -> None:
        """Make the recorded end durable, since the daemon may not have written it."""
        self._unfollow()
        if self._batch and self._batch.end:
            self._record()

    def _unfollow(self) -> None:
        for step in self._steps.values():
            step.unfollow()

    def _tell_all(self) -> None:
        """Send a new daemon all events that do not wait for a client."""
        if self._is_begun:
            self._tell_started()
        if self._batch and self._batch.end:
            self.tell({"is": "ended", **self._batch.end})
        for step in self._steps.values():
            step.tell_state()
        if self._is_emptied:
            self.tell({"is": "emptied", **self._usage()})

    @property
    def is_ready(self) -> bool:
        return self._daemon.is_ready

    def tell(self, head: Head, data: bytes = b"") -> None:
        self._daemon.send(head, data)

    def _pump(self) -> None:
        for step in self._steps.values():
            step.pump()

    # ── commands ──────────────────────────────────────────────────────────────────────────────────────────────

    def _on_frame(self, head: Head, data: bytes) -> None:
        match head:
            case {"do": "begin", "spec": fields}:
                self._begin(shepherd_spec(fields), data, may_rest=bool(head.get("may_rest")))
            case {"do": "hold", "directory": str(directory)}:
                if self._is_resting:
                    self._hold(directory)
            case {"do": "signal", "signum": int(signum), "scope": str(scope)}:
                self._signal(signum, scope)
            case {"do": "check"}:
                self._check()
            case {"do": "empty"}:
                self._start_emptying()
            case {"do": "line", "text": str(text)}:
                self._write_line(text)
            case {"do": "tasks", "step": int(number), "tasks": list(tasks)}:
                self._start_tasks(number, tasks)
            case {"step": int(number)} if number in self._steps:
                self._on_step_frame(self._steps[number], head, data)
            case _:
                pass  # for a step that is forgotten, or a word of a newer daemon

    def _on_step_frame(self, step: Step, head: Head, data: bytes) -> None:
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
                send_signal(self._processes_of(step), signum)
                self._hang_up([step], signum)
            case {"do": "detach"}:
                step.detach()
                self._forget_step(step)
            case _:
                pass

    def _begin(self, spec: ShepherdSpec, script: bytes, may_rest: bool) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        self._may_rest = may_rest and not spec.private_tmp and self._lives < MAX_LIVES
        if spec.watch_memory_mib is not None:
            self._watch = MemoryWatch(os.getpid(), spec.watch_memory_mib)
            self._sample_memory()
        self._batch = Batch(spec, self._cell)
        if not self._is_set_apart(spec):
            return
        if not spec.is_batch:
            self._tell_started()
            return
        self._batch.start(script)
        if self._batch.status_fd is None:
            self._batch_over(ProcessExit())
        elif select.select([self._batch.status_fd], [], [], SETTLE_S)[0]:
            self._settle_batch()
        else:
            self._reactor.watch(self._batch.status_fd, READ, self._settle_batch)

    def _is_set_apart(self, spec: ShepherdSpec) -> bool:
        """Enter the attempt's own session keyring and, where the node has them, its own /tmp and /dev/shm.

        Where that fails nothing of the attempt is started.
        """
        assert self._batch is not None
        try:
            keyring.join_new(spec.identity)
            if spec.private_tmp:
                private_tmp.enter(self._cell, spec.shm_mib, spec.kept_in_tmp)
                self._is_private = True
        except CannotLaunch as error:
            self._batch.fail(error.failure)
            self._batch_over(ProcessExit())
            return False
        return True

    def _tell_started(self) -> None:
        if self._batch and self._batch.has_started:
            self.tell({"is": "started", "at": self._batch.started_at, "pid": self._batch.pid})

    def _settle_batch(self) -> None:
        """Read whether the script runs and report its start."""
        if self._batch and self._batch.status_fd is not None:
            self._reactor.forget(self._batch.status_fd)
            self._batch.settle()
            self._tell_started()

    def _signal(self, signum: int, scope: str) -> None:
        match scope:
            case "batch":
                pids = [self._batch.pid] if self._batch and self._batch.is_alive else []
            case "steps":
                pids = [pid for step in self._steps.values() for pid in self._processes_of(step)]
            case _ if signum == signal.SIGSTOP:
                self._stop_all()
                return
            case _:
                self._reactor.cancel("stop")
                pids = descendants(os.getpid())
                self._is_in_grace |= signum == signal.SIGTERM
        send_signal(pids, signum)
        if scope != "batch":
            self._hang_up(self._steps.values(), signum)

    def _stop_all(self, rounds: int = 0) -> None:
        """SIGSTOP to all processes, again within milliseconds, until a round finds no process that is not stopped."""
        if stop_all(os.getpid()) or rounds >= STOP_ROUNDS or self._is_emptying:
            return
        delay_s = min(STOP_AGAIN_S * 2**rounds, LONGEST_STOP_AGAIN_S)
        self._reactor.after("stop", delay_s, lambda: self._stop_all(rounds + 1))

    def _hang_up(self, steps: Iterable[Step], signum: int) -> None:
        """Send HUP to shells that ignore TERM, as the kernel does when their terminal goes away."""
        if signum == signal.SIGTERM:
            leaders = [pid for step in steps for pid in step.terminal_pids if ignores(pid, signum)]
            send_signal(leaders, signal.SIGHUP)

    def _check(self) -> None:
        """Report `quiet` if no process is left at this moment, a script about to be forked included."""
        self._reap()
        if not descendants(os.getpid()):
            self.tell({"is": "quiet"})

    def _write_line(self, text: str) -> None:
        if self._batch:
            self._batch.write_line(text)

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_tasks(self, number: int, tasks: list[Head]) -> None:
        if number in self._known_steps or self._is_emptying:
            return
        self._known_steps.add(number)
        self._may_rest = False
        step = self._steps[number] = Step(number, f"{self._cell}.{number}", self._reactor, self)
        step.start(map(task_spec, tasks))
        self._end_step(step)

    def _processes_of(self, step: Step) -> list[int]:
        """Return the step's tasks and their descendants, found by descent, by session, or by the marker."""
        own = set(step.pids)
        below = {pid for task in own for pid in descendants(task)}
        return [pid for pid in descendants(os.getpid()) if pid in own or pid in below or _is_of(step, pid, own)]

    def _end_step(self, step: Step) -> None:
        """Kill the processes that an ended step's tasks left behind, then report the step's end."""
        if not step.is_over or step.is_end_told:
            return
        if kill_all(lambda: self._processes_of(step), freeze=False):
            self._reactor.after(f"end {step.number}", FIRST_SWEEP_S * 10, lambda: self._end_step(step))
            return
        step.tell_end()
        self._forget_step(step)

    def _forget_step(self, step: Step) -> None:
        if step.is_detached and step.is_end_told:
            self._steps.pop(step.number, None)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _wake_on_death(self) -> None:
        wake_fd, signal_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(signal_fd, warn_on_full_buffer=False)
        self._reactor.watch(wake_fd, READ, lambda: drain(wake_fd))

    def _reap(self) -> None:
        """Wait for every process that ended; with the last process, emptying is over."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._on_childless()
                return
            if pid == 0:
                if self._is_emptying and not self._sweeps:
                    self._sweep()
                return
            self._on_process_exit(pid, process_exit_of(status, usage, was_over_memory=pid in self._over_memory))

    def _on_process_exit(self, pid: int, process_exit: ProcessExit) -> None:
        self._over_memory.discard(pid)
        self._total = self._total.plus_usage(process_exit)
        if self._batch and pid == self._batch.pid:
            self._settle_batch()
            self._batch_over(process_exit)
            return
        for step in list(self._steps.values()):
            if step.reaped(pid, process_exit):
                self._end_step(step)
                return

    def _batch_over(self, process_exit: ProcessExit) -> None:
        """Record the script's end and empty the attempt, since the job is then over on this node, steps included.

        If the attempt was sent TERM, its processes keep the rest of their grace: a shell dies of TERM at once while the
        program that it ran may still write its checkpoint.  The daemon ends the grace.
        """
        assert self._batch is not None
        end = self._batch.record_end(process_exit, self._peak_mib())
        self._news.append({"is": "ended", **end})
        if not self._is_in_grace:
            self._is_emptying = True  # mostly nothing is left, and `_reap` is about to see it

    def _peak_mib(self) -> int:
        return max(self._total.max_rss_mib, self._watch.peak_mib if self._watch else 0)

    def _start_emptying(self) -> None:
        if not self._is_emptying:
            self._is_emptying = True
            self._sweep()

    def _sweep(self) -> None:
        """KILL all processes repeatedly, since one in a system call may take time and one that forks has children."""
        if self._is_emptied:
            return
        self._sweeps += 1
        kill_all(lambda: descendants(os.getpid()), freeze=self._sweeps > SWEEPS_BEFORE_FREEZING)
        delay_s = min(FIRST_SWEEP_S * 2**self._sweeps, LONGEST_SWEEP_S)
        self._reactor.after("sweep", delay_s, self._sweep)

    def _on_childless(self) -> None:
        """Finish emptying: without a child there is no descendant, as orphans become children of a subreaper."""
        if not self._is_emptying or self._is_emptied:
            return
        self._is_emptied = True
        if self._is_private:
            private_tmp.leave()
        for name in ("sweep", "stop", "memory"):
            self._reactor.cancel(name)
        for step in list(self._steps.values()):
            self._end_step(step)
        self._news.append({"is": "emptied", **self._usage()})
        self._reactor.after("late", FETCH_S, self._be_late)

    def _usage(self) -> Head:
        return {**self._total.usage(), "max_rss_mib": self._peak_mib()}

    def _be_late(self) -> None:
        self._is_late = True

    def _publish(self) -> None:
        """Record the events of this turn, then send them; mostly both ends are recorded in one write."""
        if self._news:
            self._record()
            self._may_rest &= not (self._is_emptied and self._is_unrecorded)
            if self._is_emptied and self._may_rest:
                self._close_door()
            for news in self._news:
                self.tell(news)
            self._news.clear()

    def _record(self) -> None:
        """Write a whole line or none; retry on a full disk, as without a daemon this is the only record."""
        content = {
            "attempt": os.path.basename(self._cell),
            "ended": self._batch.end if self._batch else None,
            "emptied": self._usage() if self._is_emptied else None,
        }
        self._is_unrecorded = False
        try:
            append_line(END_FILE, json.dumps(content).encode(), is_durable=not self._daemon.is_open)
        except FileNotFoundError:
            return  # the attempt was removed from the spool: nobody wants to know
        except OSError:
            self._is_unrecorded = True
            self._reactor.after("record", RETRY_S, self._record)

    # ── memory ────────────────────────────────────────────────────────────────────────────────────────────────

    def _sample_memory(self) -> None:
        assert self._watch is not None
        if self._watch.is_over() and not self._is_emptying:
            if not self._over_memory:
                self._write_line(self._watch.verdict())
            self._over_memory.update(descendants(os.getpid()))
            kill_all(lambda: descendants(os.getpid()), freeze=True)
        if not self._is_emptied:
            self._reactor.after("memory", MEMORY_SAMPLE_S, self._sample_memory)


def _is_of(step: Step, pid: int, sessions: set[int]) -> bool:
    process = read_process(pid)
    return process is not None and (process.session in sessions or belongs(marker_of(pid), step.cell))


def drain(fd: int) -> None:
    """Empty a wake-up pipe; the cause is found by looking."""
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return
