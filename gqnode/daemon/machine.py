"""Reads the facts of this machine from psutil and the kernel: CPUs, memory, load, boot, users."""

from __future__ import annotations

import os
import pwd
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
from msgspec.structs import replace

from gq import __version__
from gq.config.config import Config, NodeSettings
from gq.model.node import Gpu, Inventory, IsolationLevels
from gq.model.resource import format_ids, parse_ids

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MIB = 1024 * 1024
EVERY_INTERFACE = ("*", "0.0.0.0", "[::]")


def find_inventory(
    node: NodeSettings,
    gpus: tuple[Gpu, ...],
    isolation: IsolationLevels,
    chooses_user: bool,
    pinned: tuple[int, ...] | None = None,
    attributes: Mapping[str, str] | None = None,
) -> Inventory:
    """Return the inventory from the configuration, completed by detected values.

    ``chooses_user``: jobs can run as their submitters.  ``pinned``: the machine's CPUs behind the node's, where each of
    these is one.  ``attributes``: what the accelerators say.
    """
    tmp, user = "private" if node.private_tmp else "shared", "submitter" if chooses_user else "daemon"
    return Inventory(
        can_suspend=True,
        can_park=True,
        can_resize=True,
        can_join=True,
        confirms_orders=True,
        cpus=node.cpus or len(usable_cpus()),
        memory_mib=node.memory_mib or psutil.virtual_memory().total // MIB,
        gpus=gpus,
        isolation=replace(isolation, tmp=tmp, user=user),
        gq_version=__version__,
        features=node.features,
        attributes={**machine_attributes(), **(attributes or {}), **node.attributes},
        resources=node.resources,
        data=node.data,
        cpu_numa=() if pinned is None else cpu_numa(pinned),
    )


def machine_attributes() -> dict[str, str]:
    """Return the attributes that every node has for ``--constraint``."""
    system = os.uname()
    return {"arch": system.machine, "kernel": system.release}


def cpu_numa(cpus: tuple[int, ...], sysfs: str = "/sys") -> tuple[tuple[int, str], ...]:
    """(NUMA node, which of these CPUs are its, by their position here); empty where the kernel does not tell."""
    found: list[tuple[int, str]] = []
    for directory in sorted(Path(sysfs, "devices/system/node").glob("node[0-9]*")):
        try:
            own = set(parse_ids((directory / "cpulist").read_text().strip()))
            number = int(directory.name.removeprefix("node"))
        except (OSError, ValueError):
            return ()
        positions = tuple(position for position, cpu in enumerate(cpus) if cpu in own)
        if positions:
            found.append((number, format_ids(positions)))
    return tuple(sorted(found))


def usable_cpus() -> tuple[int, ...]:
    """The machine's CPUs that this daemon may run on, ascending."""
    return tuple(sorted(os.sched_getaffinity(0)))


def cpus_to_pin(config: Config, node: NodeSettings) -> tuple[int, ...] | None:
    """The machine's CPUs behind the node's, if they are its alone; None where it shares or pretends them."""
    usable = usable_cpus()
    wanted = node.cpus or len(usable)
    is_alone = len(config.nodes) <= 1 or node.controller is not None
    return usable[:wanted] if is_alone and wanted <= len(usable) else None


def boot_id() -> str:
    """The kernel's; a new one means that no process survived."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def load() -> float:
    """Runnable processes over the last minute."""
    return os.getloadavg()[0]


def memory_available_mib() -> int:
    return int(psutil.virtual_memory().available // MIB)


def address_of(config: Config, node: NodeSettings) -> str:
    """How other nodes reach this one: as configured, else by the host's name, or within the host if all are on it."""
    if node.address is not None:
        return node.address
    is_local = node.controller is None and config.controller.listen is None
    return "127.0.0.1" if is_local else socket.gethostname()


def reached_at(step_listen: str, address: str) -> str:
    """How other hosts connect to a door that listens so: one on every interface is at the node's address."""
    host, _, port = step_listen.removeprefix("tcp://").rpartition(":")
    if host not in EVERY_INTERFACE:
        return step_listen
    return f"tcp://[{address}]:{port}" if ":" in address else f"tcp://{address}:{port}"


def user_name(uid: int) -> str:
    """The account's name, or the number where there is none (containers)."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def login_environment(uid: int) -> dict[str, str]:
    """Return the variables that a login would set; gq's own commands are on the path."""
    path = f"{Path(sys.executable).parent}:{DEFAULT_PATH}"
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return {"PATH": path, "HOME": "/"}
    return {
        "PATH": path,
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
    }
