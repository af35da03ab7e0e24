"""What this node must remember of its attempts: ``<root>/<job>.<attempt>/``, one directory each.

It holds the record, the script and environment that the order named, and what the attempt's shepherd writes
(see `gqnode.shell.shepherd`).  Everything is there whole or not at all, whichever process is killed when.

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
from pathlib import Path

import msgspec

from gq.model.ids import AttemptId, JobId
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.shell.durable import replace_file, sync_directory

RECORD_FILE = "record.json"
CORRUPT_DIRECTORY = "corrupt"
DURABLE_PHASES = frozenset({Phase.STARTING, Phase.ENDED})
_DROPPED_PREFIX = ".dropped-"
_NAME = re.compile(r"(\d+)\.(\d+)")
_DIGEST = re.compile(r"[0-9a-f]{1,128}")

_log = logging.getLogger(__name__)


class Spool:
    """One user at a time: the node daemon's loop."""

    def __init__(self, root: str) -> None:
        """Makes the root, readable for its owner only; `OSError` if that cannot be."""
        os.makedirs(root, mode=0o700, exist_ok=True)  # noqa: PTH103 — as the rest here, by plain paths
        self._root = os.path.realpath(root)
        self._encoder = msgspec.json.Encoder()
        self._decoder = msgspec.json.Decoder(AttemptRecord)

    def directory(self, attempt_id: AttemptId) -> str:
        """Where the attempt's files are; it exists after the first `save`."""
        return f"{self._root}/{attempt_id}"

    def save(self, record: AttemptRecord, blobs: dict[str, bytes] | None = None) -> None:
        """Keep the record in place of what was there, and blobs beside it, by digest.

        `OSError` if that cannot be (a full disk): the record is then as it was.
        """
        directory = Path(self.directory(record.launch.attempt_id))
        is_new = _make_directory(directory)
        is_durable = record.phase in DURABLE_PHASES
        try:
            for digest, blob in (blobs or {}).items():
                replace_file(str(_blob_path(directory, digest)), blob, is_durable=False)
            replace_file(str(directory / RECORD_FILE), self._encoder.encode(record), is_durable)
        except OSError:
            if is_new:
                shutil.rmtree(directory, ignore_errors=True)
            raise
        if is_durable:
            sync_directory(self._root)

    def blob(self, attempt_id: AttemptId, digest: str) -> bytes:
        """A script or an environment saved with the attempt; `OSError` if there is none."""
        return _blob_path(Path(self.directory(attempt_id)), digest).read_bytes()

    def load(self) -> list[AttemptRecord]:
        """All records, by attempt.  One that cannot be read is logged and set aside: see `orphans`."""
        self._finish_drops()
        records = (self._load(attempt_id) for attempt_id in self._attempt_ids())
        return [record for record in records if record is not None]

    def orphans(self) -> list[AttemptId]:
        """Attempts that have a directory but no record, to be emptied and dropped: processes of them may still run."""
        return [id for id in self._attempt_ids() if not Path(self.directory(id), RECORD_FILE).exists()]

    def drop(self, attempt_id: AttemptId) -> None:
        """Remove all of the attempt; nothing if there is none.  Renamed first: no crash leaves half of it."""
        dropped = Path(self._root, f"{_DROPPED_PREFIX}{attempt_id}")
        try:
            Path(self.directory(attempt_id)).rename(dropped)
        except FileNotFoundError:
            return
        shutil.rmtree(dropped, ignore_errors=True)

    def _attempt_ids(self) -> list[AttemptId]:
        names = (_NAME.fullmatch(entry.name) for entry in Path(self._root).iterdir())
        return sorted(AttemptId(JobId(int(name[1])), int(name[2])) for name in names if name)

    def _load(self, attempt_id: AttemptId) -> AttemptRecord | None:
        path = Path(self.directory(attempt_id), RECORD_FILE)
        try:
            record = self._decoder.decode(path.read_bytes())
            if record.launch.attempt_id == attempt_id:
                return record
            why = f"it is the record of {record.launch.attempt_id}"
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            why = str(error)
        self._set_aside(path, attempt_id, why)
        return None

    def _set_aside(self, path: Path, attempt_id: AttemptId, why: str) -> None:
        corrupt = Path(self._root, CORRUPT_DIRECTORY)
        corrupt.mkdir(mode=0o700, exist_ok=True)
        aside = corrupt / f"{attempt_id}.json"
        path.rename(aside)
        _log.error("the record of attempt %s cannot be read and is set aside as %s: %s", attempt_id, aside, why)

    def _finish_drops(self) -> None:
        for entry in Path(self._root).iterdir():
            if entry.name.startswith(_DROPPED_PREFIX):
                shutil.rmtree(entry, ignore_errors=True)


def _make_directory(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        return False
    return True


def _blob_path(directory: Path, digest: str) -> Path:
    """A digest comes over the wire: nothing else may become a file name."""
    if not _DIGEST.fullmatch(digest):
        raise OSError(errno.EINVAL, "not a digest", digest)
    return directory / f"blob-{digest}"
