"""Where cgroup file systems are mounted, and below which directory this daemon may make its own.

Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; makes nothing.

Root works below the mount point: that place stays the same however the daemon was started, so cells are found again
after a restart.  A daemon that itself runs inside a gq cell, and one of an ordinary user, works below the group it is
in: the outer job's limits and its end reach what the inner cluster started.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

ROOT_NAME = "gq"
"""The directory of all clusters of one machine."""
V1_CONTROLLERS = frozenset({"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids"})


class CgroupMounts(msgspec.Struct, frozen=True, kw_only=True):
    """The directory to work below, by hierarchy; it exists and may be written to."""

    v2: str | None = None
    v1: dict[str, str] = {}
    """Mount by controller; controllers that are mounted together share a mount."""


def find_mounts(is_root: bool, mountinfo: str, own_groups: str) -> CgroupMounts:
    """`mountinfo` and `own_groups` are the text of the two files of `/proc/self`."""
    groups = _parse_groups(own_groups)
    v2: str | None = None
    v1: dict[str, str] = {}
    for point, root, kind, options in _cgroup_mounts(mountinfo):
        controllers = V1_CONTROLLERS.intersection(options) if kind == "cgroup" else frozenset({""})
        for controller in sorted(controllers):
            base = _base(is_root, point, root, groups.get(controller, "/"))
            if not os.access(base, os.W_OK | os.X_OK):
                continue
            if kind == "cgroup2":
                v2 = v2 or base
            else:
                v1.setdefault(controller, base)
    return CgroupMounts(v2=v2, v1=v1)


def own_mounts() -> CgroupMounts:
    """Return the cgroup mounts that this process sees."""
    mountinfo = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    try:
        own_groups = Path("/proc/self/cgroup").read_text("utf-8", "surrogateescape")
    except FileNotFoundError:  # a kernel without cgroups
        return CgroupMounts()
    return find_mounts(os.geteuid() == 0, mountinfo, own_groups)


def _base(is_root: bool, point: str, root: str, group: str) -> str:
    inside = group.removeprefix(root.rstrip("/")).strip("/")
    parts = inside.split("/")
    if not inside or ".." in parts or (is_root and ROOT_NAME not in parts):  # "..": outside of what is mounted here
        return point
    return f"{point}/{inside}"


def _parse_groups(text: str) -> dict[str, str]:
    """Controller → this process's group; v2 has the empty name."""
    groups = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        groups.update(dict.fromkeys(controllers.split(","), path))
    return groups


def _cgroup_mounts(mountinfo: str) -> list[tuple[str, str, str, list[str]]]:
    """(mount point, its root inside the hierarchy, type, options) of each, see proc_pid_mountinfo(5)."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            root, point = before.split(" ")[3:5]
            mounts.append((_unescape(point), _unescape(root), kind, options.split(",")))
    return mounts


def _unescape(path: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        path = path.replace(code, character)
    return path
