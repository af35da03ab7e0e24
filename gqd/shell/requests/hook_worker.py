"""The process that runs the site's submit hook: ``python -m gqd.shell.requests.hook_worker FILE.py:FUNCTION``.

Reads questions from standard input and writes answers to standard output, each a length and a msgpack document; the
hook's own output goes to standard error, which is the controller's log.  The process ends with its input or with the
controller, which kills it when an answer takes too long.  It keeps no state between questions, but the hook may.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import sys
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from gq.config.submit_hook import Reject, Submitter, load_hook
from gq.errors import Refusal
from gq.model.job import JobSpec

LENGTH = struct.Struct(">I")
MAX_FRAME = 32 * 1024 * 1024
_PR_SET_PDEATHSIG = 1


class Question(msgspec.Struct, frozen=True, kw_only=True):
    job: JobSpec
    submitter: Submitter


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The hook's answer.  All fields empty: the job is accepted unchanged; as the first answer: the worker is ready."""

    job: JobSpec | None = None
    """The changed job."""
    refusal: str = ""
    hint: str = ""
    error: str = ""
    """The hook failed with this error."""


QUESTIONS = msgspec.msgpack.Decoder(Question)
VERDICTS = msgspec.msgpack.Decoder(Verdict)


def main(place: str, parent: int) -> int:
    _end_with(parent)
    questions, answers = _own_streams()
    try:
        hook = load_hook(place)
    except (Exception, SystemExit) as error:
        _write(answers, Verdict(error=_in_words(error)))
        return 1
    _write(answers, Verdict())
    while (question := _read(questions)) is not None:
        _write(answers, ask(hook, question))
    return 0


def ask(hook: Callable[[JobSpec, Submitter], object], question: Question) -> Verdict:
    """Call the hook for one job."""
    try:
        answer = hook(question.job, question.submitter)
    except Reject as rejected:
        return Verdict(refusal=rejected.message or "the site's submit hook refuses this job", hint=rejected.hint)
    except (Exception, SystemExit) as error:
        return Verdict(error=_in_words(error))
    if answer is None or answer == question.job:
        return Verdict()
    if not isinstance(answer, JobSpec):
        return Verdict(error=f"it returned {type(answer).__name__}, which is neither a job nor None")
    return Verdict(job=answer)


def _in_words(error: BaseException) -> str:
    if isinstance(error, Refusal):
        return error.message
    return f"{type(error).__name__}: {error}"


def _write(stream: BinaryIO, verdict: Verdict) -> None:
    try:
        data = msgspec.msgpack.encode(verdict)
    except Exception as error:  # a job that the hook made may hold any value
        data = msgspec.msgpack.encode(Verdict(error=f"it returned a job that cannot be sent: {error}"))
    stream.write(LENGTH.pack(len(data)) + data)
    stream.flush()


def _read(stream: BinaryIO) -> Question | None:
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    return QUESTIONS.decode(stream.read(LENGTH.unpack(head)[0]))


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """The streams to the controller; afterwards standard input is empty and standard output goes to the log."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return questions, answers


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was gone before
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
