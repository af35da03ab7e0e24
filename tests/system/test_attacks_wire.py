"""Bytes that no client and no node would send, connections that say nothing, and bytes that were heard on the way."""

from __future__ import annotations

import os
import random
import resource
import sys

import msgspec
import pytest
import zmq

from gq.connection.input_queue import MAX_WAITING
from gq.connection.link_bounds import local_bounds
from gq.connection.memory_guard import MAX_GROWTH_BYTES
from gq.model.ids import JobId, RequestId, StepId
from gq.model.step import StepRequest
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire import step as step_wire
from gq.wire.codec import MAX_MESSAGE_BYTES, WIRE_VERSION
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import BOB, DORA, Account
from tests.system.attacks import CONTAINED, NOTHING, REFUSED, attack
from tests.system.hosts import CONTROLLER_PORT, STEP_PORT, SUBNET
from tests.system.speaker import Keys, Line, PlainLine
from tests.system.stage import CLIENT_SOCKET, EVE, PORT_OF_CLIENTS, Stage, hear, hello, say

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

HALF_OPEN = 10_000
SILENT = 6_000
DEEP = 200_000
SILENCE_S = 0.7
GREETING_OF_NULL = bytes.fromhex("ff00000000000000017f0301") + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.1 without any security."""
READY = (
    bytes.fromhex("041c05") + b"READY" + bytes.fromhex("0b") + b"Socket-Type" + bytes.fromhex("00000006") + b"DEALER"
)
"""What comes after it."""
ANSWER_BYTES = 64 + 43
"""Of libzmq, to both."""
RUSHES = 50
PART = bytes.fromhex("030000000000100000") + bytes(1024 * 1024)
"""Of a message that has more of them."""
ENDLESS = 8192
"""Parts, which are more than a host's memory may take."""
PING = bytes.fromhex("0407") + b"\x04PING" + bytes(2)
"""Of ZMTP: libzmq answers it by itself."""
FLOOD = 4096
"""Pieces of a thousand messages each, which are more than anybody needs."""


def is_alive(stage: Stage) -> bool:
    """The controller answers, and both nodes are heard."""
    return stage.refusal(stage.bob, wire.Ping()) == "Done"


def hellos(stage: Stage) -> int:
    return stage.counters()["hellos"]


def plain_line(stage: Stage, port: int) -> PlainLine:
    return stage.speaker(stage.host("lab")).connect((stage.root.address, port), stage.new_address())


# ── no key, another mechanism ─────────────────────────────────────────────────────────────────────────────────


@attack("A connection without encryption", REFUSED, "NoHandshake: refused")
def test_a_connection_without_encryption(stage: Stage) -> None:
    before = hellos(stage)
    for door in (stage.node_door, stage.client_door):
        line = stage.strangers_line(door)
        say(line, hello("lab"))
        assert hear(line, SILENCE_S) is None
    raw = plain_line(stage, CONTROLLER_PORT)
    raw.write(GREETING_OF_NULL)
    assert b"NULL" not in raw.read(SILENCE_S)
    assert hellos(stage) == before


@attack("A connection with a cleartext password", REFUSED, "NoHandshake: refused")
def test_a_connection_with_a_cleartext_password(stage: Stage) -> None:
    before = hellos(stage)
    line = stage.strangers_line(stage.node_door, PLAIN_USERNAME="lab", PLAIN_PASSWORD="lab")
    say(line, hello("lab"))

    assert hear(line, SILENCE_S) is None
    assert hellos(stage) == before


@attack("A controller without the controller's key", REFUSED, "NoHandshake: refused")
def test_a_controller_without_the_controllers_key(stage: Stage) -> None:
    node = stage.node_keys("lab")
    expects_another = Keys(node.public, node.secret, zmq.curve_keypair()[0])
    line = stage.strangers_line(stage.node_door, expects_another)
    say(line, hello("lab"))

    assert hear(line, SILENCE_S) is None


@attack("A recording of a node's connection is replayed", REFUSED, "NoHandshake: refused")
def test_a_recording_of_a_nodes_connection_is_replayed(stage: Stage) -> None:
    speaker = stage.speaker(stage.host("lab"))
    tap = speaker.tap((stage.root.address, CONTROLLER_PORT))
    line = speaker.dial(f"tcp://127.0.0.1:{tap}", stage.node_keys("lab"))
    say(line, hello("lab"))
    assert isinstance(hear(line), node_wire.Welcome)
    heard, before = speaker.recorded(), hellos(stage)
    assert b"CURVE" in heard and b"lab" not in heard

    raw = plain_line(stage, CONTROLLER_PORT)
    raw.write(heard)
    assert len(raw.read(SILENCE_S)) < len(heard)
    for cut in (64, 64 + 202, len(heard) // 2):  # after the greeting, after the client's HELLO
        again = plain_line(stage, CONTROLLER_PORT)
        again.write(heard[:cut])
        again.read(0.1)
        again.write(heard[cut:])
    assert is_alive(stage) and hellos(stage) == before


@attack("A byte of a node's connection is changed in transit", REFUSED, NOTHING)
def test_a_byte_of_a_nodes_connection_is_changed_in_transit(stage: Stage) -> None:
    speaker = stage.speaker(stage.host("lab"))
    tap = speaker.tap((stage.root.address, CONTROLLER_PORT))
    line = speaker.dial(f"tcp://127.0.0.1:{tap}", stage.node_keys("lab"), RECONNECT_IVL=-1)
    say(line, hello("lab"))
    assert isinstance(hear(line), node_wire.Welcome)
    while hear(line, 0.3) is not None:
        pass
    before = hellos(stage)
    speaker.spoil()
    say(line, hello("lab"))

    assert hear(line, SILENCE_S) is None
    assert hellos(stage) == before
    wait_until(speaker.is_hung_up_on, LONG_S, "gqd has closed the link, and libzmq keeps nothing of it")


# ── connections that say nothing ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@attack("10,000 half-open connections to the node socket", CONTAINED, "TooManyLinks: refused")
def test_10_000_half_open_connections_to_the_node_socket(stage: Stage) -> None:
    assert isinstance(answer_to_a_node_beside_them(stage, CONTROLLER_PORT), node_wire.Welcome)


@attack("10,000 half-open connections to the client socket", CONTAINED, "TooManyLinks: refused")
def test_10_000_half_open_connections_to_the_client_socket(stage: Stage) -> None:
    assert isinstance(answer_to_a_node_beside_them(stage, PORT_OF_CLIENTS), node_wire.Welcome)


def answer_to_a_node_beside_them(stage: Stage, port: int) -> node_wire.ControllerMessage | None:
    """While they stand, jobs run and users are served; what a node is told that has no link yet."""
    attacker = stage.speaker(stage.host("lab"))
    assert attacker.half_open((stage.root.address, port), HALF_OPEN, stage.new_address()) > HALF_OPEN // 10

    assert is_alive(stage)
    job = submit(stage.alice, "-N2", wrap="gqrun hostname")
    stage.await_state(job, "COMPLETED")
    line = stage.lab_line()
    say(line, hello("lab"))
    answer = hear(line, LONG_S)
    attacker.ask("let_go")
    return answer


@attack("Many half-open connections of a user to the socket of the host", CONTAINED, NOTHING)
def test_many_half_open_connections_of_a_user_to_the_socket_of_the_host(stage: Stage) -> None:
    attacker = stage.speaker(stage.user(BOB, "ctl"))
    few_enough = local_bounds(resource.getrlimit(resource.RLIMIT_NOFILE)[1]).silent // 2
    attacker.half_open_local("/run/gq/gqd.sock", few_enough)

    assert stage.user(stage.alice.account, "ctl").ok("gqstat", "-h", "-p", "main") == ""
    attacker.ask("let_go")


@pytest.mark.parametrize("socket", ["gqd.sock", "step-n1.sock"])
@attack("Silent connections of a user to the sockets of a node daemon, by the thousand", CONTAINED, NOTHING)
def test_silent_connections_of_a_user_to_the_sockets_of_a_node_daemon_by_the_thousand(
    stage: Stage, socket: str
) -> None:
    attacker = stage.speaker(stage.user(DORA, "n1"))  # who is kept out afterwards, and runs no job in other tests
    bounds = local_bounds(resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    made = attacker.fall_silent_local(f"/run/gq/{socket}", SILENT, GREETING_OF_NULL + READY)
    wait_until(lambda: attacker.standing() <= bounds.silent, LONG_S, "most links were hung up on")

    assert made <= SILENT
    job = submit(stage.alice, "-w", "n1", wrap="gqrun hostname && gqstat -j $GQ_JOB_ID")
    stage.await_state(job, "COMPLETED")
    attacker.ask("let_go")


# ── an invalid message ────────────────────────────────────────────────────────────────────────────────────────


def nonsense() -> list[tuple[bytes, ...]]:
    chance = random.Random(7)
    deep = b"\x91" * DEEP + b"\xc0"
    request = wire.request(RequestId(bytes(16)), wire.Ping())
    return [
        (b"",),
        (b"\xc1",),
        (chance.randbytes(5000),),
        (deep,),
        (request[:-1],),
        (request + b"\0",),
        (request, request),
        (b"", request, b""),
        (msgspec.msgpack.encode([WIRE_VERSION, b"short", {"type": "Ping"}]),),
        (msgspec.msgpack.encode([WIRE_VERSION, bytes(16), {"type": "Ping", "x": {"y": [1] * 1000}}]) + b"\x81",),
    ]


@attack("Frames that are not requests", REFUSED, "Malformed: refused")
def test_frames_that_are_not_requests(stage: Stage) -> None:
    line = stage.speaker(stage.user(BOB, "ctl")).dial(CLIENT_SOCKET)
    before = stage.counters()["malformed"]
    for frames in nonsense():
        line.send(*frames)

    wait_until(lambda: stage.counters()["malformed"] >= before + 8, LONG_S, "they were counted")
    assert is_alive(stage)


SPEAK_ZMTP_2 = """
import socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect(sys.argv[1].removeprefix("ipc://"))
    link.sendall(b"\\xff" + bytes(8) + b"\\x7f\\x01\\x05" + bytes(2))
    for _ in range(2000):
        link.sendall(b"\\0\\x03old")
"""
"""A greeting of ZMTP 2.0 as a DEALER, then messages: libzmq does not say which link brings them."""


@attack("Messages of a version of ZMTP without connection identities", REFUSED, NOTHING)
def test_messages_of_a_version_of_zmtp_without_connection_identities(stage: Stage) -> None:
    before = stage.counters()["malformed"]

    stage.user(BOB, "ctl").ok(sys.executable, "-c", SPEAK_ZMTP_2, CLIENT_SOCKET)

    wait_until(lambda: stage.counters()["malformed"] > before, LONG_S, "they were counted")
    assert is_alive(stage)


@attack("Hide behind the messages of another user of the host", CONTAINED, "Malformed: refused")
def test_hide_behind_the_messages_of_another_user_of_the_host(stage: Stage) -> None:
    for user in (stage.operator, stage.administrator):
        stage.speaker(user).dial(CLIENT_SOCKET).send(b"\xc1")
    told = "SELECT DISTINCT uid FROM audit WHERE action = 'Malformed' AND uid IN (?, ?)"
    uids = stage.operator.account.uid, stage.administrator.account.uid

    wait_until(lambda: len(stage.rows(told, *uids)) == 2, LONG_S, "the trail names both")
    assert {uid for (uid,) in stage.rows(told, *uids)} == set(uids)


@attack("Frames of a node that are not messages", REFUSED, "Malformed: refused")
def test_frames_of_a_node_that_are_not_messages(stage: Stage) -> None:
    keys = joined(stage, "garbler")
    line = stage.strangers_line(stage.node_door, keys)
    before = stage.counters()["malformed"]
    for frames in nonsense():
        line.send(*frames)
    wait_until(lambda: stage.counters()["malformed"] >= before + 8, LONG_S, "they were counted")

    say(line, hello("garbler", is_relay=True))
    assert isinstance(hear(line), node_wire.Welcome), "it may mend its ways"
    stage.root.ok("gqctl", "node", "remove", "garbler")


def joined(stage: Stage, name: str) -> Keys:
    """The keys of a node that was let in by a token."""
    from tests.system.test_attacks_nodes import fresh_keys, join, new_token

    keys = fresh_keys(stage)
    line = stage.strangers_line(stage.node_door, new_token(stage))
    assert isinstance(join(line, name, keys.public), node_wire.Joined)
    return keys


@attack("A frame that is larger than any message", REFUSED, NOTHING)
def test_a_frame_that_is_larger_than_any_message(stage: Stage) -> None:
    line = stage.speaker(stage.user(BOB, "ctl")).dial(CLIENT_SOCKET, RECONNECT_IVL=-1)
    line.send_large(MAX_MESSAGE_BYTES + 1)
    line.send(wire.request(RequestId(os.urandom(16)), wire.Ping()))

    assert line.receive(SILENCE_S) is None, "the link is closed"
    assert is_alive(stage)


def begin_message(stage: Stage, host: str, account: Account = BOB) -> PlainLine:
    """A link that a user's program makes by itself: libzmq would send nothing of a message that has not ended."""
    line = stage.speaker(stage.user(account, host)).connect(CLIENT_SOCKET.removeprefix("ipc://"))
    line.write(GREETING_OF_NULL)
    line.read(SILENCE_S)
    line.write(READY)
    return line


@attack("A message without end, to the socket of the controller's host", CONTAINED, "TooMuchAtOnce: refused")
def test_a_message_without_end_to_the_socket_of_the_controllers_host(stage: Stage) -> None:
    sent = begin_message(stage, "ctl").stream(PART, ENDLESS)

    assert 3 * MAX_GROWTH_BYTES // 4 < sent * len(PART) < ENDLESS * len(PART)
    assert is_alive(stage)


@attack("A message without end, to the socket of another host", CONTAINED, NOTHING)
def test_a_message_without_end_to_the_socket_of_another_host(stage: Stage) -> None:
    sent = begin_message(stage, "n1").stream(PART, ENDLESS)

    assert 3 * MAX_GROWTH_BYTES // 4 < sent * len(PART) < ENDLESS * len(PART)
    stage.cluster.nodes["n1"].await_log(f"uid {BOB.uid} sent")
    assert is_alive(stage)


def speak_and_go(stage: Stage, host: str, path: str) -> None:
    """More than libzmq would let wait, with its own commands in between, and the link ends at once."""
    request = wire.request(RequestId(os.urandom(16)), wire.Ping())
    words = bytes([0, len(request)]) + request + PING
    stage.speaker(stage.user(BOB, host)).rush(path, GREETING_OF_NULL + READY, ANSWER_BYTES, words * 600, RUSHES)


@attack("Send much and disconnect before it is read, at the socket of the controller's host", CONTAINED, NOTHING)
def test_send_much_and_disconnect_before_it_is_read_at_the_socket_of_the_controllers_host(stage: Stage) -> None:
    speak_and_go(stage, "ctl", "/run/gq/gqd.sock")

    assert is_alive(stage)


@pytest.mark.slow
@attack("Send much and disconnect before it is read, at the sockets of other hosts", CONTAINED, NOTHING)
def test_send_much_and_disconnect_before_it_is_read_at_the_sockets_of_other_hosts(stage: Stage) -> None:
    speak_and_go(stage, "login", "/run/gq/gqd.sock")
    assert stage.alice.ok("gqstat", "-h", "-p", "main") == ""

    speak_and_go(stage, "n1", "/run/gq/step-n1.sock")
    line = stage.speaker(stage.user(BOB, "n1")).dial("ipc:///run/gq/step-n1.sock")
    assert isinstance(said_at_step_door(line, step_wire.FindCells(uid=BOB.uid)), step_wire.Cells)


@attack(
    "More messages than can be handled, to the socket of the controller's host", CONTAINED, "TooMuchAtOnce: refused"
)
def test_more_messages_than_can_be_handled_to_the_socket_of_the_controllers_host(stage: Stage) -> None:
    sent = begin_message(stage, "ctl", EVE).stream(b"\0\1x" * 1000, FLOOD)

    assert MAX_WAITING < sent * 1000 < FLOOD * 1000
    with pytest.raises(PermissionError):
        begin_message(stage, "ctl", EVE)
    assert is_alive(stage)


@pytest.mark.slow
@attack("More messages than can be handled, to the socket of another host", CONTAINED, "Malformed: refused")
def test_more_messages_than_can_be_handled_to_the_socket_of_another_host(stage: Stage) -> None:
    sent = begin_message(stage, "n1", EVE).stream(b"\0\1x" * 1000, FLOOD)

    assert MAX_WAITING < sent * 1000 < FLOOD * 1000
    stage.cluster.nodes["n1"].await_log(f"uid {EVE.uid} sent more than can be handled")
    assert is_alive(stage)


@attack("Give a connection the identity of another", CONTAINED, NOTHING)
def test_give_a_connection_the_identity_of_another(stage: Stage) -> None:
    """libzmq by itself would read only the first, and keep what the second one sends."""
    speaker = stage.speaker(stage.user(BOB, "ctl"))
    for _ in range(2):
        line = speaker.dial(CLIENT_SOCKET, ROUTING_ID="twin")
        line.send(wire.request(RequestId(os.urandom(16)), wire.Ping()))

        assert line.receive() is not None


@attack("A request that is nested 200,000 deep", REFUSED, "Malformed: refused")
def test_a_request_that_is_nested_200_000_deep(stage: Stage) -> None:
    line = stage.speaker(stage.bob).dial(CLIENT_SOCKET)
    head = b"\x93\x01\xc4\x10" + bytes(16)
    for nest in (b"\x91" * DEEP, b"\x81\xa1x" * DEEP, b"\x82\xa4type\xa8ListJobs\xa6filter" + b"\x91" * DEEP):
        line.send(head + nest)

    assert is_alive(stage)


@attack("A web browser at the sockets", REFUSED, NOTHING)
def test_a_web_browser_at_the_sockets(stage: Stage) -> None:
    for port in (CONTROLLER_PORT, PORT_OF_CLIENTS):
        raw = plain_line(stage, port)
        raw.write(b"GET / HTTP/1.1\r\nHost: ctl\r\n\r\n" * 10)
        assert b"HTTP" not in raw.read(SILENCE_S)
    assert is_alive(stage)


@attack("A request of an unknown version", REFUSED, NOTHING)
def test_a_request_of_an_unknown_version(stage: Stage) -> None:
    line = stage.speaker(stage.user(BOB, "ctl")).dial(CLIENT_SOCKET)
    for version in (0, WIRE_VERSION + 1, 2**63 - 1):
        line.send(wire.REQUESTS.encode(wire.Request(version, RequestId(os.urandom(16)), wire.Ping())))
        answer = line.receive()
        assert answer is not None
        refused = wire.REPLIES.decode(answer).body
        assert isinstance(refused, wire.Refused) and refused.code == "wrong_version"


# ── the step door of a node ───────────────────────────────────────────────────────────────────────────────────


def step_line(stage: Stage) -> Line:
    """To the step door of n1, as anybody may dial it."""
    job = submit(stage.bob, "-w", "n1", wrap="true")
    stage.await_state(job, "COMPLETED")
    access = stage.ask(stage.bob, wire.AccessLog(job_id=int(job)))
    assert isinstance(access, wire.LogAccess) and access.endpoint == f"tcp://{SUBNET}.2:{STEP_PORT}"
    public, secret = zmq.curve_keypair()
    return stage.speaker(stage.bob).dial(access.endpoint, Keys(public, secret, access.public_key.encode()))


def said_at_step_door(line: Line, message: step_wire.ToDoor, within_s: float = 5.0) -> step_wire.FromDoor | None:
    line.send(step_wire.TO_DOOR.encode(message))
    answer = line.receive(within_s)
    return None if answer is None else step_wire.FROM_DOOR.decode(answer)


@attack("Guess the key of another user's step", REFUSED, NOTHING)
def test_guess_the_key_of_another_users_step(stage: Stage) -> None:
    job = stage.running_job("-w", "n1", wrap="gqrun sleep 1000")
    line = step_line(stage)
    step_id = StepId(JobId(int(job)), 1, 0)
    for key in (b"", bytes(16), bytes(32), b"\0" * 1000):
        attach = step_wire.Attach(step_id=step_id, key=key, argv=("id",), environment={}, chdir="/")
        answer = said_at_step_door(line, attach)
        assert isinstance(answer, step_wire.StepRefused) and answer.code == "wrong_key", answer
    assert said_at_step_door(line, step_wire.SignalTasks(step_id=step_id, signum=9), SILENCE_S) is None
    assert stage.facts(job).state == "RUNNING"


@attack("Use another user's stolen step key or log ticket on the node itself", REFUSED, NOTHING)
def test_use_another_users_stolen_step_key_or_log_ticket_on_the_node_itself(stage: Stage) -> None:
    job = int(stage.running_job("-w", "n1", wrap="echo began; sleep 1000"))
    created = stage.ask(stage.alice, wire.CreateStep(job_id=job, step=StepRequest(name="id", overlap=True)))
    access = stage.ask(stage.alice, wire.AccessLog(job_id=job))
    assert isinstance(created, wire.StepCreated) and isinstance(access, wire.LogAccess)
    stolen: list[step_wire.ToDoor] = [
        step_wire.Attach(
            step_id=StepId(JobId(job), 1, created.step), key=created.key, argv=("id",), environment={}, chdir="/"
        ),
        step_wire.OpenLog(ticket=access.ticket),
    ]

    line = stage.speaker(stage.user(BOB, "n1")).dial("ipc:///run/gq/step-n1.sock")
    for message in stolen:
        assert said_at_step_door(line, message, SILENCE_S) is None
    assert isinstance(said_at_step_door(line, step_wire.FindCells(uid=BOB.uid)), step_wire.Cells), "it hears well"


@attack("Forge a log ticket", REFUSED, NOTHING)
def test_forge_a_log_ticket(stage: Stage) -> None:
    line = step_line(stage)
    forged = step_wire.LogTicket(1, 1, "/run/etc/hostname", 0, 1e11)
    for key in (b"", bytes(32)):
        answer = said_at_step_door(line, step_wire.OpenLog(ticket=step_wire.seal(forged, key)))
        assert isinstance(answer, step_wire.StepRefused) and answer.code == "bad_ticket"


@attack("Change the path in an own log ticket", REFUSED, NOTHING)
def test_change_the_path_in_an_own_log_ticket(stage: Stage) -> None:
    line = step_line(stage)
    job = submit(stage.bob, "-w", "n1", "-o", "/run/home/bob/aaaaaaaa", wrap="true")
    stage.await_state(job, "COMPLETED")
    access = stage.ask(stage.bob, wire.AccessLog(job_id=int(job)))
    assert isinstance(access, wire.LogAccess)
    assert isinstance(said_at_step_door(line, step_wire.OpenLog(ticket=access.ticket)), step_wire.LogData)

    changed = access.ticket.replace(b"/run/home/bob/aaaaaaaa", b"/run/home/alice/secret")
    answer = said_at_step_door(line, step_wire.OpenLog(ticket=changed))
    assert changed != access.ticket
    assert isinstance(answer, step_wire.StepRefused) and answer.code == "bad_ticket"


@attack("Frames that are not messages at the step socket", REFUSED, NOTHING)
def test_frames_that_are_not_messages_at_the_step_socket(stage: Stage) -> None:
    line = step_line(stage)
    for frames in nonsense():
        line.send(*frames)

    answer = said_at_step_door(line, step_wire.OpenLog(ticket=b""))
    assert isinstance(answer, step_wire.StepRefused)


@attack("Ask the node whose jobs run there and how to enter them", REFUSED, NOTHING)
def test_ask_the_node_whose_jobs_run_there_and_how_to_enter_them(stage: Stage) -> None:
    stage.running_job("-w", "n1")
    answer = said_at_step_door(step_line(stage), step_wire.FindCells(uid=stage.alice.account.uid))

    assert isinstance(answer, step_wire.StepRefused) and answer.code == "not_local"
    local = stage.speaker(stage.user(BOB, "n1")).dial("ipc:///run/gq/step-n1.sock")
    answer = said_at_step_door(local, step_wire.FindCells(uid=stage.alice.account.uid))
    assert isinstance(answer, step_wire.StepRefused) and answer.code == "not_owner"
