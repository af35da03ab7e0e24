"""What is chosen where, and what is written into the files of a cgroup; nothing here needs a privilege."""

from __future__ import annotations

import errno
import stat
import struct
from pathlib import Path

import pytest

from gq.model.node import IsolationLevels
from gqnode.isolation import cgroup_v1, cgroup_v2
from gqnode.isolation.cell import Cell
from gqnode.isolation.cells import Cells
from gqnode.isolation.choose import LEVELS, NO_CGROUPS, choose_isolation, default_pids_max
from gqnode.isolation.device_filter import DeviceNumber, device_number, filter_program
from gqnode.isolation.enforcer import Enforcer, MemoryEnforcer, NodeFacts
from gqnode.isolation.killer import Killer1, Killer2
from gqnode.isolation.mounts import CgroupMounts, find_mounts
from gqnode.isolation.protocol import CellLimits, Isolation, IsolationError
from gqnode.isolation.tree import Tree, prune

NOTHING = CgroupMounts()
FACTS = NodeFacts(cpu_ids=(4, 5, 6, 7), pids_max=1000)


def chosen(tmp_path: Path, asked: dict[str, str] | None = None, mounts: CgroupMounts = NOTHING) -> Cells:
    return choose_isolation(cluster="c", node="n1", state_dir=str(tmp_path), cpu_ids=(0, 1), asked=asked, mounts=mounts)


# ── without cgroups ───────────────────────────────────────────────────────────────────────────────────────────


def test_without_cgroups_the_shepherd_does_what_can_be_done_and_one_note_says_why(tmp_path: Path) -> None:
    isolation: Isolation = chosen(tmp_path)

    assert isolation.levels == IsolationLevels(memory="watched", devices="environment", kill="subreaper")
    assert isolation.notes == (NO_CGROUPS,)


def test_without_cgroups_a_cell_is_a_name_and_a_limit_to_watch(tmp_path: Path) -> None:
    isolation = chosen(tmp_path)
    cell = isolation.make("7.1", CellLimits(cpus=(0,), memory_mib=64))

    assert cell == Cell("7.1", (), watch_memory_mib=64)
    assert isolation.make_step(cell, 2) == Cell("7.1.2")
    assert isolation.make("8.1", CellLimits(cpus=(0,))).watch_memory_mib is None
    assert isolation.find("7.1") is None and isolation.is_empty(cell) is None and isolation.usage(cell) is None
    assert not isolation.kill(cell) and not isolation.oom_killed(cell) and not isolation.freeze(cell, True)
    isolation.set_limits(cell, CellLimits(memory_mib=128))
    isolation.remove(cell)
    assert isolation.clear(keep=()) == ()
    isolation.close()


@pytest.mark.parametrize(
    ("killer", "file", "frozen", "thawed"),
    [(Killer2, "cgroup.freeze", "1", "0"), (Killer1, "freezer.state", "FROZEN", "THAWED")],
)
def test_a_freezer_stops_a_whole_cell_and_lets_it_go_on(
    tmp_path: Path, killer: type[Killer1 | Killer2], file: str, frozen: str, thawed: str
) -> None:
    one = killer(Tree(str(tmp_path), "c", "n1"))
    cell = tmp_path / "cell"
    assert not one.freeze(str(cell), True), "there is none"
    cell.mkdir()
    (cell / file).write_text(" " * 8)
    (cell / "cgroup.events").write_text("populated 1\nfrozen 1\n")

    assert one.freeze(str(cell), True)
    assert one.is_frozen(str(cell)) is True
    assert (cell / file).read_text().strip() == frozen
    assert one.freeze(str(cell), False)
    assert (cell / file).read_text().strip()[:6] == thawed


def test_memory_that_nobody_is_to_watch_is_not_watched(tmp_path: Path) -> None:
    isolation = chosen(tmp_path, {"memory": "none"})

    assert isolation.make("7.1", CellLimits(memory_mib=64)).watch_memory_mib is None


# ── what was asked for ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("function", LEVELS)
def test_a_demanded_level_that_cannot_be_had_is_an_error_with_the_way_out(tmp_path: Path, function: str) -> None:
    with pytest.raises(IsolationError, match=f"`{function}` by `cgroup2` is not available") as refusal:
        chosen(tmp_path, {function: "cgroup2"})

    assert refusal.value.hint == f"set {function} = 'auto' to use what is available"


@pytest.mark.parametrize("function", LEVELS)
def test_any_function_can_be_switched_off(tmp_path: Path, function: str) -> None:
    levels = chosen(tmp_path, {function: "none"}).levels

    assert getattr(levels, function) == {"devices": "environment", "kill": "subreaper"}.get(function, "none")


def test_a_way_to_isolate_that_does_not_exist_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(IsolationError, match="`cgruop1` is not a way to isolate `memory`") as refusal:
        chosen(tmp_path, {"memory": "cgruop1"})

    assert refusal.value.hint == "did you mean `cgroup1`?"


def test_a_function_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IsolationError, match="`network` is not an isolation function"):
        chosen(tmp_path, {"network": "none"})


@pytest.mark.parametrize("function", ["cpu", "cpuset"])
def test_cpus_that_are_shared_or_pretended_cannot_be_pinned(tmp_path: Path, function: str) -> None:
    with pytest.raises(IsolationError, match="CPUs that no other node uses"):
        choose_isolation(cluster="c", node="n1", state_dir=str(tmp_path), asked={function: "cgroup1"}, mounts=NOTHING)


@pytest.mark.parametrize("name", ["", "7", "7.1.2.3", "../7.1", "7.1/cgroup.procs", "x.1"])
def test_only_the_names_of_attempts_and_steps_name_a_cell(name: str) -> None:
    with pytest.raises(IsolationError, match="is not the name of a cell"):
        Tree("/nowhere", "c", "n1").path(name)


def test_most_of_the_machines_processes_are_left_to_others() -> None:
    of_kernel = min(int(Path(f"/proc/sys/kernel/{name}").read_text()) for name in ("pid_max", "threads-max"))
    assert default_pids_max(CgroupMounts()) == max(64, of_kernel * 15 // 100)


def test_in_a_container_the_bound_is_a_share_of_what_the_container_has(tmp_path: Path) -> None:
    (tmp_path / "outer" / "own").mkdir(parents=True)
    (tmp_path / "outer" / "pids.max").write_text("2000\n")
    (tmp_path / "outer" / "own" / "pids.max").write_text("max\n")

    for mounts in (CgroupMounts(v2=f"{tmp_path}/outer/own"), CgroupMounts(v1={"pids": f"{tmp_path}/outer/own"})):
        assert default_pids_max(mounts) == 300
    (tmp_path / "outer" / "own" / "pids.max").write_text("100\n")
    assert default_pids_max(CgroupMounts(v2=f"{tmp_path}/outer/own")) == 64, "a job can still do something"


# ── where cgroups are ─────────────────────────────────────────────────────────────────────────────────────────


def mountinfo(*mounts: tuple[Path, str, str]) -> str:
    return "".join(
        f"31 23 0:28 / {point} rw,relatime shared:9 - {kind} {kind} {options}\n" for point, kind, options in mounts
    )


def made(*directories: Path) -> None:
    for directory in directories:
        directory.mkdir(parents=True, exist_ok=True)


def test_root_works_below_the_mount_point_wherever_it_was_started(tmp_path: Path) -> None:
    memory, unified = tmp_path / "memory", tmp_path / "unified"
    made(memory / "session/7", unified / "user.slice")
    text = mountinfo((memory, "cgroup", "rw,memory"), (unified, "cgroup2", "rw"))

    found = find_mounts(True, text, "4:memory:/session/7\n0::/user.slice\n")

    assert found == CgroupMounts(v2=str(unified), v1={"memory": str(memory)})


def test_a_user_works_below_the_own_group(tmp_path: Path) -> None:
    made(tmp_path / "user.slice/job")

    found = find_mounts(False, mountinfo((tmp_path, "cgroup2", "rw")), "0::/user.slice/job\n")

    assert found.v2 == str(tmp_path / "user.slice/job")


def test_a_cluster_inside_a_gq_job_works_below_the_job_even_as_root(tmp_path: Path) -> None:
    made(tmp_path / "gq/c-1/n1/7.1")

    found = find_mounts(True, mountinfo((tmp_path, "cgroup2", "rw")), "0::/gq/c-1/n1/7.1\n")

    assert found.v2 == str(tmp_path / "gq/c-1/n1/7.1")


def test_controllers_that_are_mounted_together_share_a_place(tmp_path: Path) -> None:
    place = tmp_path / "cpu,cpuacct"
    made(place)

    found = find_mounts(True, mountinfo((place, "cgroup", "rw,cpu,cpuacct")), "1:cpu,cpuacct:/\n")

    assert found.v1 == {"cpu": str(place), "cpuacct": str(place)}


def test_a_group_outside_of_what_a_container_sees_is_not_followed(tmp_path: Path) -> None:
    found = find_mounts(False, mountinfo((tmp_path, "cgroup2", "rw")), "0::/../../init\n")

    assert found.v2 == str(tmp_path)


def test_mounts_that_may_not_be_written_to_and_named_hierarchies_are_no_use(tmp_path: Path) -> None:
    text = mountinfo(
        (tmp_path / "gone", "cgroup2", "ro"), (tmp_path, "cgroup", "rw,name=systemd"), (tmp_path, "tmpfs", "rw")
    )

    assert find_mounts(True, text, "9:name=systemd:/\n0::/\n") == NOTHING


def test_a_mount_point_with_a_space_is_read_right(tmp_path: Path) -> None:
    place = tmp_path / "my groups"
    made(place)
    text = mountinfo((place, "cgroup2", "rw")).replace("my groups", "my\\040groups")

    assert find_mounts(True, text, "0::/\n").v2 == str(place)


# ── what killed daemons left ──────────────────────────────────────────────────────────────────────────────────


def test_empty_directories_of_daemons_that_were_killed_are_removed_and_no_others(tmp_path: Path) -> None:
    living, with_cell = Tree(str(tmp_path), "living", "n1"), Tree(str(tmp_path), "dead", "n2")
    living.open(lambda directory: None)
    made(tmp_path / "gq/dead/n1", tmp_path / "gq/gone/n1", Path(with_cell.path("7.1")), tmp_path / "other/n1")

    prune(str(tmp_path))

    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert left == ["gq", "gq/dead", "gq/dead/n2", "gq/dead/n2/7.1", "gq/living", "gq/living/n1", "other", "other/n1"]
    living.close()
    assert not (tmp_path / "gq/living").exists()


def test_a_directory_that_one_part_of_a_daemon_holds_is_held_though_another_lets_go(tmp_path: Path) -> None:
    one, other = Tree(str(tmp_path), "c", "n1"), Tree(str(tmp_path), "c", "n1")
    one.open(lambda directory: None)
    other.open(lambda directory: None)
    one._let_go()

    prune(str(tmp_path))
    assert (tmp_path / "gq/c/n1").exists()

    other._let_go()
    prune(str(tmp_path))
    assert not (tmp_path / "gq/c").exists()


# ── what is written ───────────────────────────────────────────────────────────────────────────────────────────


TREE = Tree("/nowhere", "c", "n1")
ENFORCERS: dict[str, tuple[Enforcer, dict[str, str]]] = {
    "cpu weight 1": (cgroup_v1.CpuWeight1(TREE), {"cpu.shares": "384"}),
    "cpu weight 2": (cgroup_v2.CpuWeight2(TREE), {"cpu.weight": "30"}),
    "cpu quota 1": (cgroup_v1.CpuQuota1(TREE), {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "300000"}),
    "cpu quota 2": (cgroup_v2.CpuQuota2(TREE), {"cpu.max": "300000 100000"}),
    "cpuset 2": (cgroup_v2.Cpuset2(TREE, FACTS), {"cpuset.cpus": "4,6,7\n"}),
    "memory 1": (
        cgroup_v1.Memory1(TREE),
        {"memory.limit_in_bytes": "67108864", "memory.memsw.limit_in_bytes": "67108864"},
    ),
    "memory 2": (cgroup_v2.Memory2(TREE), {"memory.max": "67108864", "memory.swap.max": "0", "memory.oom.group": "1"}),
    "pids": (cgroup_v1.Pids(TREE, FACTS), {"pids.max": "1000"}),
}
"""With the files of a cell of three CPUs and 64 MiB."""


@pytest.mark.parametrize("name", ENFORCERS)
def test_an_enforcer_writes_the_limits(tmp_path: Path, name: str) -> None:
    enforcer, expected = ENFORCERS[name]
    limits = CellLimits(cpus=(0, 2, 3), memory_mib=64)
    for file in expected:
        (tmp_path / file).write_text("99999999999999999" if "bytes" in file else "")

    assert enforcer.wants(limits)
    enforcer.apply(str(tmp_path), limits)

    written = {file: (tmp_path / file).read_text()[: len(text)] for file, text in expected.items()}
    assert written == expected


@pytest.mark.parametrize("name", ENFORCERS)
def test_a_file_that_the_kernel_has_not_is_an_error_with_path_and_number(tmp_path: Path, name: str) -> None:
    enforcer, _ = ENFORCERS[name]

    with pytest.raises(IsolationError) as refusal:
        enforcer.apply(str(tmp_path), CellLimits(cpus=(0,), memory_mib=64))

    assert refusal.value.errno == errno.ENOENT and refusal.value.path.startswith(str(tmp_path))


@pytest.mark.parametrize("name", sorted(set(ENFORCERS) - {"pids"}))
def test_a_cell_that_asks_for_nothing_is_not_put_into_the_tree(name: str) -> None:
    assert not ENFORCERS[name][0].wants(CellLimits())


def test_weights_stay_within_what_the_kernel_takes(tmp_path: Path) -> None:
    limits = CellLimits(cpus=tuple(range(5000)))
    weigh: tuple[tuple[Enforcer, str, str], ...] = (
        (cgroup_v1.CpuWeight1(TREE), "cpu.shares", "262144"),
        (cgroup_v2.CpuWeight2(TREE), "cpu.weight", "10000"),
    )
    for enforcer, file, most in weigh:
        (tmp_path / file).touch()
        enforcer.apply(str(tmp_path), limits)
        assert (tmp_path / file).read_text() == most


@pytest.mark.parametrize(
    ("memory", "file", "text", "was_killed"),
    [
        (cgroup_v2.Memory2(TREE), "memory.events", "low 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n", True),
        (cgroup_v2.Memory2(TREE), "memory.events", "low 0\nmax 7\noom 0\noom_kill 0\n", False),
        (cgroup_v1.Memory1(TREE), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", True),
        (cgroup_v1.Memory1(TREE), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n", False),
        (cgroup_v1.Memory1(TREE), "cgroup.procs", "", False),
    ],
)  # fmt: skip
def test_a_kill_for_memory_is_told_apart(
    tmp_path: Path, memory: MemoryEnforcer, file: str, text: str, was_killed: bool
) -> None:
    (tmp_path / file).write_text(text)

    assert memory.oom_killed(str(tmp_path)) is was_killed


def test_v2_refuses_a_memory_limit_that_would_kill_the_job(tmp_path: Path) -> None:
    (tmp_path / "memory.stat").write_text(f"anon {100 * 1024**2}\nfile 5\n")

    with pytest.raises(IsolationError, match="100 MiB are in use, more than the new limit of 64 MiB") as refusal:
        cgroup_v2.Memory2(TREE).apply(str(tmp_path), CellLimits(memory_mib=64))

    assert refusal.value.errno == errno.EBUSY


def test_the_peak_of_memory_is_0_where_the_kernel_does_not_say(tmp_path: Path) -> None:
    assert cgroup_v2.Memory2(TREE).peak_mib(str(tmp_path)) == 0 == cgroup_v1.Memory1(TREE).peak_mib(str(tmp_path))
    (tmp_path / "memory.peak").write_text(f"{7 * 1024**2}\n")
    assert cgroup_v2.Memory2(TREE).peak_mib(str(tmp_path)) == 7


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_device_is_allowed_under_any_of_its_paths() -> None:
    number, other = DeviceNumber("c", 195, 0), DeviceNumber("c", 195, 1)
    facts = NodeFacts(guarded={"/dev/nvidia0": number, "/dev/dri/gpu0": number, "/dev/nvidia1": other})

    assert facts.denied(CellLimits(devices=("/dev/dri/gpu0",))) == (other,)
    assert facts.denied(CellLimits()) == (number, other)


def test_what_comes_with_any_gpu_is_denied_to_who_has_none() -> None:
    gpu, other, control = DeviceNumber("c", 195, 0), DeviceNumber("c", 195, 1), DeviceNumber("c", 195, 255)
    facts = NodeFacts(guarded={"/dev/nvidia0": gpu, "/dev/nvidia1": other}, control=(control,))

    assert facts.denied(CellLimits(devices=("/dev/nvidia0",))) == (other,)
    assert facts.denied(CellLimits()) == (gpu, other, control) == facts.every_device()
    assert NodeFacts(control=(control,)).denied(CellLimits(devices=("/dev/nvidia0",))) == (control,)


def test_a_device_of_nvidia_has_a_number_before_its_node_is_there() -> None:
    missing = next(minor for minor in range(200, 1000) if not Path(f"/dev/nvidia{minor}").exists())

    assert device_number(f"/dev/nvidia{missing}") == DeviceNumber("c", 195, missing)


def test_a_device_that_is_not_there_cannot_be_guarded(tmp_path: Path) -> None:
    with pytest.raises(IsolationError) as refusal:
        device_number(str(tmp_path / "gpu0"))

    assert refusal.value.errno == errno.ENOENT


def test_a_device_number_is_the_kernels() -> None:
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    assert device_number("/dev/null") == DeviceNumber("c", 1, 3)


Access = tuple[int, int, int]


def decide(program: bytes, access: Access) -> int:
    """Runs the few instructions that a filter uses, as the kernel would."""
    context = struct.pack("=III", *access)
    registers, at = [0] * 11, 0
    while True:
        code, operands, offset, value = struct.unpack_from("=BBhi", program, at * 8)
        to, source, at = operands & 15, operands >> 4, at + 1
        match code:
            case 0x61:
                assert source == 1
                registers[to] = struct.unpack_from("=I", context, offset)[0]
            case 0x57:
                registers[to] &= value
            case 0x55:
                at += offset if registers[to] != value else 0
            case 0xB7:
                registers[to] = value
            case 0x95:
                return registers[0]
            case _:
                raise AssertionError(f"instruction {code:#x}")


@pytest.mark.parametrize(
    ("access", "is_allowed"),
    [
        ((2 << 16 | 2, 195, 0), False),
        ((1 << 16 | 2, 195, 0), False),
        ((2 << 16 | 2, 195, 1), True),
        ((6 << 16 | 2, 195, 3), False),
        ((6 << 16 | 2, 195, 255), True),
        ((6 << 16 | 1, 195, 0), True),
        ((6 << 16 | 1, 8, 0), False),
        ((6 << 16 | 2, 1, 3), True),
    ],
)
def test_a_filter_denies_what_is_listed_and_nothing_else(access: Access, is_allowed: bool) -> None:
    denied = [DeviceNumber("c", 195, 0), DeviceNumber("c", 195, 3), DeviceNumber("b", 8, 0)]

    assert decide(filter_program(denied), access) == is_allowed
    assert decide(filter_program([]), access) == 1
