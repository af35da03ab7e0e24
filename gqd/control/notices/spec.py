"""Validation and completion of the notification targets of a submitted job.  Pure."""

from __future__ import annotations

import msgspec

from gq.config.notify_settings import refusal_of
from gq.errors import Refusal
from gq.model.job import JobSpec
from gq.model.notice import ARRAY_TASKS, DEFAULT, MAX_TARGETS, OCCASIONS, Target, parse_target
from gqd.state.policy import Policy


def settled(policy: Policy, spec: JobSpec) -> JobSpec:
    """The spec with completed notification targets, see `settled_targets`; raises `Refusal`."""
    if not spec.notify:
        return spec
    kept = settled_targets(policy, spec.notify)
    return spec if kept == spec.notify else msgspec.structs.replace(spec, notify=kept)


def settled_targets(policy: Policy, asked: tuple[Target, ...]) -> tuple[Target, ...]:
    """The targets with the cluster's default filled in, without optional mail if the cluster sends none; `Refusal`."""
    if len(asked) > MAX_TARGETS:
        raise Refusal(
            "bad_notify", f"{len(asked)} targets exceed the maximum of {MAX_TARGETS}", "leave out some targets"
        )
    targets = [_with_default(policy, one) for one in asked]
    return tuple([target for target in targets if not _is_left_out(policy, target)])


def _with_default(policy: Policy, target: Target) -> Target:
    unknown = [one for one in target.on if one not in (*OCCASIONS, ARRAY_TASKS)]
    if unknown:
        raise Refusal("bad_notify", f"--notify-on: `{unknown[0][:40]}` is not one of {', '.join(OCCASIONS)}")
    if target.kind != DEFAULT or not policy.notify.default:
        return target
    default = parse_target(policy.notify.default)
    return Target(kind=default.kind, to=default.to, on=target.on)


def _is_left_out(policy: Policy, target: Target) -> bool:
    refusal = refusal_of(policy.notify, target)
    if refusal is not None and not (target.is_optional and not policy.notify.mail):
        raise refusal
    return refusal is not None


def note_of(asked: JobSpec, queued: JobSpec) -> str:
    """A warning that requested mail is left out; empty: none is."""
    is_left_out = sum(one.is_optional for one in asked.notify) > sum(one.is_optional for one in queued.notify)
    return "--mail-type has no effect: this cluster sends no mail" if is_left_out else ""
