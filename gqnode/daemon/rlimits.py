"""``rlimits`` of a node in gq.toml: names and units of limits.conf(5) → what the kernel takes."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from gq.errors import UsageError
from gq.near_miss import nearest

UNLIMITED = ("unlimited", "infinity", "-1")
KERNEL_LIMITS = {
    "as": (resource.RLIMIT_AS, 1024),
    "core": (resource.RLIMIT_CORE, 1024),
    "cpu": (resource.RLIMIT_CPU, 60),
    "data": (resource.RLIMIT_DATA, 1024),
    "fsize": (resource.RLIMIT_FSIZE, 1024),
    "locks": (10, 1),
    "memlock": (resource.RLIMIT_MEMLOCK, 1024),
    "msgqueue": (resource.RLIMIT_MSGQUEUE, 1),
    "nofile": (resource.RLIMIT_NOFILE, 1),
    "nproc": (resource.RLIMIT_NPROC, 1),
    "rss": (resource.RLIMIT_RSS, 1024),
    "rtprio": (resource.RLIMIT_RTPRIO, 1),
    "sigpending": (resource.RLIMIT_SIGPENDING, 1),
    "stack": (resource.RLIMIT_STACK, 1024),
}
"""Name in limits.conf → (number of the kernel's, how many of the kernel's units one there is)."""
_MOST = 2**63 - 1


def parse_rlimits(written: Mapping[str, str], key: str) -> tuple[tuple[int, int, int], ...]:
    """(number, soft, hard) of each; `key` is where they are written, for the `UsageError`."""
    return tuple(_parse(name, text, f"{key}.{name}") for name, text in sorted(written.items()))


def _parse(name: str, text: str, key: str) -> tuple[int, int, int]:
    if name not in KERNEL_LIMITS:
        close = nearest(name, list(KERNEL_LIMITS))
        known = f"did you mean `{close}`?" if close else f"there are {', '.join(KERNEL_LIMITS)}"
        raise UsageError("bad_config", f"{key}: limits.conf has no limit `{name}`", known)
    number, unit = KERNEL_LIMITS[name]
    soft_text, has_both, hard_text = text.partition(":")
    soft = _value(soft_text, unit, text, key)
    hard = _value(hard_text, unit, text, key) if has_both else soft
    if _is_over(soft, hard):
        raise UsageError("bad_config", f"{key}: in `{text}` the soft limit is above the hard limit", "write soft:hard")
    _check_may_set(name, number, hard, key)
    return number, soft, hard


def _value(text: str, unit: int, whole: str, key: str) -> int:
    if text.strip() in UNLIMITED:
        return resource.RLIM_INFINITY
    if not text.strip().isdecimal() or int(text) * unit > _MOST:
        hint = "write a number in the unit of limits.conf(5), or `unlimited`; soft:hard for two of them"
        raise UsageError("bad_config", f"{key}: `{whole}` is not a limit", hint)
    return int(text) * unit


def _is_over(one: int, other: int) -> bool:
    return other != resource.RLIM_INFINITY and (one == resource.RLIM_INFINITY or one > other)


def _check_may_set(name: str, number: int, hard: int, key: str) -> None:
    """Try to set the limit: a limit that is refused now would be refused to every job."""
    own_soft, own_hard = resource.getrlimit(number)
    if not _is_over(hard, own_hard):
        return
    try:
        resource.setrlimit(number, (own_soft, hard))
        resource.setrlimit(number, (own_soft, own_hard))
    except (ValueError, OSError):
        highest = "unlimited" if own_hard == resource.RLIM_INFINITY else str(own_hard // KERNEL_LIMITS[name][1])
        hint = "lower it, or raise gqnode's own limit in the service manager (LimitNOFILE= and so on)"
        raise UsageError(
            "bad_config", f"{key}: this daemon may not raise the hard limit above {highest}", hint
        ) from None
