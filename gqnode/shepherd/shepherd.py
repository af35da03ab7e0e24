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
from typing import TYPE_CHECKING

from gqnode.shepherd import keyring, private_tmp
from gqnode.shepherd.batch import Batch
from gqnode.shepherd.daemon_link import ControlSocket, DaemonLink
from gqnode.shepherd.durable import append_line
from gqnode.shepherd.launch_failure import CannotLaunch
from gqnode.shepherd.memory_watch import MemoryWatch
from gqnode.shepherd.process_exit import ProcessExit, process_exit_of
from gqnode.shepherd.processes import Killing, descendants, send_signal
from gqnode.shepherd.reactor import READ, Reactor
from gqnode.shepherd.specs import ShepherdSpec, shepherd_spec, task_spec
from gqnode.shepherd.tasks import AttemptSteps

if TYPE_CHECKING:
    from gqnode.shepherd.frames import Head

END_FILE = "end.json"
CRASH_FILE = "shepherd.log"

RETRY_S = 5.0
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
        self._control = ControlSocket(self._reactor, self._accept)
        self._killing = Killing(self._reactor)
        self._be_new(directory)
        _wake_on_death(self._reactor)
        self._meet(link)
        self._daemon.flush()

    def _be_new(self, directory: str) -> None:
        """Reset all state for a new attempt, whose directory is the working directory."""
        self._cell = directory
        self._batch: Batch | None = None
        self._steps = AttemptSteps(directory, self._reactor, self)
        self._total = ProcessExit()
        self._watch: MemoryWatch | None = None
        self._is_begun = False
        self.is_emptying = False
        self._is_emptied = False
        self._is_late = False
        self._is_in_grace = False
        self._is_private = False
        self._may_rest = False
        self._is_resting = False
        self._killing.reset()
        self._news: list[Head] = []
        self._is_unrecorded = False
        self._lives += 1
        self._control.open()

    def write_line(self, text: str) -> None:
        """Append a line to the standard error of the script."""
        if self._batch:
            self._batch.write_line(text)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to hold, to record, to send or to be fetched."""
        if not self._daemon.is_open:
            return not self._is_unrecorded if self._is_emptied else not self._is_begun
        return not self._is_resting and self._holds_nothing and self._daemon.is_flushed

    @property
    def _holds_nothing(self) -> bool:
        """Whether the attempt has no process left and its output is fetched, or was not fetched in time."""
        return self._is_emptied and (self._steps.are_fetched or self._is_late)

    def turn(self) -> None:
        self._reactor.turn()
        self._reap()
        self._publish()
        if self._may_rest and self._holds_nothing and self._daemon.is_open and not self._is_unrecorded:
            self._rest()
        self._daemon.flush()

    def close(self) -> None:
        self._daemon.close()
        self._control.close()

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

    def _accept(self, link: socket.socket) -> None:
        self._daemon.close()
        self._may_rest = False  # whether this daemon would give it another attempt it has not said
        self._steps.unfollow()
        self._meet(link)
        self._tell_all()

    def _meet(self, link: socket.socket) -> None:
        self._daemon = DaemonLink(self._reactor, link, self._on_frame, lambda: self._steps.pump(), self._on_gone)
        self._tell_here()

    def _tell_here(self) -> None:
        self.tell({"is": "here", "pid": os.getpid()})

    def _on_gone(self) -> None:
        """Make the recorded end durable, since the daemon may not have written it."""
        self._steps.unfollow()
        if self._batch and self._batch.end:
            self._record()

    def _tell_all(self) -> None:
        """Send a new daemon all events that do not wait for a client."""
        if self._is_begun:
            self._tell_started()
        if self._batch and self._batch.end:
            self.tell({"is": "ended", **self._batch.end})
        self._steps.tell_state()
        if self._is_emptied:
            self.tell({"is": "emptied", **self._usage()})

    @property
    def is_ready(self) -> bool:
        return self._daemon.is_ready

    def tell(self, head: Head, data: bytes = b"") -> None:
        self._daemon.send(head, data)

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
                self._reap()
                if not descendants(os.getpid()):
                    self.tell({"is": "quiet"})
            case {"do": "empty"}:
                if not self.is_emptying:
                    self.is_emptying = True
                    self._killing.sweep()
            case {"do": "line", "text": str(text)}:
                self.write_line(text)
            case {"do": "tasks", "step": int(number), "tasks": list(tasks)} if not self.is_emptying:
                self._may_rest = False
                self._steps.start(number, map(task_spec, tasks))
            case {"step": int(number)}:
                self._steps.on_frame(number, head, data)
            case _:
                pass  # a word of a newer daemon

    def _begin(self, spec: ShepherdSpec, script: bytes, may_rest: bool) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        self._may_rest = may_rest and not spec.private_tmp and self._lives < MAX_LIVES
        if spec.watch_memory_mib is not None:
            self._watch = MemoryWatch(self._reactor, os.getpid(), spec.watch_memory_mib, self)
            self._watch.sample()
        self._batch = Batch(spec, self._cell)
        try:
            keyring.join_new(spec.identity)
            if spec.private_tmp:
                private_tmp.enter(self._cell, spec.shm_mib, spec.kept_in_tmp)
                self._is_private = True
        except CannotLaunch as error:
            self._batch.fail(error.failure)
            self._batch_over(ProcessExit())
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
                pids = self._steps.processes()
            case _ if signum == signal.SIGSTOP:
                self._killing.stop()
                return
            case _:
                self._killing.cancel_stop()
                pids = descendants(os.getpid())
                self._is_in_grace |= signum == signal.SIGTERM
        send_signal(pids, signum)
        if scope != "batch":
            self._steps.hang_up(signum)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _reap(self) -> None:
        """Wait for every process that ended; with the last process, emptying is over."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self._on_childless()
                return
            if pid == 0:
                if self.is_emptying and not self._killing.rounds:
                    self._killing.sweep()
                return
            was_over = self._watch is not None and self._watch.take_killed(pid)
            self._on_process_exit(pid, process_exit_of(status, usage, was_over_memory=was_over))

    def _on_process_exit(self, pid: int, process_exit: ProcessExit) -> None:
        self._total = self._total.plus_usage(process_exit)
        if self._batch and pid == self._batch.pid:
            self._settle_batch()
            self._batch_over(process_exit)
            return
        self._steps.reaped(pid, process_exit)

    def _batch_over(self, process_exit: ProcessExit) -> None:
        """Record the script's end and empty the attempt, since the job is then over on this node, steps included.

        If the attempt was sent TERM, its processes keep the rest of their grace: a shell dies of TERM at once while the
        program that it ran may still write its checkpoint.  The daemon ends the grace.
        """
        assert self._batch is not None
        end = self._batch.record_end(process_exit, self._peak_mib())
        self._news.append({"is": "ended", **end})
        if not self._is_in_grace:
            self.is_emptying = True  # mostly nothing is left, and `_reap` is about to see it

    def _peak_mib(self) -> int:
        return max(self._total.max_rss_mib, self._watch.peak_mib if self._watch else 0)

    def _on_childless(self) -> None:
        """Finish emptying: without a child there is no descendant, as orphans become children of a subreaper."""
        if not self.is_emptying or self._is_emptied:
            return
        self._is_emptied = True
        if self._is_private:
            private_tmp.leave()
        self._killing.cancel()
        if self._watch:
            self._watch.cancel()
        self._steps.end()
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
                self._control.remove()
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


def _wake_on_death(reactor: Reactor) -> None:
    """Have the reactor turn whenever a child ends."""
    wake_fd, signal_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(signal_fd, warn_on_full_buffer=False)
    reactor.watch(wake_fd, READ, lambda: drain(wake_fd))


def drain(fd: int) -> None:
    """Empty a wake-up pipe; the cause is found by looking."""
    try:
        os.read(fd, 4096)
    except BlockingIOError:
        return
