"""gq.toml read again: what the deciding code makes of it, and what the audit trail says."""

from __future__ import annotations

import msgspec
import pytest

from gq.errors import Refusal
from gq.model.policy_tables import Limits
from gq.wire import client
from gqd.control.turn import Turn
from gqd.state.effect import ReadConfig, Reply
from gqd.state.events.event import Audited, RequestAnswered
from gqd.state.input import ConfigRefused, PolicyChanged
from tests.builders import ADAM, BOB, SHARED, client_request, submit
from tests.hosts import CoreHost

FEW = msgspec.structs.replace(SHARED, limits=Limits(jobs=1))


def asked(host: CoreHost) -> ReadConfig:
    turn = host.handle(client_request(client.ReloadConfig(), 1, ADAM), 5)
    [effect] = turn.effects
    assert turn.events == ()
    assert isinstance(effect, ReadConfig)
    return effect


def test_who_asks_is_answered_when_the_file_has_been_read_and_is_in_force() -> None:
    host = CoreHost(SHARED)
    request = asked(host).request

    turn = host.handle(PolicyChanged(policy=FEW, request=request, text="in force: limits.jobs"), 6)

    answer = client.Done(text="in force: limits.jobs")
    assert turn.effects == (Reply(route=request.route, request_id=request.request_id, body=answer),)
    answered, audited = turn.events
    assert isinstance(answered, RequestAnswered)
    assert isinstance(audited, Audited)
    said = (audited.user, audited.action, audited.outcome, audited.detail)
    assert said == (ADAM.user, "ReloadConfig", "done", "in force: limits.jobs")
    host.submit(submit(), peer=BOB)
    with pytest.raises(Refusal, match="the queue holds 1 of 1 jobs"):
        host.submit(submit(), peer=BOB)


def test_the_same_request_again_is_answered_without_another_look_at_the_file() -> None:
    host = CoreHost(SHARED)
    request = asked(host).request
    first = host.handle(PolicyChanged(policy=FEW, request=request, text="in force: limits.jobs"), 6)

    assert host.handle(request, 7) == Turn(effects=first.effects)


def test_a_wrong_file_changes_nothing_and_who_asked_is_told() -> None:
    host = CoreHost(SHARED)
    request = asked(host).request

    turn = host.handle(ConfigRefused(code="bad_config", message="`x` is wrong", hint="mend it", request=request), 6)

    refused = client.Refused(code="bad_config", message="`x` is wrong", hint="mend it")
    assert turn.effects == (Reply(route=request.route, request_id=request.request_id, body=refused),)
    [audited] = turn.events
    assert isinstance(audited, Audited)
    said = (audited.user, audited.action, audited.outcome, audited.detail)
    assert said == (ADAM.user, "ReloadConfig", "bad_config", "`x` is wrong")
    assert host.controller.policy == SHARED


def test_a_signal_leaves_a_line_in_the_trail_whether_the_file_is_good_or_not() -> None:
    host = CoreHost(SHARED)

    good = host.handle(PolicyChanged(policy=FEW, text="in force: limits.jobs"), 6)
    bad = host.handle(ConfigRefused(code="bad_config", message="`x` is wrong"), 7)

    assert (good.effects, bad.effects) == ((), ())
    said = [(one.user, one.origin, one.action, one.outcome, one.detail) for one in host.trail]
    assert said == [
        ("", "signal", "ReloadConfig", "done", "in force: limits.jobs"),
        ("", "signal", "ReloadConfig", "bad_config", "`x` is wrong"),
    ]
    assert host.controller.policy == FEW


def test_only_administrators_may_ask_for_it() -> None:
    host = CoreHost(SHARED)
    with pytest.raises(Refusal) as caught:
        host.ask(client.ReloadConfig(), peer=BOB)
    assert caught.value.code == "not_administrator"


def test_a_new_policy_is_reason_enough_to_plan_again() -> None:
    host = CoreHost(SHARED)
    host.submit(submit(), peer=BOB)
    host.schedule()
    assert not host.controller.wants_plan(host.now)

    host.handle(PolicyChanged(policy=FEW), 6)

    assert host.controller.wants_plan(host.now)
