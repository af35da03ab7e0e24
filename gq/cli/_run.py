"""The console scripts: each loads the module of its command and nothing else.

Owns what every process does at its ends: Ctrl-C is exit 130, a reader that went away is no error.  It must import
nothing heavy, so that a faster road may be taken before a command is loaded.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from typing import TYPE_CHECKING, NoReturn

from gq.host.fd_limit import open_closed_streams

if TYPE_CHECKING:
    from gq.cli.framework.command import Command

EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
"""Exit status of a process that SIGPIPE ended."""

_WRITE_FAILURES = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

JOB_VERBS = (
    "sub",
    "run",
    "alloc",
    "stat",
    "why",
    "del",
    "log",
    "wait",
    "info",
    "acct",
    "prio",
    "share",
    "resv",
    "cron",
    "sim",
    "ctl",
)
"""``gq VERB`` is the command ``gqVERB``."""
CLUSTER_VERBS = (
    "up", "down", "status", "demo", "doctor", "ssh", "pam-check", "checkpoint-done", "resume-done", "key",
    "install-service",
)  # fmt: skip
"""``gq VERB`` is the module ``gq.VERB`` of this package, with ``_`` for ``-``."""
ELSEWHERE = {"gqsim": "gqd.sim.gqsim"}
"""Commands that are no module of this package: what rehearses the scheduler needs it."""
CONTROL_VERBS = ("events",)
"""``gq VERB`` is ``gqctl VERB``."""
UNBUILT_VERBS = ("eff", "top", "jupyter", "tunnel")
"""Named in the documents, brought by later versions."""


def gq() -> NoReturn:
    _main("gq")


def gqsub() -> NoReturn:
    _main("gqsub")


def gqrun() -> NoReturn:
    _main("gqrun")


def gqalloc() -> NoReturn:
    _main("gqalloc")


def gqstat() -> NoReturn:
    _main("gqstat")


def gqwhy() -> NoReturn:
    _main("gqwhy")


def gqdel() -> NoReturn:
    _main("gqdel")


def gqlog() -> NoReturn:
    _main("gqlog")


def gqwait() -> NoReturn:
    _main("gqwait")


def gqinfo() -> NoReturn:
    _main("gqinfo")


def gqacct() -> NoReturn:
    _main("gqacct")


def gqprio() -> NoReturn:
    _main("gqprio")


def gqshare() -> NoReturn:
    _main("gqshare")


def gqresv() -> NoReturn:
    _main("gqresv")


def gqcron() -> NoReturn:
    _main("gqcron")


def gqsim() -> NoReturn:
    _main("gqsim")


def gqctl() -> NoReturn:
    _main("gqctl")


def _main(name: str) -> NoReturn:
    """Run the command and leave at once: to take the interpreter apart costs more than many a command itself."""
    open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name from elsewhere never ends us
    try:
        status = _call(name, sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    except BrokenPipeError:
        status = EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _WRITE_FAILURES:
            raise
        status = 1
        _complain(f"error: cannot write the output: {error.strerror}\n")
    _complain("")
    os._exit(status)


def _complain(text: str) -> None:
    """Write to stderr what is left for it; where that fails, too, the exit status says it alone."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        pass


def _call(name: str, words: list[str]) -> int:
    if f"_{name.upper()}_COMPLETE" in os.environ:
        from gq.cli.framework.help import complete

        return complete(load(name))
    if name == "gq" and words and words[0] in CONTROL_VERBS:
        name = "gqctl"
    elif name == "gq" and words and (module := module_of(words[0])):
        name, words = module, words[1:]
    from gq.cli.framework.invoke import invoke

    return invoke(load(name), words)


def module_of(verb: str) -> str:
    """The module behind ``gq VERB``; empty if there is no such verb."""
    if verb in JOB_VERBS:
        return f"gq{verb}"
    return f"gq.{verb.replace('-', '_')}" if verb in CLUSTER_VERBS else ""


def load(module: str) -> Command:
    """The command of that name; ``gq`` is the family of all."""
    if module == "gq":
        return _family()
    from importlib import import_module

    gc.disable()  # loading makes no garbage; looking for it takes a tenth of the time
    command: Command = import_module(ELSEWHERE.get(module, f"gq.cli.{module}")).COMMAND
    gc.enable()
    return command


def _verbs() -> dict[str, Command]:
    control = load("gqctl").verbs
    assert control is not None
    named = control()
    return {
        **{verb: load(module_of(verb)) for verb in (*JOB_VERBS, *CLUSTER_VERBS)},
        **{verb: named[verb] for verb in CONTROL_VERBS},
    }


def _family() -> Command:
    from gq.cli.framework.command import Command

    return Command(
        name="gq",
        summary="A batch queue for teams that share GPUs.",
        details="Each verb is also a command of its own: `gq sub` is `gqsub`.",
        verbs=_verbs,
        unbuilt=UNBUILT_VERBS,
    )
