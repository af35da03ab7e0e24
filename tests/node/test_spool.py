"""The spool of a node: whole records or none, whatever was interrupted."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from gq.model.ids import AttemptId, JobId
from gq.model.resource import Grant
from gq.wire.node import GangMember, Launch
from gqnode.control.attempt import AttemptRecord, Phase
from gqnode.daemon.spool import MOST_KEPT, Spool
from gqnode.shepherd import durable


def record(job: int, attempt: int = 1, phase: Phase = Phase.PREPARING) -> AttemptRecord:
    launch = Launch(
        attempt_id=AttemptId(JobId(job), attempt), job_name="j", cluster="gq", user="u", uid=0, gid=0, partition="main",
        node_rank=0, members=(GangMember(node="n1", address="n1", tasks=1, cpus=1, gpus=0),), grant=Grant(node="n1"),
    )  # fmt: skip
    return AttemptRecord(launch=launch, phase=phase)


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(str(tmp_path / "spool"))


def test_what_was_saved_last_is_loaded_in_the_order_of_attempts(spool: Spool) -> None:
    spool.save(record(10))
    spool.save(record(9, attempt=2))
    spool.save(record(10, phase=Phase.RUNNING))
    assert spool.load() == [record(9, attempt=2), record(10, phase=Phase.RUNNING)]


def test_blobs_are_kept_beside_the_record_and_go_with_it(spool: Spool) -> None:
    spool.save(record(1), {"ab12": b"#!/bin/sh\n"})
    spool.save(record(1, phase=Phase.STARTING))
    assert spool.blob(AttemptId(JobId(1), 1), "ab12") == b"#!/bin/sh\n"
    spool.drop(AttemptId(JobId(1), 1))
    spool.drop(AttemptId(JobId(1), 1))
    assert (spool.load(), spool.orphans()) == ([], [])
    assert not Path(spool.directory(AttemptId(JobId(1), 1))).exists()


@pytest.mark.parametrize("digest", ["../../evil", "", "a/b"])
def test_what_a_digest_says_becomes_no_file_name(spool: Spool, tmp_path: Path, digest: str) -> None:
    spool.save(record(1), {digest: b"x"})
    assert spool.blob(AttemptId(JobId(1), 1), digest) == b"x"
    names = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*"))
    assert names == ["spool", "spool/1.1", "spool/1.1/blobs", "spool/1.1/record.json"]


def test_a_blob_that_is_not_there_is_said_to_be_missing(spool: Spool) -> None:
    spool.save(record(1), {"ab": b"x"})
    with pytest.raises(OSError, match="is incomplete"):
        spool.blob(AttemptId(JobId(1), 1), "cd")


@pytest.mark.parametrize("cut", [1, 2, 100])
def test_of_a_record_that_was_cut_off_by_a_crash_the_one_before_counts(spool: Spool, cut: int) -> None:
    spool.save(record(1))
    spool.save(record(1, phase=Phase.RUNNING))
    path = Path(spool.directory(AttemptId(JobId(1), 1)), "record.json")
    path.write_bytes(path.read_bytes()[:-cut])
    assert spool.load() == [record(1)]
    spool.save(record(1, phase=Phase.ENDED))
    assert spool.load() == [record(1, phase=Phase.ENDED)]


def test_a_whole_line_that_is_no_record_is_not_passed_over_for_an_older_one(spool: Spool) -> None:
    spool.save(record(1))
    path = Path(spool.directory(AttemptId(JobId(1), 1)), "record.json")
    path.write_bytes(path.read_bytes() + b"\n" + path.read_bytes().replace(b"preparing", b"hovering"))
    assert (spool.load(), spool.orphans()) == ([], [AttemptId(JobId(1), 1)])


def test_a_record_that_changes_often_does_not_fill_the_disk(spool: Spool) -> None:
    path = Path(spool.directory(AttemptId(JobId(1), 1)), "record.json")
    for change in range(2000):
        last = msgspec.structs.replace(record(1), why=f"change {change}")
        spool.save(last)
        assert path.stat().st_size < 300_000
    assert spool.load() == [last]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"launch": 1}'])
def test_a_record_that_cannot_be_read_is_set_aside_and_the_rest_is_loaded(
    spool: Spool, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    spool.save(record(1))
    spool.save(record(2))
    path = Path(spool.directory(AttemptId(JobId(1), 1)), "record.json")
    path.write_bytes(content)
    assert spool.load() == [record(2)]
    assert spool.orphans() == [AttemptId(JobId(1), 1)]
    aside = path.parents[1] / "corrupt" / "1.1.json"
    assert aside.read_bytes() == content and str(aside) in caplog.text


def test_the_record_of_another_attempt_is_not_believed(spool: Spool) -> None:
    spool.save(record(1))
    spool.save(record(2))
    first, second = (Path(spool.directory(AttemptId(JobId(job), 1)), "record.json") for job in (1, 2))
    first.replace(second)
    assert (spool.load(), spool.orphans()) == ([], [AttemptId(JobId(1), 1), AttemptId(JobId(2), 1)])


def test_a_drop_that_was_interrupted_is_finished_by_the_next_load(spool: Spool, tmp_path: Path) -> None:
    spool.save(record(1))
    (tmp_path / "spool" / "1.1").rename(tmp_path / "spool" / ".dropped-1.1")
    assert (spool.load(), spool.orphans()) == ([], [])
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_full_disk_leaves_the_old_record_and_no_new_directory(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.save(record(1))

    def write_half(fd: int, data: memoryview) -> int:
        if len(data) < 10:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real_write(fd, data[: len(data) // 2])

    real_write = os.write
    monkeypatch.setattr(durable.os, "write", write_half)
    for job in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            spool.save(record(job, phase=Phase.RUNNING), {"ab": b"blob" * 100})
    monkeypatch.undo()
    assert spool.load() == [record(1)]
    assert [path.name for path in (tmp_path / "spool").iterdir()] == ["1.1"]
    assert not [path for path in (tmp_path / "spool" / "1.1").iterdir() if path.name.endswith(".tmp")]


def test_what_an_attempt_had_on_disk_is_used_for_the_next_and_tells_nothing(spool: Spool, tmp_path: Path) -> None:
    spool.save(record(1), {"ab": b"secret"})
    first, second = (Path(spool.directory(AttemptId(JobId(job), 1))) for job in (1, 2))
    for name in ("script", "end.json"):
        (first / name).touch(0o600)
        (first / name).write_text("of the first")
    had = {path.name: path.stat().st_ino for path in first.iterdir()}
    spool.drop(AttemptId(JobId(1), 1))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and path.read_bytes()] == []
    spool.save(record(2))
    assert {path.name: path.stat().st_ino for path in second.iterdir()} == had
    assert [path.name for path in second.iterdir() if path.read_bytes()] == ["record.json"]
    assert spool.load() == [record(2)]


def test_what_a_job_put_into_its_directory_does_not_reach_the_next_one(spool: Spool, tmp_path: Path) -> None:
    spool.save(record(1), {"ab": b"x"})
    directory = Path(spool.directory(AttemptId(JobId(1), 1)))
    directory.chmod(0o711)
    (tmp_path / "mine").write_text("kept")
    os.link(directory / "blobs", tmp_path / "linked")
    (directory / "script").symlink_to(tmp_path / "mine")
    (directory / "end.json").touch(0o644)
    (directory / "deep" / "er").mkdir(parents=True)
    (directory / "other").write_text("y")
    spool.drop(AttemptId(JobId(1), 1))
    spool.save(record(2))
    directory = Path(spool.directory(AttemptId(JobId(2), 1)))
    assert [path.name for path in directory.iterdir()] == ["record.json"]
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "mine").read_text() == "kept" and (tmp_path / "linked").read_bytes()


def test_a_directory_that_is_used_again_has_a_name_only_with_its_record(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.save(record(1))
    spool.drop(AttemptId(JobId(1), 1))

    def die(path: str, line: bytes, is_durable: bool) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gqnode.daemon.spool.append_line", die)
    with pytest.raises(KeyboardInterrupt):
        spool.save(record(2), {"ab": b"x"})
    again = Spool(str(tmp_path / "spool"))
    assert (again.load(), again.orphans()) == ([], [])
    assert list((tmp_path / "spool").iterdir()) == []


def test_no_more_directories_are_kept_than_are_soon_needed(spool: Spool, tmp_path: Path) -> None:
    for job in range(MOST_KEPT + 5):
        spool.save(record(job))
    for job in range(MOST_KEPT + 5):
        spool.drop(AttemptId(JobId(job), 1))
    assert len(list((tmp_path / "spool").iterdir())) == MOST_KEPT


def test_only_the_two_records_that_must_survive_loss_of_power_wait_for_the_disk(
    spool: Spool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Phase] = []
    phase = Phase.PREPARING
    monkeypatch.setattr(durable.os, "fdatasync", lambda fd: synced.append(phase))
    for phase in Phase:
        spool.save(record(1, phase=phase))
    assert synced == [Phase.STARTING, Phase.ENDED]


@pytest.mark.parametrize("phases", [[Phase.STARTING, Phase.ENDED], [Phase.PREPARING, Phase.ENDED]])
def test_the_names_of_a_durable_record_are_durable_once(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, phases: list[Phase]
) -> None:
    synced: list[str] = []
    monkeypatch.setattr("gqnode.daemon.spool.sync_directory", synced.append)
    for phase in phases:
        spool.save(record(1, phase=phase))
    assert synced == [str(tmp_path / "spool" / "1.1"), str(tmp_path / "spool")]


def test_a_directory_that_is_used_again_need_not_be_made_durable_once_more(
    spool: Spool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool.save(record(1, phase=Phase.STARTING))
    spool.save(record(2))
    for job in (1, 2):
        spool.drop(AttemptId(JobId(job), 1))
    synced: list[str] = []
    monkeypatch.setattr("gqnode.daemon.spool.sync_directory", synced.append)
    for job in (3, 4):  # the last that was dropped comes first
        spool.save(record(job, phase=Phase.STARTING))
    assert synced == [str(tmp_path / "spool" / "3.1"), str(tmp_path / "spool"), str(tmp_path / "spool")]


def test_the_spool_is_its_owners_alone(spool: Spool, tmp_path: Path) -> None:
    spool.save(record(1), {"ab": b"x"})
    paths = [tmp_path / "spool", *(tmp_path / "spool").rglob("*")]
    assert {path.stat().st_mode & 0o077 for path in paths} == {0}


def test_a_record_survives_its_json(spool: Spool) -> None:
    full = msgspec.structs.replace(record(1), master_port=7, started_at=1.5, why="ü\ud7ff")
    spool.save(full)
    assert spool.load() == [full]
