"""The checks of `gq doctor` on the machine: disk space, control groups, GPUs, and the place of home directories."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from gq.cli.doctor.private_checks import CheckResult, Verdict
from gq.cli.doctor.system import Host, restart_command
from gq.config.config import DEFAULT
from gq.host import job_tmp
from gq.host.interpreter import isolated_python
from gq.host.service import NODE
from gq.model.node import KERNEL_FUNCTIONS, NodeInfo
from gq.units import format_memory

_LOW_DISK_MIB = 1024
_NO_DISK_MIB = 100
_SMALL_SHM_MIB = 1024
_NO_SHM_MIB = 80
"""64 MiB is what containers have unless told: loaders of training data and NCCL fail in it."""
_NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "afs", "orangefs", "pvfs2",
    "wekafs", "virtiofs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "ocfs2", "gfs2",
})  # fmt: skip
"""Types of file systems that several hosts may see."""
_CONTROLLERS = {"cpu": "cpu", "cpuset": "cpuset", "memory": "memory", "pids": "pids"}
"""Function of isolation → control group controller that it needs."""
_FULL = frozenset({"cgroup2", "cgroup1", "weight"})
_GPU_S = 5.0


def disk(host: Host) -> Iterator[CheckResult]:
    path = Path(host.location.state_dir)
    if not path.exists():
        return
    free_mib = shutil.disk_usage(path).free // 1024**2
    message = f"{format_memory(free_mib)} free under {path}"
    fix = f"make room: du -xh {path} | sort -h | tail"
    if free_mib < _NO_DISK_MIB:
        yield CheckResult("disk", Verdict.FAIL, f"{message}: daemons stop when they cannot write", fix)
    elif free_mib < _LOW_DISK_MIB:
        yield CheckResult("disk", Verdict.WARN, message, fix)
    else:
        yield CheckResult("disk", Verdict.OK, message)


def shared_memory(host: Host) -> Iterator[CheckResult]:
    if host.node is None or host.node.login:
        return
    path = Path("/dev/shm")
    grow = f"mount -o remount,size={max(1, _memory_mib() // 2)}M {path}"
    if not path.is_dir():
        yield CheckResult(
            "shm", Verdict.FAIL, f"there is no {path}", f"mkdir -m 1777 {path} && mount -t tmpfs shm {path}"
        )
        return
    usage = shutil.disk_usage(path)
    size_mib, free_mib = usage.total // 1024**2, usage.free // 1024**2
    if not path.stat().st_mode & 0o1002:
        yield CheckResult("shm", Verdict.FAIL, f"users cannot write to {path}", f"chmod 1777 {path}")
    elif size_mib < _NO_SHM_MIB:
        message = f"{path} has {format_memory(size_mib)}: what trains with several processes fails in it"
        yield CheckResult("shm", Verdict.FAIL, message, grow)
    elif free_mib < _NO_SHM_MIB:
        yield CheckResult("shm", Verdict.FAIL, f"{path} is full", f"see what is left over there: ls -lS {path}")
    elif size_mib < _SMALL_SHM_MIB:
        yield CheckResult("shm", Verdict.WARN, f"{path} has only {format_memory(size_mib)}", grow)
    else:
        yield CheckResult("shm", Verdict.OK, f"{path} has {format_memory(size_mib)}, {format_memory(free_mib)} free")


def _memory_mib() -> int:
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return pages * size // 1024**2


# ── homes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def home(host: Host) -> Iterator[CheckResult]:
    """Whether jobs may find their files on other hosts; nobody can tell from one host what others have mounted."""
    if host.config is None or (len({node.controller for node in host.config.nodes}) < 2 and not host.is_remote_node):
        return
    for path in _homes():
        where, kind, source = mount_of(path)
        if kind in _NETWORK:
            message = f"{path} is on {kind} from {source}; other nodes must have it mounted at {where}, too"
        else:
            message = (
                f"{path} is on a disk of this host ({kind}): other hosts do not see it. Jobs find files only where "
                "they are; gqlog fetches their output from the node"
            )
        yield CheckResult("home", Verdict.OK, message)


def _homes() -> list[str]:
    """The caller's, and where users' are."""
    own = os.path.expanduser("~")  # noqa: PTH111 - a text is wanted
    return [path for path in dict.fromkeys(("/home", own)) if Path(path).is_dir()]


def mount_of(path: str) -> tuple[str, str, str]:
    """(mount point, type, source) of the file system that a path is on."""
    real = os.path.realpath(path)
    best = ("/", "?", "?")
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape")
        kind, source = after.split()[:2]
        if (real == point or real.startswith(point.rstrip("/") + "/")) and len(point) >= len(best[0]):
            best = (point, kind, source)
    return best


# ── isolation ─────────────────────────────────────────────────────────────────────────────────────────────────


def isolation(host: Host) -> Iterator[CheckResult]:
    """Report functions that the node enforces weakly, and why; without the controller, what the kernel offers."""
    if host.node is None or host.node.login:
        return
    node = _own_info(host)
    if node is None:
        yield from _offered()
        return
    yield CheckResult("isolation", Verdict.OK, node.isolation.summary())
    for function in KERNEL_FUNCTIONS:
        level = getattr(node.isolation, function)
        if level in _FULL or (function == "cpuset" and node.isolation.cpu == "weight"):
            continue
        asked = host.node.isolation.get(function)
        if asked is not None:
            message = f"{function} is `{level}` because [[node]] isolation in gq.toml says {function} = '{asked}'"
            fix = f"take {function} out of isolation in {host.location.config_path}; {restart_command(host, NODE)}"
        else:
            message, fix = _why_weak(host, function, level)
        yield CheckResult("isolation", Verdict.WARN, message, fix)


def _offered() -> Iterator[CheckResult]:
    v1 = {name for _, kind, options in _cgroup_mounts() if kind.startswith("cgroup ") for name in options.split(",")}
    missing = [name for name in _CONTROLLERS if name not in v1 and name not in _v2_controllers()]
    if missing:
        fix = f"boot with systemd.unified_cgroup_hierarchy=1 cgroup_enable={missing[0]}"
        yield CheckResult("isolation", Verdict.WARN, f"the kernel offers no controller for {', '.join(missing)}", fix)
    else:
        message = "the kernel offers control groups for all; `gqinfo -N` on the controller shows what is enforced"
        yield CheckResult("isolation", Verdict.OK, message)


def _own_info(host: Host) -> NodeInfo | None:
    if host.node is None or host.answer is None:
        return None
    return host.answer.nodes.get(host.node.name)


def _why_weak(host: Host, function: str, level: str) -> tuple[str, str]:
    """Return why control groups do not enforce this function, and the fix."""
    mounted = {kind: options for _, kind, options in _cgroup_mounts()}
    head = f"{function} is only `{level}`"
    running = host.process(NODE)
    if not mounted:
        return f"{head}: no control groups are mounted", "mount -t cgroup2 none /sys/fs/cgroup"
    if running is not None and _uid_of(running.pid) != 0:
        fix = "run gqnode as root, or as a user's service with Delegate=yes"
        return f"{head}: gqnode is not root and has no delegated control group", fix
    wanted = _CONTROLLERS.get(function)
    if wanted is not None and wanted not in _v2_controllers() and not any(wanted in one for one in mounted.values()):
        fix = f"boot with systemd.unified_cgroup_hierarchy=1 cgroup_enable={wanted}"
        return f"{head}: the kernel offers no `{wanted}` controller in v2 ({_v2_words()}) nor in v1", fix
    fix = f"systemctl cat {NODE} | grep Delegate; the log of gqnode says at its start what it could not have"
    return f"{head}: gqnode could not get the controller", fix


def _cgroup_mounts() -> list[tuple[str, str, str]]:
    """(mount point, type, options)"""
    lines = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [(point, f"{kind} {point}", options) for _, point, kind, options, *_ in lines if kind.startswith("cgroup")]


def _v2_controllers() -> list[str]:
    for point, kind, _ in _cgroup_mounts():
        if kind.startswith("cgroup2"):
            try:
                return Path(point, "cgroup.controllers").read_text().split()
            except OSError:
                return []
    return []


def _v2_words() -> str:
    return " ".join(_v2_controllers()) or "which has none"


def _uid_of(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return 0


# ── what jobs leave ───────────────────────────────────────────────────────────────────────────────────────────


def leftovers(host: Host) -> Iterator[CheckResult]:
    """Whether the next job finds in /tmp and /dev/shm what the last one left there."""
    if host.config is None or host.node is None or host.node.login:
        return
    path, restart = host.location.config_path, restart_command(host, NODE)
    is_by_hand = host.config.origin(f"node.{host.node.name}.private_tmp") != DEFAULT
    why = job_tmp.why_not(host.location.state_dir) if host.is_root else ""
    info = _own_info(host)
    if host.node.private_tmp and why:
        fix = f"sed -i 's/^private_tmp = true/private_tmp = false/' {path}; {restart}"
        yield CheckResult("tmp", Verdict.FAIL, f"{path} says private_tmp = true, and gqnode cannot start: {why}", fix)
    elif host.node.private_tmp and info is not None and info.isolation.tmp == "shared":
        message = f"{path} says private_tmp = true, and the gqnode that runs was started before it did"
        yield CheckResult("tmp", Verdict.WARN, message, restart)
    elif host.node.private_tmp:
        yield CheckResult("tmp", Verdict.OK, "each job has a /tmp and a /dev/shm of its own, emptied when it ends")
    elif is_by_hand or why:
        words = f": {why}" if why else f", as {path} says"
        yield CheckResult("tmp", Verdict.OK, f"jobs share /tmp and /dev/shm{words}")
    else:
        message = "jobs share /tmp and /dev/shm: what one leaves there, or fills, the next one finds"
        name = host.node.name.replace(".", "[.]")
        edit = rf"""sed -i '/^\[\[node]]/,$ s/^name *= *"{name}".*/&\nprivate_tmp = true/' {path}"""
        yield CheckResult("tmp", Verdict.WARN, message, f"{edit}; {restart}")


# ── GPUs ──────────────────────────────────────────────────────────────────────────────────────────────────────


def gpus(host: Host) -> Iterator[CheckResult]:
    """NVML's library, the kernel's module and the device nodes belong together."""
    if host.node is None or host.node.login:
        return
    if host.node.fake_gpus:
        yield CheckResult("gpus", Verdict.OK, f"{len(host.node.fake_gpus)} pretended by gq.toml")
        return
    if host.node.gpus == ():
        yield CheckResult("gpus", Verdict.OK, "none wanted: gq.toml says gpus = []")
        return
    on_bus = _nvidia_on_bus()
    nodes = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name[6:].isdecimal()]
    if not on_bus and not Path("/dev/nvidiactl").exists():
        yield CheckResult("gpus", Verdict.OK, "no NVIDIA GPU in this machine")
    elif not Path("/proc/driver/nvidia/version").exists():
        message = f"{on_bus} NVIDIA GPUs on the bus, and no driver is loaded"
        yield CheckResult("gpus", Verdict.FAIL, message, "modprobe nvidia")
    elif len(nodes) < on_bus:
        message = f"{on_bus} GPUs, but {len(nodes)} device nodes /dev/nvidia*"
        fix = f"for i in $(seq 0 {on_bus - 1}); do nvidia-modprobe -u -c=$i; done"
        yield CheckResult("gpus", Verdict.FAIL, message, fix)
    else:
        yield _nvml(host)


def _nvidia_on_bus() -> int:
    """Return the number of NVIDIA display and 3D controllers that /sys lists."""
    found = 0
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            is_nvidia = (device / "vendor").read_text().strip() == "0x10de"
            found += is_nvidia and (device / "class").read_text().startswith(("0x0300", "0x0302"))
        except OSError:
            continue
    return found


def _nvml(host: Host) -> CheckResult:
    """Asked in a process of its own: this package never loads the driver's library."""
    program = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    command = [*isolated_python(os.environ), "-c", program]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_S)
    except subprocess.TimeoutExpired:
        return CheckResult(
            "gpus", Verdict.FAIL, f"NVML does not answer within {_GPU_S:g} s", "nvidia-smi; dmesg | grep Xid"
        )
    if done.returncode == 0:
        known = _own_info(host)
        offered = f", the node offers {len(known.gpus)}" if known is not None else ""
        return CheckResult("gpus", Verdict.OK, f"NVML shows {done.stdout.strip()}{offered}")
    why = done.stderr.strip().rpartition("\n")[2].partition(": ")[2] or "it failed"
    if "mismatch" in why.lower():
        fix = (
            "reboot, or: systemctl stop gqnode && rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia && modprobe nvidia"
        )
        return CheckResult("gpus", Verdict.FAIL, f"NVML: {why}: the library was upgraded under the running driver", fix)
    fix = "install libnvidia-ml.so.1 of the driver's version: cat /proc/driver/nvidia/version"
    return CheckResult("gpus", Verdict.FAIL, f"NVML: {why}", fix)
