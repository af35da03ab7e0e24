"""The spool: files on the attempts of this node, in ``<root>/<job>.<attempt>/``.

It holds the record, the script and environment that the order named, and what the attempt's shepherd writes
(see `gqnode.shepherd.shepherd`).  Everything is there whole or not at all, whichever process is killed when.

A record is a file of lines, each the whole record as JSON; the last one counts.  A part of a line at the end is what a
crash left.  Files are few and are written on, not anew: file systems are slow to give out again what was just deleted
(ext4 waits for minutes and searches for something else, which was a fifth of a short job's cost).  So the directory of
an attempt that is over is kept for the next one, with its files, but without what was in them and whatever else a job
may have put there.  It has no attempt's name until the first record of the next one is in it.

Two of an attempt's records are durable against loss of power, too, since each fsync costs what ten spawns cost:

* STARTING, before the script is forked: a node that comes back must not start it a second time;
* ENDED, before the end is reported: what the script achieved must not be called lost.

All others describe processes that loss of power ends, and blobs that only a start needs.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path
from typing import NamedTuple

import msgspec

from gq.model.ids import AttemptId, JobId
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.shepherd.batch import SCRIPT_FILE
from gqnode.shepherd.daemon_link import CONTROL_PREFIX
from gqnode.shepherd.durable import append_line, overwrite_file, replace_file, sync_directory
from gqnode.shepherd.private_tmp import DIRECTORY as PRIVATE_DIRECTORY
from gqnode.shepherd.shepherd import END_FILE

RECORD_FILE = "record.json"
BLOBS_FILE = "blobs"
CORRUPT_DIRECTORY = "corrupt"
DURABLE_PHASES = frozenset({Phase.STARTING, Phase.ENDED})
LINES_BYTES = 256 * 1024
"""A record's file that is longer, and has four lines or more like the last, is written anew with that alone."""
MOST_KEPT = 64
"""Directories of attempts that are over."""
_DROPPED_PREFIX = ".dropped-"
_KEPT_FILES = frozenset({RECORD_FILE, BLOBS_FILE, SCRIPT_FILE, END_FILE})
_KEPT_MODES = frozenset({0o600, 0o700})
_NAME = re.compile(r"(\d+)\.(\d+)")
_BLOBS: msgspec.msgpack.Decoder[dict[str, bytes]] = msgspec.msgpack.Decoder(dict[str, bytes])

_log = logging.getLogger(__name__)


class _Kept(NamedTuple):
    """A directory with empty files."""

    path: str
    is_file_named: bool


class Spool:
    """The spool of one node daemon, used on its loop."""

    def __init__(self, root: str) -> None:
        """Makes the root, readable for its owner only; `OSError` if that cannot be."""
        os.makedirs(root, mode=0o700, exist_ok=True)  # noqa: PTH103 — as the rest here, by plain paths
        self._root = os.path.realpath(root)
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AttemptRecord)
        self._present: set[AttemptId] = set()
        """Attempts that certainly have a directory."""
        self._file_named: set[AttemptId] = set()
        """Attempts whose record has a durable name in their directory."""
        self._named: set[AttemptId] = set()
        """Attempts whose directory has a durable name."""
        self._kept: list[_Kept] = []
        """For attempts to come."""

    def directory(self, attempt_id: AttemptId) -> str:
        """Where the attempt's files are; it exists after the first `save`."""
        return f"{self._root}/{attempt_id}"

    def save(self, record: AttemptRecord, blobs: dict[str, bytes] | None = None) -> None:
        """Keep the record in place of what was there, and blobs beside a new one, by digest.

        `OSError` if that cannot be (a full disk): the record is then as it was.
        """
        attempt_id = record.launch.attempt_id
        directory = self.directory(attempt_id)
        is_new = attempt_id not in self._present and not os.path.isdir(directory)  # noqa: PTH112
        place = self._fresh(attempt_id) if is_new else directory
        is_durable = record.phase in DURABLE_PHASES
        try:
            if blobs:
                overwrite_file(f"{place}/{BLOBS_FILE}", msgspec.msgpack.encode(blobs))
            self._write(f"{place}/{RECORD_FILE}", self._encoder.encode(record), is_durable)
            if place != directory:
                os.rename(place, directory)  # noqa: PTH104
        except OSError:
            if is_new:
                shutil.rmtree(place, ignore_errors=True)
            raise
        self._present.add(attempt_id)
        if is_durable:
            self._make_named(attempt_id)

    def _fresh(self, attempt_id: AttemptId) -> str:
        """Where a new attempt's files are written first: what is kept, else its own."""
        try:
            kept = self._kept.pop()
        except IndexError:
            directory = self.directory(attempt_id)
            os.mkdir(directory, mode=0o700)  # noqa: PTH102
            return directory
        if kept.is_file_named:
            self._file_named.add(attempt_id)
        return kept.path

    def _make_named(self, attempt_id: AttemptId) -> None:
        """Durably: the record in its directory, and that in the spool."""
        if attempt_id not in self._file_named:
            sync_directory(self.directory(attempt_id))
            self._file_named.add(attempt_id)
        if attempt_id not in self._named:
            sync_directory(self._root)
            self._named.add(attempt_id)

    def _write(self, path: str, line: bytes, is_durable: bool) -> None:
        size = append_line(path, line, is_durable)
        if size > max(LINES_BYTES, 4 * len(line)):
            replace_file(path, line, is_durable=True)

    def blob(self, attempt_id: AttemptId, digest: str) -> bytes:
        """A script or an environment saved with the attempt; `OSError` if there is none."""
        try:
            return _BLOBS.decode(Path(self.directory(attempt_id), BLOBS_FILE).read_bytes())[digest]
        except (msgspec.MsgspecError, KeyError) as error:
            raise OSError(errno.ENOENT, "the spool file is incomplete", digest) from error

    def load(self) -> list[AttemptRecord]:
        """All records, by attempt.  One that cannot be read is logged and set aside: see `orphans`."""
        self._finish_drops()
        records = (self._load(attempt_id) for attempt_id in self._attempt_ids())
        return [record for record in records if record is not None]

    def orphans(self) -> list[AttemptId]:
        """Attempts that have a directory but no record, to be emptied and dropped: processes of them may still run."""
        return [id for id in self._attempt_ids() if not Path(self.directory(id), RECORD_FILE).exists()]

    def has_private(self, attempt_id: AttemptId) -> bool:
        """Whether its processes had a ``/tmp`` of their own.  Cheap: no thread is needed to ask."""
        return os.path.isdir(self._private(attempt_id))  # noqa: PTH112

    def _private(self, attempt_id: AttemptId) -> str:
        return f"{self.directory(attempt_id)}/{PRIVATE_DIRECTORY}"

    def clear_private(self, attempt_id: AttemptId) -> None:
        """Remove what the attempt's processes wrote into a ``/tmp`` of their own; `OSError` if something stays.

        By rm(1): a tree as deep as somebody likes, with whatever is in it, is not for Python's recursion.
        """
        if not self.has_private(attempt_id):
            return
        directory = self._private(attempt_id)
        remove = ("rm", "-rf", "--one-file-system", "--", directory)
        done = subprocess.run(remove, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        if done.returncode != 0:
            raise OSError(errno.ENOTEMPTY, done.stderr.decode(errors="replace").strip()[:300], directory)

    def drop(self, attempt_id: AttemptId) -> None:
        """Nothing is left of the attempt; fine if there is none.  Renamed first: no crash leaves half of it."""
        kept = _Kept(f"{self._root}/{_DROPPED_PREFIX}{attempt_id}", attempt_id in self._file_named)
        self._file_named.discard(attempt_id)
        self._named.discard(attempt_id)
        self._present.discard(attempt_id)
        try:
            os.rename(self.directory(attempt_id), kept.path)  # noqa: PTH104
        except FileNotFoundError:
            return
        if len(self._kept) < MOST_KEPT and _is_cleared(kept.path):
            has_file = os.access(f"{kept.path}/{RECORD_FILE}", os.F_OK)
            self._kept.append(kept._replace(is_file_named=kept.is_file_named and has_file))
        else:
            shutil.rmtree(kept.path, ignore_errors=True)

    def _attempt_ids(self) -> list[AttemptId]:
        names = (_NAME.fullmatch(entry.name) for entry in Path(self._root).iterdir())
        return sorted(AttemptId(JobId(int(name[1])), int(name[2])) for name in names if name)

    def _load(self, attempt_id: AttemptId) -> AttemptRecord | None:
        path = Path(self.directory(attempt_id), RECORD_FILE)
        try:
            record = self._last_of(path.read_bytes())
            if record.launch.attempt_id == attempt_id:
                return record
            why = f"it is the record of {record.launch.attempt_id}"
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = str(error)
        self._set_aside(path, attempt_id, why)
        return None

    def _last_of(self, data: bytes) -> AttemptRecord:
        """The last line that is whole; one that is whole and no record is not passed over."""
        torn: Exception | None = None
        for line in reversed(data.split(b"\n")):
            try:
                return self._decoder.decode(line)
            except msgspec.ValidationError:
                raise
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                torn = torn or error
        assert torn is not None, "a file has at least one line"
        raise torn

    def _set_aside(self, path: Path, attempt_id: AttemptId, why: str) -> None:
        corrupt = Path(self._root, CORRUPT_DIRECTORY)
        corrupt.mkdir(mode=0o700, exist_ok=True)
        aside = corrupt / f"{attempt_id}.json"
        path.rename(aside)
        _log.error("the record of attempt %s cannot be read and was renamed to %s: %s", attempt_id, aside, why)

    def _finish_drops(self) -> None:
        for entry in Path(self._root).iterdir():
            if entry.name.startswith(_DROPPED_PREFIX):
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith(CONTROL_PREFIX):  # who lives has another name for it
                entry.unlink(missing_ok=True)


def _is_cleared(directory: str) -> bool:
    """Files that only this daemon's user ever had are emptied, all else is removed; False if that cannot be."""
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                _clear(entry)
        os.chmod(directory, 0o700)  # noqa: PTH101
    except OSError:
        return False
    return True


def _clear(entry: os.DirEntry[str]) -> None:
    found = entry.stat(follow_symlinks=False)
    is_own = found.st_uid == os.geteuid() and found.st_nlink == 1 and stat.S_IMODE(found.st_mode) in _KEPT_MODES
    if entry.name in _KEPT_FILES and is_own and stat.S_ISREG(found.st_mode):
        os.truncate(entry.path, 0)
    elif stat.S_ISDIR(found.st_mode):
        shutil.rmtree(entry.path)
    else:
        os.unlink(entry.path)  # noqa: PTH108
