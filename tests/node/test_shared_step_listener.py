"""The step door of a shared cluster: open to everybody on the host, and to each only for what is theirs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gq.model.ids import AttemptId
from gq.wire import node as node_wire
from gq.wire import step as wire
from tests.node.shared_node import SPOOL, SharedNode, output_of, shared_node
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB, Account
from tests.system.hosts import Network

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("shared_door"),  # so that the host is set up once
    pytest.mark.timeout(120),
]


@pytest.fixture
def node(net: Network) -> Iterator[SharedNode]:
    with shared_node(net) as node:
        yield node


@pytest.fixture
def job(node: SharedNode) -> AttemptId:
    """Of alice, and it runs."""
    attempt_id = node.submit(ALICE, "", is_interactive=True)
    node.started(attempt_id)
    return attempt_id


# ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_key_of_a_step_is_of_no_use_to_another_user(node: SharedNode, job: AttemptId) -> None:
    step_id = node.expect_step(job)

    (refused,) = node.say(node.attach(step_id, "id", "-u"), BOB)
    heard = node.say(node.attach(step_id, "id", "-u"), ALICE, until="TaskExited")

    assert isinstance(refused, wire.StepRefused) and refused.code == "not_owner"
    assert any(isinstance(one, wire.Output) and one.data == b"2001\n" for one in heard)


def test_in_a_cluster_that_is_not_shared_others_are_not_even_answered(net: Network) -> None:
    with shared_node(net, is_shared=False) as node:
        ask = wire.FindCells(uid=ALICE.uid)

        assert node.say(ask, ALICE) == ()
        assert node.say(ask) == (wire.Cells(),)


def test_sockets_and_directories_have_the_modes_that_let_users_in_and_no_further(node: SharedNode) -> None:
    modes = {
        path: node.host.path(path).stat().st_mode & 0o777
        for path in ("/run/gq", "/run/gq/step-n1.sock", "/var/lib/gq", "/var/lib/gq/nodes", SPOOL)
    }

    assert modes == {
        "/run/gq": 0o755, "/run/gq/step-n1.sock": 0o666, "/var/lib/gq": 0o711, "/var/lib/gq/nodes": 0o711, SPOOL: 0o711
    }  # fmt: skip


def test_the_terminal_of_a_step_is_its_users(node: SharedNode, job: AttemptId) -> None:
    attach = node.attach(node.expect_step(job), "sh", "-c", 'echo "to $(tty)" > $(tty); stat -c %u $(tty)')
    with_terminal = msgspec.structs.replace(attach, pty=wire.WindowSize(24, 80))

    heard = node.say(with_terminal, ALICE, until="TaskExited")

    said = output_of(heard).split()
    assert said[0] == "to" and said[1].startswith("/dev/pts/") and said[2] == "2001"


# ── cells ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_root_is_told_how_to_join_a_users_cells_and_the_user_only_which_there_are(
    node: SharedNode, job: AttemptId
) -> None:
    ask = wire.FindCells(uid=ALICE.uid)

    (for_root,) = node.say(ask)
    assert isinstance(for_root, wire.Cells)
    (place,) = for_root.cells
    assert (place.attempt_id, place.namespace_pid, place.marker) == (job, 0, f"{SPOOL}/{job}")
    assert all(Path(path).exists() for path in place.procs_files)
    assert node.say(ask, ALICE) == (wire.Cells(cells=(wire.CellPlace(attempt_id=job),)),)
    (refused,) = node.say(ask, BOB)
    assert isinstance(refused, wire.StepRefused) and refused.code == "not_owner"
    assert node.say(wire.FindCells(uid=BOB.uid)) == (wire.Cells(),)


def test_who_joined_a_cell_from_elsewhere_is_gone_before_the_node_says_that_it_is_empty(
    node: SharedNode, job: AttemptId
) -> None:
    (cells,) = node.say(wire.FindCells(uid=ALICE.uid))
    assert isinstance(cells, wire.Cells)
    join = "; ".join(f"echo 0 > {path}" for path in cells.cells[0].procs_files)
    session = node.host.start("sh", "-c", f"{join}; echo in; exec sleep 1000")
    assert session.stdout is not None and session.stdout.readline() == "in\n"

    node.stop(job)

    node.controller.report(node_wire.CellEmptied)
    assert session.wait(5) != 0


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


def ticket(node: SharedNode, path: str, owner: Account) -> wire.OpenLog:
    """As gqd would seal it for this user."""
    sealed = wire.seal(wire.LogTicket(1, 1, path, owner.uid, time.time() + 60), node.controller.hellos[-1].ticket_key)
    return wire.OpenLog(ticket=sealed)


@pytest.fixture
def diary(node: SharedNode) -> str:
    """A file that alice keeps to herself."""
    return node.user(ALICE).write("diary", "dear diary\n")


def test_a_file_is_read_with_the_rights_of_whom_the_ticket_was_made_for(node: SharedNode, diary: str) -> None:
    (own,) = node.say(ticket(node, diary, ALICE), ALICE)
    (to_root,) = node.say(ticket(node, diary, ALICE))
    (of_bob,) = node.say(ticket(node, diary, BOB), BOB)

    assert own == to_root == wire.LogData(offset=0, data=b"dear diary\n", eof=True)
    assert of_bob == wire.StepRefused(code="unreadable", message=f"{diary} cannot be read: Permission denied")


def test_a_ticket_is_of_no_use_to_another_user(node: SharedNode, diary: str) -> None:
    (refused,) = node.say(ticket(node, diary, ALICE), BOB)

    assert isinstance(refused, wire.StepRefused) and refused.code == "not_owner"


@pytest.mark.parametrize("target", ["/etc/shadow", "/var/lib/gq/nodes/n1/.lock"])
def test_a_link_to_a_file_of_roots_is_not_read_for_a_user(node: SharedNode, target: str) -> None:
    node.host.path("/etc/shadow").chmod(0o600)
    node.user(ALICE).ok("ln", "-s", target, "link")

    (refused,) = node.say(ticket(node, "/run/home/alice/link", ALICE), ALICE)

    assert isinstance(refused, wire.StepRefused) and refused.code == "unreadable"


def test_pipes_and_devices_are_not_opened_and_missing_files_are_missing(node: SharedNode) -> None:
    user = node.user(ALICE)
    user.ok("mkfifo", "pipe")
    for path, is_missing in (("/run/home/alice/pipe", False), ("/dev/zero", False), ("/run/home/alice/none", True)):
        (heard,) = node.say(ticket(node, path, ALICE), ALICE)

        assert heard == wire.LogData(offset=0, eof=True, is_missing=is_missing), path


def test_a_piece_of_a_large_file_is_what_was_asked_for(node: SharedNode) -> None:
    data = os.urandom(300_000)
    node.user(ALICE).path("large").write_bytes(data)
    os.chown(node.user(ALICE).path("large"), ALICE.uid, ALICE.uid)
    asked = ticket(node, "/run/home/alice/large", ALICE)

    (first,) = node.say(wire.OpenLog(ticket=asked.ticket, offset=0, max_bytes=200_000), ALICE)
    (second,) = node.say(wire.OpenLog(ticket=asked.ticket, offset=200_000, max_bytes=200_000), ALICE)

    assert first == wire.LogData(offset=0, data=data[:200_000])
    assert second == wire.LogData(offset=200_000, data=data[200_000:], eof=True)


def test_a_ticket_for_a_number_that_nobody_has_is_refused(node: SharedNode, diary: str) -> None:
    (refused,) = node.say(ticket(node, diary, Account("ghost", 2999)))

    assert refused == wire.StepRefused(code="unknown_user", message="uid 2999 is not known on n1")
