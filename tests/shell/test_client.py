"""The blocking client: patience, repeats, pipelining, and clear words when nobody is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

import gq
from gq.connection.client import Client
from gq.connection.locate import Location
from gq.errors import Refusal, Unreachable
from gq.wire import client as wire
from gq.wire.codec import MAX_MESSAGE_BYTES
from tests.shell.rig import short_directory

Answer = Callable[[int, wire.Request], wire.ReplyBody | None]
"""Number of the request in this life of the controller, and the request; None: silence."""


class FakeController:
    """A ROUTER in a thread that answers as it is told, and notes what it heard."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.heard: list[wire.Request] = []
        self._context = zmq.Context()

    @contextmanager
    def life(self, answer: Answer) -> Iterator[None]:
        """Serves until the block ends; then the link breaks, as when gqd ends."""
        router = self._context.socket(zmq.ROUTER)
        router.bind(self.location.client_endpoint)
        ends = threading.Event()
        thread = threading.Thread(target=self._serve, args=(router, answer, ends))
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()
            router.close(linger=100)

    def _serve(self, router: zmq.Socket[bytes], answer: Answer, ends: threading.Event) -> None:
        count = 0
        while not ends.is_set():
            if not router.poll(10):
                continue
            peer, data = router.recv_multipart()
            request = wire.REQUESTS.decode(data)
            self.heard.append(request)
            body = answer(count, request)
            count += 1
            if body is not None:
                router.send_multipart([peer, wire.reply(request.request_id, body)])

    def close(self) -> None:
        self._context.term()


@pytest.fixture
def fake() -> Iterator[FakeController]:
    with short_directory() as directory:
        controller = FakeController(Location(f"{directory}/gq.toml", directory, directory, is_private=True))
        yield controller
        controller.close()


def done(count: int, request: wire.Request) -> wire.Done:
    return wire.Done(text=str(count))


def silent(count: int, request: wire.Request) -> None:
    return None


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "this did not come true in time"
        time.sleep(0.005)


@pytest.mark.parametrize("has_stale_socket", [False, True])
def test_nobody_there_is_said_at_once_with_the_way_out(fake: FakeController, has_stale_socket: bool) -> None:
    if has_stale_socket:
        with fake.life(done):
            pass
        Path(fake.location.client_socket).touch()
    began = time.monotonic()
    with Client(fake.location) as client, pytest.raises(Unreachable) as caught:
        client.ask(wire.Ping())
    assert time.monotonic() - began < 1.0
    assert caught.value.exit_status == 3
    assert "gq up" in caught.value.hint


def test_a_refusal_is_raised_with_code_message_and_hint(fake: FakeController) -> None:
    def refuse(count: int, request: wire.Request) -> wire.Refused:
        return wire.Refused(code="unknown_partition", message="no such thing", hint="look again")

    with fake.life(refuse), Client(fake.location) as client, pytest.raises(Refusal) as caught:
        client.ask(wire.Ping())
    assert (caught.value.code, caught.value.message, caught.value.hint) == (
        "unknown_partition",
        "no such thing",
        "look again",
    )


def test_a_controller_that_restarts_is_asked_again_with_the_same_bytes(fake: FakeController) -> None:
    answers: list[wire.ReplyBody] = []
    with Client(fake.location, patience_s=10) as client:
        asking = threading.Thread(target=lambda: answers.append(client.ask(wire.Ping())))
        with fake.life(silent):
            asking.start()
            wait_for(lambda: len(fake.heard) == 1)
        with fake.life(done):
            asking.join()
    assert answers == [wire.Done(text="0")]
    assert fake.heard[0] == fake.heard[1]


def test_patience_waits_for_a_controller_and_says_so_once(fake: FakeController) -> None:
    said: list[Unreachable] = []
    answers: list[wire.ReplyBody] = []
    with Client(fake.location, patience_s=10, on_wait=said.append) as client:
        asking = threading.Thread(target=lambda: answers.append(client.ask(wire.Ping())))
        asking.start()
        wait_for(lambda: said)
        with fake.life(done):
            asking.join()
    assert answers == [wire.Done(text="0")]
    assert [one.code for one in said] == ["unreachable"]


def test_the_first_link_has_a_patience_of_its_own_and_later_links_have_another(fake: FakeController) -> None:
    with Client(fake.location, patience_s=10, first_patience_s=0) as client:
        with pytest.raises(Unreachable):
            client.ask(wire.Ping())
        with fake.life(done):
            client.ask(wire.Ping())
        answers: list[wire.ReplyBody] = []
        asking = threading.Thread(target=lambda: answers.append(client.ask(wire.Ping())))
        asking.start()
        with fake.life(done):
            asking.join()
    assert len(answers) == 1


def test_a_submission_from_python_to_a_cluster_that_is_down_fails_within_three_seconds(
    fake: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(fake.location.config_path).touch()
    monkeypatch.setenv("GQ_DIR", fake.location.state_dir)
    began = time.monotonic()
    with pytest.raises(Unreachable):
        gq.submit("true")
    assert time.monotonic() - began < 3.0


def test_one_client_outlives_several_controllers(fake: FakeController) -> None:
    with Client(fake.location) as client:
        for _ in range(3):
            with fake.life(done):
                assert client.ask(wire.Ping()) == wire.Done(text="0")


def test_a_link_that_breaks_without_patience_is_unreachable(fake: FakeController) -> None:
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            client.ask(wire.Ping())
        except Unreachable as error:
            errors.append(error)

    with Client(fake.location) as client:
        asking = threading.Thread(target=ask)
        with fake.life(silent):
            asking.start()
            wait_for(lambda: fake.heard)
        asking.join()
    assert [error.code for error in errors if isinstance(error, Unreachable)] == ["unreachable"]


def test_silence_ends_at_the_deadline(fake: FakeController) -> None:
    with fake.life(silent), Client(fake.location, timeout_s=0.3) as client, pytest.raises(Unreachable) as caught:
        client.ask(wire.Ping())
    assert caught.value.code == "timeout"
    assert len(fake.heard) == 1


def test_a_silent_controller_is_asked_again_while_reconnecting_and_the_caller_hears_of_it_once(
    fake: FakeController, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.connection.client._FIRST_RESEND_S", 0.05)
    monkeypatch.setattr("gq.connection.client._MAX_RESEND_S", 0.1)
    notes: list[Unreachable] = []

    def late(count: int, request: wire.Request) -> wire.Done | None:
        return wire.Done(text="late") if notes and count > 8 else None

    with (
        fake.life(late),
        Client(fake.location, timeout_s=0.2) as client,
        client.reconnecting(30.0, notes.append),
    ):
        assert client.ask(wire.Ping()) == wire.Done(text="late")

    assert [note.code for note in notes] == ["timeout"]
    assert len({request.request_id for request in fake.heard}) == 1


def test_a_silent_controller_is_unreachable_when_the_time_to_reconnect_is_over(fake: FakeController) -> None:
    with (
        fake.life(silent),
        Client(fake.location, timeout_s=1.0) as client,
        client.reconnecting(2.0, lambda error: None),
        pytest.raises(Unreachable) as caught,
    ):
        client.ask(wire.Ping())

    assert "did not answer within 2 s" in caught.value.message


def test_an_answer_that_may_be_held_has_that_much_longer(fake: FakeController) -> None:
    def late(count: int, request: wire.Request) -> wire.ReplyBody:
        answer_at = time.monotonic() + 0.6
        wait_for(lambda: time.monotonic() > answer_at)
        return wire.Waited(is_done=True, jobs=())

    with fake.life(late), Client(fake.location, timeout_s=0.3) as client:
        assert client.ask(wire.WaitJobs(job_ids=(1,), timeout_s=2.0)) == wire.Waited(is_done=True, jobs=())


def test_many_answers_come_in_the_order_of_the_requests_whatever_the_window(fake: FakeController) -> None:
    def odd_refused(count: int, request: wire.Request) -> wire.ReplyBody:
        assert isinstance(request.body, wire.KeepAlive)
        if request.body.job_id % 2:
            return wire.Refused(code="odd", message=str(request.body.job_id))
        return wire.Done(text=str(request.body.job_id))

    bodies = [wire.KeepAlive(job_id=number) for number in range(100)]
    with fake.life(odd_refused), Client(fake.location) as client:
        for window in (1, 7, 256):
            answers = list(client.ask_many(bodies, window=window))
            assert [one.message if isinstance(one, Refusal) else one for one in answers] == [
                str(number) if number % 2 else wire.Done(text=str(number)) for number in range(100)
            ]


def test_a_pipeline_goes_on_where_the_old_controller_stopped(fake: FakeController) -> None:
    def first_ten(count: int, request: wire.Request) -> wire.ReplyBody | None:
        return done(count, request) if count < 10 else None

    answers: list[wire.ReplyBody | Refusal] = []
    bodies = [wire.KeepAlive(job_id=number) for number in range(60)]
    with Client(fake.location, patience_s=10) as client:
        asking = threading.Thread(target=lambda: answers.extend(client.ask_many(bodies, window=20)))
        with fake.life(first_ten):
            asking.start()
            wait_for(lambda: len(fake.heard) >= 20)
        with fake.life(done):
            asking.join()
    assert len(answers) == 60
    assert [one.body for one in dict.fromkeys(fake.heard)] == bodies, "each request keeps its id"


def test_a_request_over_the_limit_is_refused_before_it_is_sent(fake: FakeController) -> None:
    body = wire.NotifyJob(job_id=1, text="x" * MAX_MESSAGE_BYTES)
    with fake.life(done), Client(fake.location) as client:
        with pytest.raises(Refusal) as caught:
            client.ask(body)
        assert caught.value.code == "too_large"
        assert client.ask(wire.Ping()) == wire.Done(text="0")
