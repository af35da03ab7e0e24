"""Nodes that lie: about themselves, about others, about who asks; and hosts that are no nodes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import pytest
import zmq

from gq.connection.token import parse_token
from gq.model.ids import AttemptId, JobId, RequestId
from gq.model.job import ExitStatus
from gq.model.state import Outcome
from gq.wire import client as wire
from gq.wire import node as node_wire
from gq.wire.codec import WIRE_VERSION
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB, CAROL, Account
from tests.system.attacks import CONTAINED, NOTHING, REFUSED, attack
from tests.system.speaker import Keys, Line
from tests.system.stage import CLIENT_SOCKET, EVE, FRANK_OF_LOGIN, GHOST, Stage, hear, hello, say

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

ROOT = Account("root", 0)
PATIENCE_S = 10.0


class Lab(NamedTuple):
    """The attacker's host, which is a node of the cluster, and was greeted in this life of it."""

    line: Line
    life: str

    def relayed(self, account: Account, body: wire.RequestBody) -> str:
        """The code of the refusal, or the name of the answer, to what the node says that this user asks."""
        payload = wire.request(RequestId(os.urandom(16)), body)
        who = {"uid": account.uid, "gid": account.uid, "user": account.name}
        say(self.line, node_wire.Relay(node="lab", incarnation=self.life, relay_id=1, payload=payload, **who))
        return answer_of(self.await_message(node_wire.RelayReply))

    def report(self, seq: int, body: node_wire.ReportBody, life: str = "") -> None:
        say(self.line, node_wire.Report(node="lab", incarnation=life or self.life, seq=seq, body=body))

    def await_message(self, *kinds: type[node_wire.ControllerMessage]) -> node_wire.ControllerMessage:
        return await_message(self.line, *kinds)


def join_as_lab(stage: Stage, **fields: object) -> Lab:
    lab = Lab(stage.lab_line(), f"lab-{time.time_ns()}")
    say(lab.line, hello("lab", incarnation=lab.life, **fields))
    lab.await_message(node_wire.Welcome)
    return lab


@pytest.fixture
def lab(stage: Stage) -> Iterator[Lab]:
    """In the end it does as it is told: no job of it is left."""
    lab = join_as_lab(stage)
    yield lab
    stage.client.ask(wire.CancelJobs(filter=wire.JobFilter(partitions=("lab",))))
    for seq in range(1000, 1100):
        if not is_busy(stage):
            return
        for order in told_to_stop(lab.line):
            lab.report(seq, node_wire.CellEmptied(attempt_id=order.attempt_id))
    raise AssertionError("jobs of the attacker's host do not end")


def is_busy(stage: Stage) -> bool:
    jobs = stage.client.ask(wire.ListJobs(filter=wire.JobFilter(partitions=("lab",))))
    assert isinstance(jobs, wire.Jobs)
    return any(job.end_at is None for job in jobs.jobs)


def told_to_stop(line: Line) -> list[node_wire.Stop]:
    message = hear(line, 0.2)
    orders = message.orders if isinstance(message, node_wire.Orders) else ()
    return [order for order in orders if isinstance(order, node_wire.Stop)]


def await_message(line: Line, *kinds: type[node_wire.ControllerMessage]) -> node_wire.ControllerMessage:
    """The next message of one of these kinds; others are passed over."""
    while (message := hear(line, PATIENCE_S)) is not None:
        if isinstance(message, kinds):
            return message
    raise AssertionError(f"no {kinds} came")


def answer_of(reply: node_wire.ControllerMessage) -> str:
    assert isinstance(reply, node_wire.RelayReply)
    answer = wire.REPLIES.decode(reply.payload).body
    return answer.code if isinstance(answer, wire.Refused) else type(answer).__name__


def fresh_keys(stage: Stage) -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public, secret, stage.server_key)


def is_cut_off(line: Line) -> bool:
    """Nothing comes back from the other end, whatever is said."""
    say(line, hello("lab"))
    return hear(line, 1.0) is None


# ── who asks ──────────────────────────────────────────────────────────────────────────────────────────────────


@attack("A compute node vouches for a user who has no job there", REFUSED, "ListJobs: not_vouched")
def test_a_compute_node_vouches_for_a_user_who_has_no_job_there(stage: Stage, lab: Lab) -> None:
    assert lab.relayed(EVE, wire.ListJobs()) == "not_vouched"


@attack("A compute node vouches for root", REFUSED, "RemoveNode: not_vouched")
def test_a_compute_node_vouches_for_root(stage: Stage, lab: Lab) -> None:
    assert lab.relayed(ROOT, wire.RemoveNode(name="n1")) == "not_vouched"


@attack("A compute node uses the rights of an operator whose job it runs", REFUSED, "UpdateNodes: not_operator")
def test_a_compute_node_uses_the_rights_of_an_operator_whose_job_it_runs(stage: Stage, lab: Lab) -> None:
    submit(stage.user(CAROL), "-p", "lab", wrap="true")
    lab.await_message(node_wire.Orders)

    assert lab.relayed(CAROL, wire.ListJobs()) == "Jobs"
    assert lab.relayed(CAROL, wire.UpdateNodes(names=("n1",), action="down", reason="mine")) == "not_operator"


@attack("A compute node calls itself a login node", REFUSED, "ListJobs: not_vouched")
def test_a_compute_node_calls_itself_a_login_node(stage: Stage) -> None:
    assert join_as_lab(stage, is_relay=True).relayed(ALICE, wire.ListJobs()) == "not_vouched"


@attack("A node vouches for a user whom the controller does not know", REFUSED, "IdentityMismatch: refused")
def test_a_node_vouches_for_a_user_whom_the_controller_does_not_know(stage: Stage, lab: Lab) -> None:
    assert lab.relayed(GHOST, wire.ListJobs()) == "identity_mismatch"


@attack("A user has another uid on the login host", REFUSED, "IdentityMismatch: refused")
def test_a_user_has_another_uid_on_the_login_host(stage: Stage) -> None:
    done = stage.user(FRANK_OF_LOGIN).run("gqsub", "--wrap", "id")

    assert (done.returncode, done.stdout) == (1, "")
    assert "uid 2007 on login and uid 2006" in done.stderr


@attack("A node sends one user's uid with another user's name", REFUSED, "IdentityMismatch: refused")
def test_a_node_sends_one_users_uid_with_another_users_name(spare: tuple[Keys, Line]) -> None:
    _, line = spare
    payload = wire.request(RequestId(os.urandom(16)), wire.ListJobs())
    who = {"uid": BOB.uid, "gid": BOB.uid, "user": "alice"}
    say(line, node_wire.Relay(node="spare", incarnation="x", relay_id=1, payload=payload, **who))

    assert answer_of(await_message(line, node_wire.RelayReply)) == "identity_mismatch"


@attack("Claim another uid at the socket of the own host", CONTAINED, NOTHING)
def test_claim_another_uid_at_the_socket_of_the_own_host(stage: Stage) -> None:
    line = stage.speaker(stage.bob).dial(CLIENT_SOCKET, ROUTING_ID="localhost:0:0:1")
    line.send(wire.request(RequestId(os.urandom(16)), wire.WhoAmI()))
    answer = line.receive()

    assert answer is not None
    told = wire.REPLIES.decode(answer).body
    assert isinstance(told, wire.Identity) and (told.user, told.uid, told.role) == ("bob", BOB.uid, "user")


@attack("A user who does not exist on the node", REFUSED, "Submit: done")
def test_a_user_who_does_not_exist_on_the_node(stage: Stage) -> None:
    job = submit(stage.user(EVE), "-w", "n2", wrap="id")

    wait_until(lambda: "eve" in stage.facts(job).why, LONG_S, "it is said that n2 does not know her")
    assert stage.facts(job).state == "PENDING"


# ── what nodes say of themselves and others ───────────────────────────────────────────────────────────────────


@attack("A node sends messages in the name of another", REFUSED, "Impostor: refused")
def test_a_node_sends_messages_in_the_name_of_another(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, stage.node_keys("lab"))
    say(line, hello("n1"))
    said = hear(line)

    assert isinstance(said, node_wire.Unwelcome)
    assert "belongs to node lab, not to n1" in said.why


@attack("A second host connects with the stolen key of a node", REFUSED, NOTHING)
def test_a_second_host_connects_with_the_stolen_key_of_a_node(stage: Stage) -> None:
    job = stage.running_job("-w", "n1")
    line = stage.strangers_line(stage.node_door, stage.node_keys("n1"))
    say(line, hello("n1"))
    said = hear(line)

    assert isinstance(said, node_wire.Unwelcome)
    assert "is already connected from" in said.why
    assert stage.facts(job).state == "RUNNING"


@attack("A node reports on a job of another node", CONTAINED, NOTHING)
def test_a_node_reports_on_a_job_of_another_node(stage: Stage, lab: Lab) -> None:
    job = stage.running_job("-w", "n1")
    attempt_id = AttemptId(JobId(int(job)), 1)
    ended = node_wire.AttemptEnded(
        attempt_id=attempt_id, outcome=Outcome.FAILED, exit=ExitStatus(code=1), ended_at=1.0, cell_emptied=True
    )
    for seq, body in enumerate((ended, node_wire.CellEmptied(attempt_id=attempt_id)), 1):
        lab.report(seq, body)
        assert isinstance(lab.await_message(node_wire.Ack), node_wire.Ack)

    assert stage.facts(job).state == "RUNNING"


@attack("A node repeats its reports", CONTAINED, NOTHING)
def test_a_node_repeats_its_reports(stage: Stage, lab: Lab) -> None:
    job = submit(stage.alice, "-p", "lab", "--requeue", wrap="true")
    lab.await_message(node_wire.Orders)
    attempt_id = AttemptId(JobId(int(job)), 1)
    ended = node_wire.AttemptEnded(
        attempt_id=attempt_id, outcome=Outcome.FAILED, exit=ExitStatus(code=3), ended_at=1.0, cell_emptied=True
    )
    said = [node_wire.Started(attempt_id=attempt_id, at=1.0, master_port=20000), ended]
    for _ in range(3):
        for seq, body in enumerate(said, 1):
            lab.report(seq, body)
            lab.await_message(node_wire.Ack)

    assert stage.await_state(job, "FAILED").restart_count == 0
    assert stage.rows("SELECT count(*) FROM events WHERE job_id = ? AND kind = 'JobEnded'", int(job)) == [(1,)]


@attack("Reports of an earlier incarnation of a node", REFUSED, NOTHING)
def test_reports_of_an_earlier_incarnation_of_a_node(stage: Stage, lab: Lab) -> None:
    job = submit(stage.alice, "-p", "lab", wrap="true")
    lab.await_message(node_wire.Orders)
    lab.report(1, node_wire.CellEmptied(attempt_id=AttemptId(JobId(int(job)), 1)), life="before")

    assert isinstance(lab.await_message(node_wire.Ack, node_wire.WhoIsThere), node_wire.WhoIsThere)
    assert stage.facts(job).state == "CONFIGURING"


@attack("A node reports impossible values of itself", REFUSED, "Malformed: refused")
def test_a_node_reports_impossible_values_of_itself(stage: Stage) -> None:
    line = stage.lab_line()
    say(line, hello("lab", last_seq=-1))

    assert isinstance(hear(line), node_wire.Unwelcome)


@attack("A node listens for the scripts of jobs that it does not run", CONTAINED, NOTHING)
def test_a_node_listens_for_the_scripts_of_jobs_that_it_does_not_run(stage: Stage, lab: Lab) -> None:
    stage.running_job("-w", "n1", wrap="echo s3cret; sleep 1000")
    say(lab.line, node_wire.Heartbeat(node="lab", incarnation=lab.life, at=1.0))
    said = list(lab.line.heard(0.5))

    assert said
    assert not [message for message in said if b"s3cret" in message]


# ── hosts that are no nodes ───────────────────────────────────────────────────────────────────────────────────


@attack("A host with an unknown key", REFUSED, "HandshakeRefused: refused")
def test_a_host_with_an_unknown_key(stage: Stage) -> None:
    assert is_cut_off(stage.strangers_line(stage.node_door, fresh_keys(stage)))


@attack("A process of a user on the controller's host registers as a node", REFUSED, "HandshakeRefused: refused")
def test_a_process_of_a_user_on_the_controllers_host_registers_as_a_node(stage: Stage) -> None:
    speaker = stage.speaker(stage.user(BOB, "ctl"))
    with pytest.raises(PermissionError):
        speaker.connect("/run/gq/nodes.sock")

    assert is_cut_off(speaker.dial(stage.node_door, fresh_keys(stage)))


@attack("A process takes the place of the controller's socket", REFUSED, NOTHING)
def test_a_process_takes_the_place_of_the_controllers_socket(stage: Stage) -> None:
    for host in ("ctl", "n1", "login"):
        bob = stage.user(BOB, host)
        assert bob.run("rm", "-f", "/run/gq/gqd.sock").returncode != 0
        assert bob.run("sh", "-c", "mv /run/gq /run/mine; mkdir /run/gq/x; touch /run/gq/gqd.sock2").returncode != 0
    with suppress(FileNotFoundError):
        assert stage.root.path("/run/gq/gqd.sock2").stat() is None


# ── keys and tokens ───────────────────────────────────────────────────────────────────────────────────────────


def new_token(stage: Stage, *options: str) -> Keys:
    """The keys of a host that read a token."""
    stage.administrator.ok("gqctl", "token", "create", "--out", "token", *options)
    found = parse_token(stage.administrator.path("token").read_text())
    stage.administrator.ok("rm", "token")
    return Keys(found.join_keys.public, found.join_keys.secret, found.server_key)


def join(line: Line, node: str, public: bytes) -> node_wire.ControllerMessage | None:
    say(line, node_wire.Join(node=node, public_key=public.decode(), version=WIRE_VERSION))
    return hear(line)


def why_not(message: node_wire.ControllerMessage | None) -> str:
    assert isinstance(message, node_wire.Unwelcome), message
    return message.why


@pytest.fixture
def spare(stage: Stage) -> Iterator[tuple[Keys, Line]]:
    """The keys of a node that has just joined by a token, and its link; it is thrown out again."""
    keys = fresh_keys(stage)
    token = stage.strangers_line(stage.node_door, new_token(stage))
    assert isinstance(join(token, "spare", keys.public), node_wire.Joined)
    line = stage.strangers_line(stage.node_door, keys)
    say(line, hello("spare", is_relay=True))
    assert isinstance(hear(line), node_wire.Welcome)
    yield keys, line
    stage.root.run("gqctl", "node", "remove", "spare")


@attack("A token is used a second time, with another key", REFUSED, "TokenReused: token_reused")
def test_a_token_is_used_a_second_time_with_another_key(stage: Stage) -> None:
    token = new_token(stage)
    keys = fresh_keys(stage)
    line = stage.strangers_line(stage.node_door, token)
    assert isinstance(join(line, "spare", keys.public), node_wire.Joined)
    assert isinstance(join(line, "spare", keys.public), node_wire.Joined), "the same again is the same answer"

    assert "this token was already used by a node" in why_not(join(line, "spare2", fresh_keys(stage).public))
    assert "this token was already used by a node" in why_not(join(line, "spare", fresh_keys(stage).public))
    stage.root.ok("gqctl", "node", "remove", "spare")


@attack("An expired token", REFUSED, "HandshakeRefused: refused")
def test_an_expired_token(stage: Stage) -> None:
    token = new_token(stage, "--ttl", "1s")
    public = token.public.decode()
    wait_until(lambda: not stage.rows("SELECT 1 FROM keys WHERE public = ?", public), LONG_S, "the token is over")

    assert is_cut_off(stage.strangers_line(stage.node_door, token))


@attack("A revoked token", REFUSED, "HandshakeRefused: refused")
def test_a_revoked_token(stage: Stage) -> None:
    token = new_token(stage)
    stage.administrator.ok("gqctl", "token", "revoke", token.public.decode())

    assert is_cut_off(stage.strangers_line(stage.node_door, token))


@attack("A token for one node is used by another", REFUSED, "Join: other_node")
def test_a_token_for_one_node_is_used_by_another(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, new_token(stage, "--node-name", "spare"))

    assert "is for node spare" in why_not(join(line, "other", fresh_keys(stage).public))


@attack("A token is used to take the name of an existing node", REFUSED, "Join: member_already")
def test_a_token_is_used_to_take_the_name_of_an_existing_node(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, new_token(stage))

    assert "n1 is already a member" in why_not(join(line, "n1", fresh_keys(stage).public))


@attack("A token is used to send messages as a node", REFUSED, "TokenMisused: refused")
def test_a_token_is_used_to_send_messages_as_a_node(stage: Stage) -> None:
    line = stage.strangers_line(stage.node_door, new_token(stage, "--node-name", "spare"))
    say(line, hello("spare"))

    assert "valid for joining only" in why_not(hear(line))


@attack("A token on a command line, where every user sees it", REFUSED, NOTHING)
def test_a_token_on_a_command_line_where_every_user_sees_it(stage: Stage) -> None:
    for words in (("--token", "gqj1x"), ("gqj1x",)):
        assert stage.host("lab").run("gqnode", "join", stage.node_door, *words).returncode == 2


@attack("A removed node continues to send messages", REFUSED, "RevokedKey: refused")
def test_a_removed_node_continues_to_send_messages(stage: Stage, spare: tuple[Keys, Line]) -> None:
    _, line = spare
    stage.administrator.ok("gqctl", "node", "remove", "spare")
    while hear(line, 0.5) is not None:
        pass
    say(line, node_wire.Heartbeat(node="spare", incarnation="x", at=1.0))

    assert "no longer valid" in why_not(hear(line))


@attack("A removed node connects again", REFUSED, "HandshakeRefused: refused")
def test_a_removed_node_connects_again(stage: Stage, spare: tuple[Keys, Line]) -> None:
    keys, _ = spare
    stage.administrator.ok("gqctl", "node", "remove", "spare")

    assert is_cut_off(stage.strangers_line(stage.node_door, keys))


# ── keys of users ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def laptop(stage: Stage) -> Iterator[Keys]:
    """Bob's key on a machine outside of the cluster."""
    keys = fresh_keys(stage)
    assert stage.refusal(stage.bob, wire.AddKey(public=keys.public.decode(), note="laptop")) == "Done"
    yield keys
    stage.ask(stage.bob, wire.RevokeKey(public=keys.public.decode()))


def identity(line: Line) -> wire.ReplyBody | None:
    """Whom the controller takes the caller for, if it lets the caller in."""
    line.send(wire.request(RequestId(os.urandom(16)), wire.WhoAmI()))
    answer = line.receive(1.0)
    return None if answer is None else wire.REPLIES.decode(answer).body


def revoke(stage: Stage, keys: Keys) -> None:
    assert stage.refusal(stage.bob, wire.RevokeKey(public=keys.public.decode())) == "Done"


@attack("A user's revoked key on an open connection", REFUSED, "RevokedKey: refused")
def test_a_users_revoked_key_on_an_open_connection(stage: Stage, laptop: Keys) -> None:
    line = stage.strangers_line(stage.client_door, laptop)
    before = identity(line)
    assert isinstance(before, wire.Identity) and (before.user, before.role) == ("bob", "user")
    revoke(stage, laptop)

    after = identity(line)
    assert isinstance(after, wire.Refused) and after.code == "revoked_key"


@attack("A user's revoked key on a new connection", REFUSED, "HandshakeRefused: refused")
def test_a_users_revoked_key_on_a_new_connection(stage: Stage, laptop: Keys) -> None:
    revoke(stage, laptop)

    assert identity(stage.strangers_line(stage.client_door, laptop)) is None


@attack("A user's key at the node socket", REFUSED, "HandshakeRefused: refused")
def test_a_users_key_at_the_node_socket(stage: Stage, laptop: Keys) -> None:
    assert is_cut_off(stage.strangers_line(stage.node_door, laptop))


@attack("A node's key at the client socket", REFUSED, "HandshakeRefused: refused")
def test_a_nodes_key_at_the_client_socket(stage: Stage) -> None:
    assert identity(stage.strangers_line(stage.client_door, stage.node_keys("lab"))) is None


@attack("A token at the client socket", REFUSED, "HandshakeRefused: refused")
def test_a_token_at_the_client_socket(stage: Stage) -> None:
    assert identity(stage.strangers_line(stage.client_door, new_token(stage))) is None


@attack("Revoke the key of another user", REFUSED, "RevokeKey: not_owner")
def test_revoke_the_key_of_another_user(stage: Stage, laptop: Keys) -> None:
    assert stage.refusal(stage.alice, wire.RevokeKey(public=laptop.public.decode())) == "not_owner"
    assert isinstance(identity(stage.strangers_line(stage.client_door, laptop)), wire.Identity)


@attack("Use an own key with the rights of another user's job", REFUSED, "CancelJobs: not_owner")
def test_use_an_own_key_with_the_rights_of_another_users_job(stage: Stage, laptop: Keys) -> None:
    job = stage.running_job()
    line = stage.strangers_line(stage.client_door, laptop)
    line.send(wire.request(RequestId(os.urandom(16)), wire.CancelJobs(filter=wire.JobFilter(job_ids=(int(job),)))))

    assert line.receive() is not None
    assert stage.facts(job).state == "RUNNING"
