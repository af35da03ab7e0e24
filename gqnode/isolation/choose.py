"""Choosing, per function, the best that the machine offers and the configuration allows.

The only place that knows which version is preferred: v2, then v1, then what works without cgroups.  A level that the
configuration demands and the machine has not is an error: nobody is protected less than they believe.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from gq.model.node import IsolationLevels
from gq.near_miss import nearest
from gqnode.isolation import cgroup_v1, cgroup_v2
from gqnode.isolation.cells import Cells
from gqnode.isolation.device_filter import device_number
from gqnode.isolation.enforcer import Enforcer, Killer, MemoryEnforcer, NodeFacts
from gqnode.isolation.killer import Killer1, Killer2
from gqnode.isolation.mounts import CgroupMounts, own_mounts
from gqnode.isolation.protocol import IsolationError
from gqnode.isolation.tree import Tree, prune

AUTO = "auto"
NO_CGROUPS = "no usable cgroup hierarchy: isolation needs root, or a cgroup v2 subtree delegated to the user"
LEVELS = {
    "cpuset": ("cgroup2", "cgroup1", "none"),
    "cpu": ("cgroup2", "cgroup1", "weight", "none"),
    "memory": ("cgroup2", "cgroup1", "watched", "none"),
    "devices": ("cgroup2", "cgroup1", "environment"),
    "pids": ("cgroup2", "cgroup1", "none"),
    "kill": ("cgroup2", "cgroup1", "subreaper"),
}
"""Levels by function, best first; the last levels need no cgroup, and `none` stands for them, too."""
_PIDS_SHARE_PERCENT = 15
_LEAST_PIDS = 64
_WITHOUT_CGROUP = {"cpu": "none", "cpuset": "none", "memory": "watched", "devices": "environment", "pids": "none"}


def choose_isolation(
    *,
    cluster: str,
    node: str,
    state_dir: str,
    cpu_ids: tuple[int, ...] | None = None,
    guarded: tuple[str, ...] = (),
    control: tuple[str, ...] = (),
    asked: Mapping[str, str] | None = None,
    max_processes: int | None = None,
    mounts: CgroupMounts | None = None,
) -> Cells:
    """Call it early, before other processes are started: in a delegated v2 group the daemon moves itself aside.

    `state_dir` (it exists) tells apart clusters of one name.  `cpu_ids` are the machine's CPUs behind the node's CPU
    ids 0, 1, …, this node's alone; None: it pretends to have more or shares them, so they only weigh.  `guarded` are
    the device nodes of all its GPUs, `control` those that come with any of them.  `asked` is ``isolation`` of gq.toml,
    `max_processes` its bound on the processes of one job here.  Raises `IsolationError`.
    """
    found = own_mounts() if mounts is None else mounts
    facts = NodeFacts(
        cpu_ids=cpu_ids,
        guarded={path: device_number(path) for path in guarded},
        control=tuple(device_number(path) for path in control),
        pids_max=max_processes or default_pids_max(found),
    )
    cells = _Chooser(found, f"{cluster}-{_digest(state_dir)}", node, facts, asked or {}).choose()
    for base in sorted({*found.v1.values(), *([found.v2] if found.v2 else [])}):
        prune(base)
    return cells


def default_pids_max(mounts: CgroupMounts) -> int:
    """A share of what the machine, or the container that it is, has: six fork bombs leave room for everybody else.

    The share is that of systemd's DefaultTasksMax.
    """
    limits = [int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max")]
    for base in {mounts.v1.get("pids"), mounts.v2} - {None}:
        limits += _pids_limits_above(Path(str(base)))
    return max(_LEAST_PIDS, min(limits) * _PIDS_SHARE_PERCENT // 100)


def _pids_limits_above(base: Path) -> list[int]:
    """Return the process limits of the groups above the cells, as far as this mount shows them."""
    words = [_pids_limit(group) for group in (base, *base.parents)]
    return [int(word) for word in words if word.isdecimal()]


def _pids_limit(group: Path) -> str:
    try:
        return (group / "pids.max").read_text().strip()
    except OSError:  # the root of all groups has none
        return ""


def _digest(state_dir: str) -> str:
    """The same directory under another path, or seen from another mount namespace, is the same cluster."""
    status = Path(state_dir).stat()
    return hashlib.sha256(f"{status.st_dev}:{status.st_ino}".encode()).hexdigest()[:8]


class _Chooser:
    """Makes a single choice of enforcers and is then discarded."""

    def __init__(
        self, mounts: CgroupMounts, cluster: str, node: str, facts: NodeFacts, asked: Mapping[str, str]
    ) -> None:
        self._facts = facts
        self._asked = {function: _checked(function, how) for function, how in asked.items()}
        self._has_cgroups = bool(mounts.v2 or mounts.v1)
        self._notes = [] if self._has_cgroups else [NO_CGROUPS]
        self._levels: dict[str, str] = {}
        self._enforcers: list[Enforcer] = []
        self._v1 = {controller: Tree(base, cluster, node) for controller, base in mounts.v1.items()}
        self._v2 = self._open_v2(Tree(mounts.v2, cluster, node)) if mounts.v2 else None

    def choose(self) -> Cells:
        killer = self._choose_killer()
        self._choose_cpu()
        self._choose_function("memory")
        memory = self._enforcers[-1] if self._levels["memory"] in ("cgroup1", "cgroup2") else None
        self._choose_function("devices")
        self._choose_function("pids")
        cells = Cells(
            levels=IsolationLevels(**self._levels),
            notes=tuple(self._notes),
            enforcers=tuple(self._enforcers),
            memory=_as_memory(memory),
            killer=killer,
        )
        if self._v2 is not None and self._v2 not in cells.trees():
            self._v2.close()
        return cells

    # ── one function at a time ────────────────────────────────────────────────────────────────────────────────

    def _choose_killer(self) -> Killer | None:
        asked = self._asked.get("kill", AUTO)
        if asked in (AUTO, "cgroup2") and self._v2 is not None:
            self._levels["kill"] = "cgroup2"
            return Killer2(self._v2)
        if asked in (AUTO, "cgroup1") and "freezer" in self._v1:
            try:
                cgroup_v1.open_tree(self._v1["freezer"])
            except IsolationError as error:
                self._notes.append(f"kill: {error.message}")
            else:
                self._levels["kill"] = "cgroup1"
                return Killer1(self._v1["freezer"])
        self._settle_for("kill", asked, "subreaper", ["no cgroup v2, and no v1 freezer, that this daemon may use"])
        return None

    def _choose_cpu(self) -> None:
        """CPUs of a node's own are pinned, which limits them too; CPUs that are not only weigh."""
        if self._facts.cpu_ids is None:
            self._refuse_pinning()
            self._levels["cpuset"] = "none"
            self._choose_weight()
            return
        self._choose_function("cpuset")
        if self._asked.get("cpu", AUTO) == AUTO and self._levels["cpuset"] != "none":
            self._levels["cpu"] = self._levels["cpuset"]
        elif self._asked.get("cpu") == "weight":
            self._choose_weight()
        else:
            self._choose_function("cpu")

    def _refuse_pinning(self) -> None:
        for function in ("cpu", "cpuset"):
            if self._asked.get(function) in ("cgroup1", "cgroup2"):
                raise IsolationError(
                    f"isolation of `{function}` by `{self._asked[function]}` needs CPUs that no other node uses",
                    hint="give the node no more CPUs than the machine has, or set cpu = 'weight'",
                )

    def _choose_weight(self) -> None:
        if self._asked.get("cpu") == "none":
            self._levels["cpu"] = "none"
            return
        found, why = self._try("cpu", ("cgroup2", "cgroup1"), is_weight=True)
        self._levels["cpu"] = "weight" if found else "none"
        if not found:
            self._settle_for("cpu", self._asked.get("cpu", AUTO), "none", why)

    def _choose_function(self, function: str) -> None:
        asked = self._asked.get(function, AUTO)
        levels = ("cgroup2", "cgroup1") if asked == AUTO else (asked,)
        cgroups = tuple(level for level in levels if level.startswith("cgroup"))
        found, why = self._try(function, cgroups)
        if found:
            self._levels[function] = found
        else:
            self._settle_for(function, asked, _WITHOUT_CGROUP[function] if cgroups else asked, why)

    def _try(self, function: str, levels: tuple[str, ...], is_weight: bool = False) -> tuple[str, list[str]]:
        """(the first level that works, or '', and why those before it do not)"""
        why: list[str] = []
        for level in levels:
            try:
                self._enforcers.append(self._enforcer(function, level, is_weight))
                return level, why
            except IsolationError as error:
                why.append(error.message)
        return "", why

    def _enforcer(self, function: str, level: str, is_weight: bool) -> Enforcer:
        if level == "cgroup1":
            return cgroup_v1.enforcer(function, self._v1, self._facts, is_weight)
        if self._v2 is None:
            raise IsolationError("no cgroup v2 that this daemon may use")
        return cgroup_v2.enforcer(function, self._v2, self._facts, is_weight)

    def _settle_for(self, function: str, asked: str, level: str, why: list[str]) -> None:
        if asked not in (AUTO, level):
            raise IsolationError(
                f"isolation of `{function}` by `{asked}` is not available: {'; '.join(why)}",
                hint=f"set {function} = 'auto' to use what is available",
            )
        self._levels[function] = level
        if asked == AUTO and self._has_cgroups:
            self._notes.append(f"{function}: {'; '.join(why)}")

    def _open_v2(self, tree: Tree) -> Tree | None:
        try:
            cgroup_v2.open_tree(tree)
        except IsolationError as error:
            self._notes.append(f"cgroup v2: {error.message}")
            return None
        return tree


def _checked(function: str, how: str) -> str:
    if function not in LEVELS:
        known = ", ".join(f"`{name}`" for name in LEVELS)
        raise IsolationError(f"`{function}` is not an isolation function", hint=f"there are {known}")
    known_levels = [AUTO, "none", *LEVELS[function]]
    if how not in known_levels:
        close = nearest(how, known_levels)
        hint = f"did you mean `{close}`?" if close else f"use one of {', '.join(known_levels)}"
        raise IsolationError(f"`{how}` is not a way to isolate `{function}`", hint=hint)
    return {"devices": "environment", "kill": "subreaper"}.get(function, how) if how == "none" else how


def _as_memory(enforcer: Enforcer | None) -> MemoryEnforcer | None:
    match enforcer:
        case cgroup_v1.Memory1() | cgroup_v2.Memory2():
            return enforcer
        case _:
            return None
