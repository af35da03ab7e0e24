"""Users whom MUNGE vouches for, at the tcp door for clients: each is who munged says, and nobody else is heard."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import zmq
import zmq.asyncio

from gq.cli.step.async_client import AsyncClient
from gq.connection import link_bounds, munge
from gq.connection.client import Client
from gq.connection.curve import KeyPair, fresh_keys
from gq.connection.locate import Location
from gq.errors import Refusal
from gq.model.ids import RequestId
from gq.wire import client as wire
from gqd.shell.listeners import listeners, munge_auth
from tests.clusters import wait_until
from tests.munge import Munged, own_munged
from tests.requires import needs_munge, needs_root
from tests.shell.rig import Wire, until
from tests.shell.shared import USER, SharedRig, as_uid, refusal_of, remotely, shared_running

pytestmark = [needs_root, needs_munge, pytest.mark.timeout(60)]
ME = f"{USER.pw_name} {USER.pw_uid} user munge (127.0.0.1)"
NAMELESS_UID = 2**31 - 7


@pytest.fixture
def munged() -> Iterator[Munged]:
    """Also for users who may not enter the test's own directory."""
    with tempfile.TemporaryDirectory(prefix="gqt", dir="/tmp") as directory:
        Path(directory).chmod(0o711)
        with own_munged(Path(directory, "munge")) as munged:
            yield munged


def played(munged: Munged, scenario: Callable[[SharedRig], Awaitable[None]]) -> None:
    """With a controller that takes the word of this munged."""

    async def play() -> None:
        async with shared_running(munge_socket=munged.socket) as shared:
            await scenario(shared)

    asyncio.run(play())


def elsewhere(shared: SharedRig, munged: Munged) -> Location:
    """Of a host without gqd and gqnode, whose users have no keys."""
    home = Path(shared.rig.location.state_dir, "elsewhere")
    home.mkdir(mode=0o755)
    config = home / "gq.toml"
    config.write_text(
        f'[client]\ncontroller = "{shared.clients}"\nserver_key = "{shared.server.public.decode()}"\n'
        f'munge = true\nmunge_socket = "{munged.socket}"\n'
    )
    config.chmod(0o644)
    return Location(str(config), str(home), str(home), is_private=False, is_remote=True)


def who_am_i(client: Client) -> str:
    me = client.ask(wire.WhoAmI())
    assert isinstance(me, wire.Identity)
    return f"{me.user} {me.uid} {me.role} {me.origin}"


async def as_user(action: Callable[[], str]) -> str:
    return await as_uid(USER.pw_uid, USER.pw_gid, action)


async def credential(munged: Munged, keys: KeyPair, uid: int = USER.pw_uid, words: bytes = b"") -> str:
    """As a process of this uid makes one; `words`: over others than gq's."""
    payload = words or munge.payload_of(keys.public.decode())
    return await asyncio.to_thread(munged.credential, payload, uid)


async def introduce(link: Wire, credential: str, user: str = USER.pw_name) -> wire.ReplyBody:
    body = wire.Introduce(user=user, credential=credential)
    await link.send(wire.introduction(RequestId(os.urandom(16)), body))
    return (await link.reply()).body


async def code_of(link: Wire, credential: str, user: str = USER.pw_name) -> str:
    """Of the refusal."""
    body = await introduce(link, credential, user)
    assert isinstance(body, wire.Refused), body
    assert body.hint
    return body.code


def once(shared: SharedRig) -> Wire:
    """A link of a key that nobody knows; it is not made again when it is lost."""

    def prepare(dealer: zmq.asyncio.Socket) -> None:
        dealer.curve_publickey, dealer.curve_secretkey = fresh_keys()
        dealer.curve_serverkey = shared.server.public
        dealer.immediate = True
        dealer.reconnect_ivl = -1

    return shared.rig.dial(shared.clients, prepare)


def is_lost(link: Wire) -> bool:
    return not int(link.socket.getsockopt(zmq.EVENTS)) & zmq.POLLOUT


async def is_stranger(link: Wire) -> bool:
    await link.request(wire.Ping())
    return refusal_of(await link.reply()).code == "introduce_first"


# ── who is let in ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_without_a_key_is_who_munge_says(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)

        def ask() -> str:
            with Client(location, timeout_s=5) as client:
                assert who_am_i(client) == who_am_i(client)
                return who_am_i(client)

        assert await as_user(ask) == ME
        assert await shared.counter("introductions") == 1, "a link is introduced once"

    played(munged, scenario)


def test_what_such_a_user_changes_is_in_the_trail_with_where_it_came_from(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)

        def cancel() -> str:
            with Client(location, timeout_s=5) as client:
                return type(client.ask(wire.CancelJobs(filter=wire.JobFilter(job_ids=(7,))))).__name__

        assert await as_user(cancel) == "JobsDone"
        [told] = await shared.audit("CancelJobs")
        assert (told.user, told.uid, told.origin) == (USER.pw_name, USER.pw_uid, "munge (127.0.0.1)")

    played(munged, scenario)


def test_users_with_keys_come_in_by_the_same_door_as_before(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys = await shared.enrolled()
        assert await remotely(shared.laptop(keys), wire.Ping()) == wire.Done()
        await shared.member("n1")
        with pytest.raises(Refusal) as error:
            await remotely(shared.laptop(fresh_keys()), wire.Ping())
        assert error.value.code == "introduce_first" and "gqctl key add" in error.value.hint

    played(munged, scenario)


def test_the_word_of_munge_is_believed_for_a_while_and_then_asked_for_again(
    munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(munge_auth, "KEEP_S", 0.0)

    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)

        def ask() -> str:
            with Client(location, timeout_s=5) as client:
                return who_am_i(client)

        assert await as_user(ask) == "introduce_first", "not for ever: the user is told"
        assert await shared.counter("introductions") == 3
        monkeypatch.setattr(munge_auth, "KEEP_S", 0.5)
        assert await as_user(lambda: _twice(location)) == ME
        assert await shared.counter("introductions") >= 5

    played(munged, scenario)


def _twice(location: Location) -> str:
    """The second time when the first introduction is over."""
    with Client(location, timeout_s=5) as client:
        who_am_i(client)
        wait_a_moment(0.6)
        return who_am_i(client)


def wait_a_moment(seconds: float) -> None:
    """Until so much time is over, by the clock that gqd counts it with."""
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, seconds + 5)


def test_a_user_with_many_commands_makes_gqd_remember_few_and_all_go_on(
    munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(munge_auth, "MAX_KEPT_OF_USER", 2)

    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)

        def ask() -> str:
            clients = [Client(location, timeout_s=5) for _ in range(3)]
            try:
                return " / ".join(sorted({who_am_i(client) for client in [*clients, *clients]}))
            finally:
                for client in clients:
                    client.close()

        assert await as_user(ask) == ME
        assert await shared.counter("introductions") == 6

    played(munged, scenario)


def test_a_standing_conversation_introduces_itself_and_again_when_asked(
    munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(munge_auth, "KEEP_S", 1.0)

    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)
        assert await as_user(lambda: _converse(location)) == "Done Done Done"
        assert await shared.counter("introductions") >= 2

    played(munged, scenario)


def _converse(location: Location) -> str:
    """As `gqrun` does with a job that it holds."""
    said = []
    with zmq.Context() as context:
        talk = AsyncClient(context, location)
        for _ in range(3):
            asked = talk.ask(wire.Ping(), time.monotonic())
            until = time.monotonic() + 5
            while talk.is_open(asked) and time.monotonic() < until:
                talk.socket.poll(50)
                said += [type(body).__name__ for _, body in talk.answers()]
                talk.keep_up(time.monotonic())
            wait_a_moment(0.7)
        talk.close()
    return " ".join(said)


# ── who is not ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_link_says_nothing_before_it_is_introduced_and_everything_after(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys = fresh_keys()
        link = shared.dial(keys, shared.clients)
        assert await is_stranger(link)
        [told] = await shared.audit("NoIntroduction")
        assert (told.user, told.origin, told.outcome) == ("", "127.0.0.1", "refused")

        assert await introduce(link, await credential(munged, keys)) == wire.Done(text=f"user {USER.pw_name}")
        await link.request(wire.Ping())
        assert (await link.reply()).body == wire.Done()

    played(munged, scenario)


def test_credentials_that_are_not_for_this_link_are_refused_and_told(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys, others = fresh_keys(), fresh_keys()
        link, mine = shared.dial(others, shared.clients), await credential(munged, keys)
        slurms = await credential(munged, others, words=others.public)  # over the key, without the words of gq
        theirs = await credential(munged, others)
        foreign = "MUNGE:" + "A" * 180 + ":"
        for given, code, action in (
            (mine, "munge_other_key", "MungeOtherKey"),
            (mine, "munge_replayed", "MungeReplayed"),
            (foreign, "munge_invalid", "MungeInvalid"),
        ):
            assert await code_of(link, given) == code
            assert (await shared.audit(action))[0].outcome == "refused"
        assert await code_of(link, slurms) == "munge_other_key"
        assert await is_stranger(link)
        assert await introduce(link, theirs) == wire.Done(text=f"user {USER.pw_name}")
        [told, *_] = await shared.audit("MungeOtherKey")
        assert (told.user, told.uid, told.origin) == ("", USER.pw_uid, "127.0.0.1")

    played(munged, scenario)


def test_a_user_must_have_name_and_uid_of_the_controllers_host_and_not_be_root(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys = fresh_keys()
        link = shared.dial(keys, shared.clients)
        for uid, name, code in (
            (0, "root", "munge_root"),
            (0, USER.pw_name, "munge_root"),
            (USER.pw_uid, "root", "identity_mismatch"),
            (NAMELESS_UID, USER.pw_name, "identity_mismatch"),
            (NAMELESS_UID, "nobody-knows-them", "identity_mismatch"),
        ):
            assert await code_of(link, await credential(munged, keys, uid), name) == code
        for action, uid in (("MungeRoot", 0), ("IdentityMismatch", USER.pw_uid)):
            assert (await shared.audit(action))[0].uid == uid
        assert await is_stranger(link)

    played(munged, scenario)


def test_a_key_that_is_revoked_is_a_strangers_from_then_on_and_the_trail_says_so(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys = await shared.enrolled()
        link = shared.dial(keys, shared.clients)
        await link.request(wire.Ping())
        assert (await link.reply()).body == wire.Done()
        await shared.ask(wire.RevokeKey(public=keys.public.decode()))
        assert await is_stranger(link)
        [told] = await shared.audit("NoIntroduction")
        assert told.detail == "its key is no longer valid"

    played(munged, scenario)


def test_munge_opens_no_door_but_the_one_for_clients(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        keys = fresh_keys()
        link = shared.dial(keys, shared.nodes)
        await shared.until_counted("handshakes_refused")
        link.socket.close(linger=0)
        local = shared.rig.client_wire()
        assert await code_of(local, await credential(munged, keys)) == "unknown_request"

    played(munged, scenario)


def test_without_munge_in_gq_toml_a_key_that_is_not_known_does_not_get_through_the_handshake(munged: Munged) -> None:
    async def scenario() -> None:
        async with shared_running() as shared:
            location = elsewhere(shared, munged)

            def ask() -> str:
                with Client(location, timeout_s=5) as client:
                    return who_am_i(client)

            assert await as_user(ask) == "key_refused"
            assert await shared.counter("handshakes_refused") == 1

    asyncio.run(scenario())


# ── munged is away ────────────────────────────────────────────────────────────────────────────────────────────


def test_while_munged_is_away_or_hangs_users_are_told_and_others_are_served(
    munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(munge_auth, "DECODE_S", 0.3)

    async def scenario(shared: SharedRig) -> None:
        keys = fresh_keys()
        link, given = shared.dial(keys, shared.clients), [await credential(munged, keys) for _ in range(2)]
        os.kill(munged.pid(), signal.SIGSTOP)
        hanging = asyncio.ensure_future(code_of(link, given[0]))
        assert await shared.ask(wire.Ping()) == wire.Done()
        assert await hanging == "munge_down"
        os.kill(munged.pid(), signal.SIGCONT)
        munged.stop()
        assert await code_of(link, given[1]) == "munge_down"
        [told, *_] = await shared.audit("MungeDown")
        assert told.outcome == "refused"
        munged.start()
        assert await introduce(link, await credential(munged, keys)) == wire.Done(text=f"user {USER.pw_name}")

    played(munged, scenario)


def test_a_command_says_that_munge_is_missing_and_what_to_do(munged: Munged, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)
        munged.stop()
        with pytest.raises(Refusal, match="munged does not answer") as error:
            await remotely(location, wire.Ping())
        assert error.value.code == "munge_down" and "systemctl start munge" in error.value.hint
        monkeypatch.setattr(munge, "LIBRARY", "libnobody.so.2")
        munge.load.cache_clear()
        with pytest.raises(Refusal, match="libnobody") as error:
            await remotely(location, wire.Ping())
        assert error.value.code == "no_munge" and "install MUNGE" in error.value.hint
        munged.start()

    try:
        played(munged, scenario)
    finally:
        munge.load.cache_clear()


@pytest.mark.parametrize("fault", ["no library", "open directory"])
def test_gqd_does_not_start_where_it_could_not_trust_munge(
    munged: Munged, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    if fault == "no library":
        monkeypatch.setattr(munge, "LIBRARY", "libnobody.so.2")
    else:
        munged.directory.chmod(0o1777)
    munge.load.cache_clear()

    async def scenario(shared: SharedRig) -> None:
        assert shared.rig.serving is not None
        await shared.rig.serving

    try:
        with pytest.raises(Refusal) as error:
            played(munged, scenario)
        assert error.value.code == {"no library": "no_munge", "open directory": "unsafe_munge"}[fault]
        assert error.value.hint
    finally:
        munge.load.cache_clear()
        munged.directory.chmod(0o711)


# ── strangers in number ───────────────────────────────────────────────────────────────────────────────────────


def test_a_stranger_has_few_tries_and_brings_nothing_large_in(munged: Munged) -> None:
    async def scenario(shared: SharedRig) -> None:
        link = once(shared)
        for _ in range(link_bounds.MAX_UNPROVEN - 1):
            assert await is_stranger(link)
        await link.request(wire.Ping())
        await link.request(wire.Ping())
        await until(lambda: is_lost(link))

        large = once(shared)
        await large.send(wire.request(RequestId(bytes(16)), wire.NotifyJob(job_id=1, text="x" * 5000)))
        await until(lambda: is_lost(large))
        assert await shared.counter("malformed") == 1

    played(munged, scenario)


def test_links_that_nobody_introduces_are_hung_up_on_in_time(munged: Munged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "INTRODUCE_S", 0.2)
    monkeypatch.setattr(link_bounds, "SWEEP_S", 0.1)

    async def scenario(shared: SharedRig) -> None:
        enrolled = await shared.enrolled()
        keys = fresh_keys()
        known, unknown = shared.dial(keys, shared.clients), once(shared)
        assert await introduce(known, await credential(munged, keys)) == wire.Done(text=f"user {USER.pw_name}")
        await known.request(wire.Ping())
        assert (await known.reply()).body == wire.Done()
        assert await is_stranger(unknown)
        assert await shared.audit("NoIntroduction")
        await until(lambda: is_lost(unknown))
        await known.request(wire.Ping())
        assert (await known.reply()).body == wire.Done()
        assert await remotely(shared.laptop(enrolled), wire.Ping()) == wire.Done()

    played(munged, scenario)


def test_strangers_in_number_keep_out_no_user_with_a_key_and_none_of_another_address(
    munged: Munged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "MAX_GUESTS", 8)

    async def scenario(shared: SharedRig) -> None:
        enrolled = await shared.enrolled()
        crowd = []
        for host in range(2, 12):
            from_host = shared.clients.replace("//", f"//127.0.0.{host}:0;")
            crowd += [shared.dial(fresh_keys(), from_host) for _ in range(4)]
        await shared.until_counted("links_cut")
        await shared.until_counted("handshakes_refused")
        told = await shared.audit("HandshakeRefused")
        assert "too many unknown keys" in told[0].detail
        assert await remotely(shared.laptop(enrolled), wire.Ping()) == wire.Done()
        for one in crowd:
            one.socket.close(linger=0)

    played(munged, scenario)


@pytest.mark.slow
def test_many_commands_of_one_host_at_once_all_get_through(munged: Munged, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MAX_GUESTS", 8)

    async def scenario(shared: SharedRig) -> None:
        location = elsewhere(shared, munged)

        def ask() -> str:
            with Client(location, timeout_s=20, patience_s=30) as client:
                return who_am_i(client)

        assert set(await asyncio.gather(*(as_user(ask) for _ in range(24)))) == {ME}
        assert await shared.counter("links_cut") > 0

    played(munged, scenario)
