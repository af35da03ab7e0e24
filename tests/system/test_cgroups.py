"""Isolation by the kernel's own cgroups, v1 and v2, with real processes.  Each test has a node of its own."""

from __future__ import annotations

import errno
import os
import signal
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from gqnode.isolation import cgroup_v2, killer
from gqnode.isolation.cell import Cell
from gqnode.isolation.cells import Cells
from gqnode.isolation.choose import choose_isolation
from gqnode.isolation.device_filter import attach_filter
from gqnode.isolation.mounts import own_mounts
from gqnode.isolation.protocol import CellLimits, IsolationError
from gqnode.isolation.tree import process_ids, remove_directories
from tests.requires import needs_cgroup1, needs_cgroup2
from tests.system.cell_processes import ended, eventually, left_behind, process_is_alive, python, run, start

ONE_CPU = CellLimits(cpus=(0,))
SLEEP = ("sleep", "1000")
OPEN_DEVICE = """
import errno, os, sys
try:
    os.open(sys.argv[1], os.O_RDWR)
except OSError as error:
    print(errno.errorcode[error.errno])
else:
    print("opened")
"""
EAT_MEMORY = """
import sys
eaten = []
for _ in range(int(sys.argv[1])):
    eaten.append(bytearray(b"x" * 2**20))
print("eaten", flush=True)
"""
MULTIPLY = """
import errno, os, signal
children = 0
try:
    while os.fork():
        children += 1
except OSError as error:
    print(errno.errorcode[error.errno], "after", children, flush=True)
signal.pause()
"""
DETACH = """
import os, sys
for attempt in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        print(os.getpid(), flush=True)
        os.execvp("sleep", ["sleep", "1000"])
    os.wait()
"""


class Choose(Protocol):
    def __call__(
        self,
        *,
        cpu_ids: tuple[int, ...] | None = None,
        guarded: tuple[str, ...] = (),
        control: tuple[str, ...] = (),
        asked: dict[str, str] | None = None,
    ) -> Cells: ...


@pytest.fixture
def choose(tmp_path: Path) -> Iterator[Choose]:
    with ExitStack() as stack:

        def make(
            *,
            cpu_ids: tuple[int, ...] | None = None,
            guarded: tuple[str, ...] = (),
            control: tuple[str, ...] = (),
            asked: dict[str, str] | None = None,
            max_processes: int | None = None,
        ) -> Cells:
            chosen = choose_isolation(
                max_processes=max_processes,
                cluster="test",
                node="n1",
                state_dir=str(tmp_path),
                cpu_ids=cpu_ids,
                guarded=guarded,
                control=control,
                asked=asked,
            )
            return stack.enter_context(ended(chosen))

        yield make


by_every_version = pytest.mark.parametrize(
    "version", [pytest.param("cgroup1", marks=needs_cgroup1), pytest.param("cgroup2", marks=needs_cgroup2)]
)


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def gpu_nodes(tmp_path: Path) -> tuple[str, ...]:
    """Nodes of three GPUs that no machine has: opening an allowed one says ENXIO, a denied one EPERM."""
    paths = tuple(str(tmp_path / f"gpu{minor}") for minor in range(3))
    for minor, path in enumerate(paths):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(195, 240 + minor))
    return paths


def opened(cell: Cell, path: str) -> str:
    return run(cell, sys.executable, "-c", OPEN_DEVICE, path)[1].strip()


@by_every_version
def test_only_the_granted_gpu_can_be_opened(choose: Choose, gpu_nodes: tuple[str, ...], version: str) -> None:
    isolation = choose(guarded=gpu_nodes, asked={"devices": version})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), devices=gpu_nodes[1:2]))

    assert [opened(cell, path) for path in gpu_nodes] == ["EPERM", "ENXIO", "EPERM"]
    assert opened(cell, "/dev/null") == "opened" and opened(cell, "/dev/zero") == "opened"


@by_every_version
def test_a_job_without_gpus_opens_none_and_cannot_make_a_node_of_its_own(
    choose: Choose, gpu_nodes: tuple[str, ...], tmp_path: Path, version: str
) -> None:
    cell = choose(guarded=gpu_nodes, asked={"devices": version}).make("1.1", ONE_CPU)

    assert {opened(cell, path) for path in gpu_nodes} == {"EPERM"}
    assert run(cell, "mknod", str(tmp_path / "again"), "c", "195", "240")[0] != 0


@by_every_version
def test_what_comes_with_any_gpu_is_seen_by_jobs_with_a_gpu_only(
    choose: Choose, gpu_nodes: tuple[str, ...], version: str
) -> None:
    *gpus, control = gpu_nodes
    isolation = choose(guarded=tuple(gpus), control=(control,), asked={"devices": version})
    with_gpu = isolation.make("1.1", CellLimits(cpus=(0,), devices=(gpus[0],)))
    without = isolation.make("2.1", ONE_CPU)

    assert [opened(with_gpu, path) for path in gpu_nodes] == ["ENXIO", "EPERM", "ENXIO"]
    assert [opened(without, path) for path in gpu_nodes] == ["EPERM", "EPERM", "EPERM"]


@by_every_version
def test_granted_gpus_can_change_while_the_job_runs(choose: Choose, gpu_nodes: tuple[str, ...], version: str) -> None:
    isolation = choose(guarded=gpu_nodes, asked={"devices": version})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), devices=gpu_nodes[:1]))

    for _ in range(3):
        isolation.set_limits(cell, CellLimits(cpus=(0,), devices=gpu_nodes[1:]))

    assert [opened(cell, path) for path in gpu_nodes] == ["EPERM", "ENXIO", "ENXIO"]


@by_every_version
def test_cells_guard_their_own_gpus_from_each_other(choose: Choose, gpu_nodes: tuple[str, ...], version: str) -> None:
    isolation = choose(guarded=gpu_nodes, asked={"devices": version})
    first, second = (isolation.make(f"{job}.1", CellLimits(cpus=(0,), devices=(gpu_nodes[job],))) for job in range(2))

    assert [opened(first, gpu_nodes[0]), opened(first, gpu_nodes[1])] == ["ENXIO", "EPERM"]
    assert [opened(second, gpu_nodes[0]), opened(second, gpu_nodes[1])] == ["EPERM", "ENXIO"]


@by_every_version
def test_a_step_may_open_what_its_job_may(choose: Choose, gpu_nodes: tuple[str, ...], version: str) -> None:
    isolation = choose(guarded=gpu_nodes, asked={"devices": version})
    step = isolation.make_step(isolation.make("1.1", CellLimits(cpus=(0,), devices=gpu_nodes[:1])), 0)

    assert [opened(step, path) for path in gpu_nodes[:2]] == ["ENXIO", "EPERM"]


@needs_cgroup2
def test_a_path_that_is_no_device_cannot_be_guarded(choose: Choose, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(IsolationError, match="is not a device node"):
        choose(guarded=(str(tmp_path / "file"),))


# ── memory ────────────────────────────────────────────────────────────────────────────────────────────────────


@needs_cgroup1
def test_a_job_past_its_memory_is_killed_and_its_neighbour_lives(choose: Choose) -> None:
    isolation = choose(asked={"memory": "cgroup1"})
    greedy = isolation.make("1.1", CellLimits(cpus=(0,), memory_mib=32))
    modest = isolation.make("2.1", CellLimits(cpus=(0,), memory_mib=128))
    neighbour = start(modest, *SLEEP)

    process = python(greedy, EAT_MEMORY, "200")
    process.communicate(timeout=20)

    assert process.returncode == -signal.SIGKILL
    assert isolation.oom_killed(greedy) and not isolation.oom_killed(modest)
    assert neighbour.poll() is None
    isolation.kill(modest)
    assert neighbour.wait(20) == -signal.SIGKILL and not isolation.oom_killed(modest)


@needs_cgroup1
def test_memory_within_the_limit_is_given_and_its_peak_is_known(choose: Choose) -> None:
    isolation = choose(asked={"memory": "cgroup1"})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), memory_mib=100))

    assert run(cell, sys.executable, "-c", EAT_MEMORY, "40") == (0, "eaten\n")

    usage = isolation.usage(cell)
    assert usage is not None and 40 <= usage.max_rss_mib <= 100
    assert not isolation.oom_killed(cell)


@needs_cgroup1
def test_a_memory_limit_can_be_raised_and_lowered(choose: Choose) -> None:
    isolation = choose(asked={"memory": "cgroup1"})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), memory_mib=32))

    isolation.set_limits(cell, CellLimits(cpus=(0,), memory_mib=160))
    assert run(cell, sys.executable, "-c", EAT_MEMORY, "80") == (0, "eaten\n")
    isolation.set_limits(cell, CellLimits(cpus=(0,), memory_mib=16))
    assert run(cell, sys.executable, "-c", EAT_MEMORY, "80")[0] == -signal.SIGKILL


@needs_cgroup1
def test_a_memory_limit_below_what_is_in_use_is_refused(choose: Choose) -> None:
    isolation = choose(asked={"memory": "cgroup1"})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), memory_mib=200))
    process = python(cell, f"{EAT_MEMORY}\nimport signal\nsignal.pause()", "100")
    assert process.stdout is not None and process.stdout.readline() == "eaten\n"

    with pytest.raises(IsolationError) as refusal:
        isolation.set_limits(cell, CellLimits(cpus=(0,), memory_mib=20))

    assert refusal.value.errno == errno.EBUSY and "1.1" in refusal.value.path
    assert process.poll() is None
    isolation.kill(cell)
    process.communicate(timeout=20)


@needs_cgroup1
def test_a_limit_on_memory_that_was_never_counted_is_refused(choose: Choose) -> None:
    isolation = choose(asked={"memory": "cgroup1"})
    cell = isolation.make("1.1", ONE_CPU)

    with pytest.raises(IsolationError, match="made without this limit"):
        isolation.set_limits(cell, CellLimits(cpus=(0,), memory_mib=64))


# ── CPUs and processes ────────────────────────────────────────────────────────────────────────────────────────


@needs_cgroup1
def test_a_job_runs_on_its_own_cpus_only(choose: Choose) -> None:
    last = sorted(os.sched_getaffinity(0))[-1]
    isolation = choose(cpu_ids=(last,), asked={"cpuset": "cgroup1"})
    cell = isolation.make("1.1", ONE_CPU)

    affinity = "import os; os.sched_setaffinity(0, range(os.cpu_count())); print(os.sched_getaffinity(0))"

    assert run(cell, sys.executable, "-c", affinity) == (0, f"{ {last} }\n")
    assert isolation.levels.cpuset == "cgroup1" == isolation.levels.cpu


@needs_cgroup1
def test_a_cpu_that_the_machine_has_not_is_a_refusal_that_leaves_nothing(choose: Choose) -> None:
    isolation = choose(cpu_ids=(0, 4095), asked={"cpuset": "cgroup1"})

    with pytest.raises(IsolationError, match=r"cpuset\.cpus") as refusal:
        isolation.make("1.1", CellLimits(cpus=(1,)))

    assert refusal.value.errno in (errno.EINVAL, errno.EACCES, errno.ERANGE)
    assert isolation.find("1.1") is None


@needs_cgroup1
def test_cells_of_pretended_cpus_weigh_as_many_as_they_have(choose: Choose) -> None:
    isolation = choose(asked={"cpu": "weight"})
    isolation.make("1.1", CellLimits(cpus=tuple(range(1))))
    isolation.make("2.1", CellLimits(cpus=tuple(range(48))))

    assert isolation.levels.cpu == "weight"
    assert weight(isolation, "2.1") == 48 * weight(isolation, "1.1")


def weight(isolation: Cells, name: str) -> int:
    cell = isolation.find(name)
    assert cell is not None
    shares = [Path(path).with_name("cpu.shares") for path in cell.procs_files]
    return next(int(path.read_text()) for path in shares if path.exists())


@needs_cgroup1
def test_without_pinning_cpus_are_a_quota(choose: Choose) -> None:
    isolation = choose(cpu_ids=(0,), asked={"cpuset": "none", "cpu": "cgroup1"})
    cell = isolation.make("1.1", ONE_CPU)

    quota, period = (
        next(int(file.read_text()) for path in cell.procs_files if (file := Path(path).with_name(name)).exists())
        for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    )
    assert quota == period
    assert run(cell, "true") == (0, "")


@needs_cgroup1
def test_a_fork_bomb_meets_its_limit_and_can_be_ended(choose: Choose) -> None:
    isolation = choose(asked={"pids": "cgroup1"}, max_processes=20)
    cell = isolation.make("1.1", ONE_CPU)

    process = python(cell, MULTIPLY)
    assert process.stdout is not None and process.stdout.readline() == "EAGAIN after 19\n"

    isolation.kill(cell)
    eventually(lambda: isolation.is_empty(cell), "the bomb is gone")
    assert process.wait(20) == -signal.SIGKILL


@needs_cgroup2
def test_cpu_time_is_counted_and_stays_known_until_the_cell_is_removed(choose: Choose) -> None:
    isolation = choose()
    cell = isolation.make("1.1", ONE_CPU)

    run(cell, sys.executable, "-c", "import time\nwhile time.process_time() < 0.2: pass")

    usage = isolation.usage(cell)
    assert usage is not None and 0.15 < usage.user_cpu_s + usage.system_cpu_s < 5
    isolation.remove(cell)
    assert isolation.usage(cell) is None


# ── ending ────────────────────────────────────────────────────────────────────────────────────────────────────


@by_every_version
def test_processes_that_left_their_session_and_parent_are_killed(choose: Choose, version: str) -> None:
    isolation = choose(asked={"kill": version})
    cell = isolation.make("1.1", ONE_CPU)
    pids = [int(line) for line in run_detaching(cell)]
    assert len(pids) == 3 and all(map(process_is_alive, pids)) and isolation.is_empty(cell) is False

    assert isolation.kill(cell)

    eventually(lambda: isolation.is_empty(cell), "the cell is empty")
    eventually(lambda: not any(map(process_is_alive, pids)), "all processes are gone")


def run_detaching(cell: Cell) -> list[str]:
    process = python(cell, DETACH)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]  # not to the end: the detached keep the pipe open
    process.wait(20)
    process.stdout.close()
    return lines


@by_every_version
def test_processes_that_fork_while_they_are_killed_are_all_gone(choose: Choose, version: str) -> None:
    isolation = choose(asked={"kill": version})
    cell = isolation.make("1.1", ONE_CPU)
    storm = "import os, time\nwhile True:\n    if os.fork():\n        time.sleep(0.001)\n        os._exit(0)\n"
    for _ in range(4):
        python(cell, storm).wait(20)

    isolation.kill(cell)

    eventually(lambda: isolation.is_empty(cell), "the storm is over")
    isolation.remove(cell)
    assert isolation.find("1.1") is None


@by_every_version
def test_a_step_ends_alone_and_with_its_job(choose: Choose, version: str) -> None:
    isolation = choose(asked={"kill": version})
    job = isolation.make("1.1", ONE_CPU)
    first, second = isolation.make_step(job, 0), isolation.make_step(job, 1)
    script, task, other = start(job, *SLEEP), start(first, *SLEEP), start(second, *SLEEP)

    isolation.kill(first)
    assert task.wait(20) == -signal.SIGKILL
    eventually(lambda: isolation.is_empty(first), "the step is empty")
    assert script.poll() is None and other.poll() is None and isolation.is_empty(job) is False
    isolation.remove(first)

    isolation.kill(job)
    assert script.wait(20) == other.wait(20) == -signal.SIGKILL
    eventually(lambda: isolation.is_empty(job), "the job is empty")
    isolation.remove(job)
    assert isolation.find("1.1") is None


@by_every_version
def test_a_cell_with_processes_is_not_removed(choose: Choose, version: str) -> None:
    isolation = choose(asked={"kill": version})
    cell = isolation.make("1.1", ONE_CPU)
    process = start(cell, *SLEEP)

    with pytest.raises(IsolationError) as refusal:
        isolation.remove(cell)

    assert refusal.value.errno == errno.EBUSY
    assert process.poll() is None and isolation.kill(cell)
    assert process.wait(20) == -signal.SIGKILL


@by_every_version
def test_every_call_may_be_repeated(choose: Choose, version: str) -> None:
    isolation = choose(asked={"kill": version})
    limits = CellLimits(cpus=(0,), memory_mib=64)

    cell = isolation.make("1.1", limits)
    assert isolation.make("1.1", limits) == cell == isolation.find("1.1")
    assert isolation.make_step(cell, 0) == isolation.make_step(cell, 0)
    for _ in range(2):
        assert isolation.kill(cell)
        isolation.remove(cell)
    assert isolation.is_empty(cell) and isolation.find("1.1") is None


@by_every_version
def test_cells_of_dead_attempts_are_cleared_and_living_ones_kept(choose: Choose, version: str) -> None:
    before = choose(asked={"kill": version})
    stale, living = before.make("1.1", ONE_CPU), before.make("1.2", ONE_CPU)
    before.make_step(stale, 0)
    dead, alive = start(stale, *SLEEP), start(living, *SLEEP)

    after = choose(asked={"kill": version})
    assert after.clear(keep={"1.2"}) == ("1.1",)

    assert dead.wait(20) == -signal.SIGKILL and alive.poll() is None
    assert after.find("1.1") is None and after.find("1.2") == living
    after.kill(living)
    assert alive.wait(20) == -signal.SIGKILL


@needs_cgroup1
def test_stale_cells_are_cleared_without_a_function_that_kills(choose: Choose) -> None:
    isolation = choose(asked={"kill": "subreaper", "pids": "cgroup1", "devices": "environment"})
    cell = isolation.make("1.1", ONE_CPU)
    process = start(cell, *SLEEP)

    assert not isolation.kill(cell)
    assert isolation.is_empty(cell) is False
    assert isolation.clear(keep=()) == ("1.1",)
    assert process.wait(20) == -signal.SIGKILL


@by_every_version
def test_nothing_is_left_behind(choose: Choose, version: str, gpu_nodes: tuple[str, ...]) -> None:
    isolation = choose(guarded=gpu_nodes, asked={"kill": version, "devices": version})
    cell = isolation.make("1.1", CellLimits(cpus=(0,), memory_mib=64))
    directories = [tree.directory for tree in isolation.trees()]
    assert left_behind(directories) == directories

    isolation.remove(cell)
    isolation.close()

    assert left_behind([*directories, *(str(Path(path).parent) for path in directories)]) == []


@needs_cgroup2
def test_clusters_of_one_name_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one, other = (choose_isolation(cluster="test", node="n1", state_dir=str(tmp_path / name)) for name in ("a", "b"))
    with ended(one), ended(other):
        one.make("1.1", ONE_CPU)

        assert other.find("1.1") is None
        assert other.clear(keep=()) == ()
        assert one.find("1.1") is not None


@needs_cgroup2
def test_a_cluster_inside_a_job_ends_with_the_job(choose: Choose, tmp_path: Path) -> None:
    outer = choose(asked={"kill": "cgroup2"})
    cell = outer.make("1.1", ONE_CPU)
    inner = (
        "import sys; from gqnode.isolation.choose import choose_isolation\n"
        "only_kill = dict(cpu='none', memory='none', devices='environment', pids='none', kill='cgroup2')\n"
        "isolation = choose_isolation(cluster='inner', node='n1', state_dir=sys.argv[1], asked=only_kill)\n"
        "print(isolation.trees()[0].directory)"
    )

    code, directory = run(cell, sys.executable, "-c", inner, str(tmp_path))

    job = str(Path(cell.procs_files[0]).parent)
    assert code == 0 and directory.startswith(job)
    outer.remove(cell)
    assert left_behind([job]) == []


@needs_cgroup2
def test_mounts_of_this_machine_are_found() -> None:
    v2 = own_mounts().v2
    assert v2 is not None and Path(v2, "cgroup.procs").exists()


# ── v2: controllers, and kernels without cgroup.kill ──────────────────────────────────────────────────────────


@pytest.fixture
def spare_controller(monkeypatch: pytest.MonkeyPatch) -> str:
    """A controller that no v1 hierarchy has taken, to be passed down in place of the usual ones."""
    offered = Path(str(own_mounts().v2), "cgroup.controllers").read_text().split()
    if not offered:
        pytest.skip("v2 has no controller here")
    monkeypatch.setattr(cgroup_v2, "CONTROLLERS", (offered[0], "nonesuch"))
    return offered[0]


@needs_cgroup2
def test_controllers_are_passed_down_to_the_cells(choose: Choose, spare_controller: str) -> None:
    cell = choose(asked={"kill": "cgroup2"}).make("1.1", ONE_CPU)

    assert Path(cell.procs_files[0]).with_name("cgroup.controllers").read_text().split() == [spare_controller]
    assert run(cell, "true") == (0, "")


@pytest.fixture
def delegated() -> Iterator[Cell]:
    """A group of its own, as a user's session or a service with Delegate=yes has."""
    directory = Path(str(own_mounts().v2), f"gq-test-{os.getpid()}")
    directory.mkdir()
    try:
        yield Cell("delegated", (f"{directory}/cgroup.procs",))
    finally:
        eventually(lambda: not process_ids(str(directory)), "the delegated group is empty")
        remove_directories(str(directory))


DELEGATED = """
import sys
from pathlib import Path
from gqnode.isolation import cgroup_v2
from gqnode.isolation.mounts import find_mounts
from gqnode.isolation.tree import Tree
cgroup_v2.CONTROLLERS = (sys.argv[1],)
own = Path("/proc/self/cgroup").read_text()
tree = Tree(find_mounts(False, Path("/proc/self/mountinfo").read_text(), own).v2, "c", "n1")
cgroup_v2.open_tree(tree)
print(Path("/proc/self/cgroup").read_text().splitlines()[-1].rsplit("/")[-1])
print(Path(tree.directory, "cgroup.subtree_control").read_text().strip())
"""


@needs_cgroup2
def test_in_a_delegated_group_the_daemon_moves_aside_so_that_controllers_can_be_passed_down(
    delegated: Cell, spare_controller: str
) -> None:
    assert run(delegated, sys.executable, "-c", DELEGATED, spare_controller) == (0, f"gq-daemon\n{spare_controller}\n")


@needs_cgroup2
def test_in_a_group_with_others_processes_the_daemon_stays_and_does_without_controllers(
    delegated: Cell, spare_controller: str
) -> None:
    other = start(delegated, *SLEEP)
    try:
        code, output = run(delegated, sys.executable, "-c", DELEGATED, spare_controller)
    finally:
        other.kill()
        other.wait(20)

    group = Path(delegated.procs_files[0]).parent.name
    assert (code, output) == (0, f"{group}\n\n")


@needs_cgroup2
def test_a_kernel_without_cgroup_kill_freezes_and_kills(choose: Choose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killer, "exists", lambda path: not path.endswith("cgroup.kill") and Path(path).exists())
    isolation = choose(asked={"kill": "cgroup2"})
    cell = isolation.make("1.1", ONE_CPU)
    step = isolation.make_step(cell, 0)
    processes = [start(cell, *SLEEP), start(step, *SLEEP)]

    isolation.kill(cell)

    assert [process.wait(20) for process in processes] == [-signal.SIGKILL] * 2
    eventually(lambda: isolation.is_empty(cell), "the cell is empty")
    assert run(cell, "true") == (0, ""), "the cell is not left frozen"


@needs_cgroup2
def test_a_filter_that_the_kernel_refuses_is_an_error_with_its_number(tmp_path: Path) -> None:
    with pytest.raises(IsolationError) as refusal:
        attach_filter(str(tmp_path), ())

    assert refusal.value.errno == errno.EBADF and refusal.value.path == str(tmp_path)
