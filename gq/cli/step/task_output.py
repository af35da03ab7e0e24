"""Writes the output of a step's tasks: whole lines, with the task's rank if requested, to their destinations.

It owns the files of ``--output`` and ``--error``.  Lines of different tasks are never mixed; with one task, or
unbuffered, bytes are written as they come.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import msgspec

from gq.cli.step.buffered_writer import BufferedWriter
from gq.errors import Refusal, UsageError

LONGEST_LINE = 16 * 1024
"""A longer line is passed on in pieces: a task that never ends its line must not fill memory."""

Destination = Sequence[BufferedWriter | None]
"""Writer by rank; None: the output is discarded."""
Stream = tuple[int, str]
"""Rank, and ``stdout`` or ``stderr``."""


class OutputOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Output options; `output` and `error` as in Slurm: ``all``, ``none``, a rank, or a file pattern."""

    output: str | None = None
    error: str | None = None
    is_appending: bool = False
    is_labelled: bool = False
    is_unbuffered: bool = False


class TaskOutput:
    """Feeds what tasks print to outlets."""

    def __init__(self, stdout: Destination, stderr: Destination, *, is_labelled: bool, is_unbuffered: bool) -> None:
        self._destinations = {"stdout": stdout, "stderr": stderr}
        self._label_width = len(str(max(0, len(stdout) - 1))) if is_labelled else 0
        self._is_direct = not is_labelled and (is_unbuffered or len(stdout) == 1)
        self._is_unbuffered = is_unbuffered
        self._held: dict[Stream, bytes] = {}
        """Begun lines that were not passed on."""
        self._mid_line: set[Stream] = set()
        """Streams whose last piece passed on did not end its line."""
        both = [writer for writer in (*stdout, *stderr) if writer is not None]
        self.writers = list({writer.fd: writer for writer in both}.values())

    @property
    def backlog(self) -> int:
        return sum(writer.backlog for writer in self.writers)

    @property
    def reader_is_gone(self) -> bool:
        return any(writer.is_gone for writer in self.writers)

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Take bytes of one stream, in order."""
        writer = self._destinations[stream][rank]
        if writer is None or not data:
            return
        if self._is_direct:
            writer.put(data)
            return
        key = (rank, stream)
        text = self._held.pop(key, b"") + data
        cut = text.rfind(b"\n") + 1
        if self._is_unbuffered or len(text) - cut > LONGEST_LINE:
            cut = len(text)
        if cut:
            writer.put(self._labelled(key, text[:cut]))
        if cut < len(text):
            self._held[key] = text[cut:]

    def finish(self, rank: int) -> None:
        """The task is over: pass on the lines that it did not end."""
        for stream, destination in self._destinations.items():
            key, writer = (rank, stream), destination[rank]
            rest = self._held.pop(key, b"")
            if rest and writer is not None:
                writer.put(self._labelled(key, rest))
            if key in self._mid_line and self._label_width and writer is not None:
                writer.put(b"\n")
            self._mid_line.discard(key)

    def push(self) -> None:
        for writer in self.writers:
            if writer.backlog:
                writer.push()

    def _labelled(self, key: Stream, text: bytes) -> bytes:
        was_mid_line = key in self._mid_line
        (self._mid_line.discard if text.endswith(b"\n") else self._mid_line.add)(key)
        if not self._label_width:
            return text
        label = b"%*d: " % (self._label_width, key[0])
        lines = _lines(text)
        return b"".join(line if was_mid_line and not at else label + line for at, line in enumerate(lines))


def _lines(text: bytes) -> list[bytes]:
    """Lines by newline alone: a progress bar's carriage returns start no new one."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def open_output(options: OutputOptions, ntasks: int, expand: Callable[[str, int], str]) -> TaskOutput:
    """Open every file now, so that a bad path is told before a task runs; `expand` makes a rank's file name."""
    files: dict[str, BufferedWriter] = {}
    stdout = _destination(
        options.output, BufferedWriter(1, "standard output"), ntasks, expand, files, options.is_appending
    )
    if options.error is None and _is_pattern(options.output):
        stderr = stdout
    else:
        stderr = _destination(
            options.error, BufferedWriter(2, "standard error"), ntasks, expand, files, options.is_appending
        )
    return TaskOutput(stdout, stderr, is_labelled=options.is_labelled, is_unbuffered=options.is_unbuffered)


def _is_pattern(text: str | None) -> bool:
    return text is not None and text not in ("all", "none") and not text.isdecimal()


def _destination(
    text: str | None,
    terminal: BufferedWriter,
    ntasks: int,
    expand: Callable[[str, int], str],
    files: dict[str, BufferedWriter],
    is_appending: bool,
) -> Destination:
    match text:
        case None | "all":
            return [terminal] * ntasks
        case "none":
            return [None] * ntasks
        case _ if text.isdecimal():
            if int(text) >= ntasks:
                raise UsageError("bad_rank", f"there is no task {text}: the step has {ntasks}, counted from 0")
            return [terminal if rank == int(text) else None for rank in range(ntasks)]
        case _:
            return [_file(expand(text, rank), files, is_appending) for rank in range(ntasks)]


def _file(path: str, files: dict[str, BufferedWriter], is_appending: bool) -> BufferedWriter:
    if path not in files:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_APPEND if is_appending else os.O_TRUNC)
        try:
            files[path] = BufferedWriter(os.open(path, flags, 0o666), path)
        except OSError as error:
            raise Refusal("output_failed", f"cannot open {path}: {error.strerror}") from error
    return files[path]
