"""Derives from gq.toml the `Policy` that decisions depend on."""

from __future__ import annotations

import os
import socket
from datetime import datetime, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo

from gq.config.config import Config, ControllerSettings, PartitionSettings
from gq.connection.curve import read_keys, server_key_path
from gq.connection.locate import Location, is_run_for_all
from gq.errors import UsageError
from gq.host.sendmail import check_sendmail
from gqd.shell.factors import load_factors
from gqd.state.policy import ALL_NODES, Partition, Policy

_LOCAL_TIME = Path("/etc/localtime")
_EVERY_ADDRESS = frozenset({"*", "0.0.0.0", "[::]"})
"""Addresses to listen on that are of no use to clients."""


def policy_of(config: Config, owner_uid: int, location: Location | None = None) -> Policy:
    """The policy.  `location`: of a controller that runs; its key is read then, and must exist for a tcp listener.

    Raises `UsageError` if the file requires something that this host does not have.
    """
    if location is not None:
        check_sendmail(config.notify.mail, config.path)
    endpoint = _endpoint(config.controller, config.controller.listen)
    client_endpoint = _endpoint(config.controller, config.controller.listen_clients)
    has_tcp = bool(endpoint or client_endpoint)
    return Policy(
        cluster=config.cluster,
        partitions=_partitions(config.partitions),
        limits=config.limits,
        timers=config.timers,
        owner_uid=owner_uid,
        job_requeue=config.controller.job_requeue,
        default_mem_per_cpu_mib=config.controller.default_mem_per_cpu_mib,
        use_interactive_step=config.controller.use_interactive_step,
        is_shared=location is not None and is_run_for_all(location),
        administrators=config.access.administrators,
        operators=config.access.operators,
        root_jobs=config.access.root_jobs,
        login_nodes=tuple(node.name for node in config.nodes if node.login),
        endpoint=endpoint,
        client_endpoint=client_endpoint,
        server_key=_server_key(location) if location is not None and has_tcp else "",
        weights=config.priority,
        plugins=load_factors(config.priority.factors),
        billing=config.billing,
        accounting=config.accounts,
        booking=config.reservations,
        scheduling=config.scheduler,
        topology=config.topology,
        notify=config.notify,
        licenses=config.licenses,
        zone=_zone(config),
    )


def _zone(config: Config) -> tzinfo:
    name = config.controller.time_zone
    if not name:
        return local_zone()
    try:
        return ZoneInfo(name)
    except (ValueError, LookupError, OSError):
        message = f"{config.path}: `controller.time_zone` `{name}` is not a time zone of this host"
        raise UsageError(
            "bad_config", message, "for example `Europe/Berlin`; /usr/share/zoneinfo lists the zones"
        ) from None


def local_zone() -> tzinfo:
    """The time zone of this machine with its rules; if it is unknown, the present offset from UTC."""
    try:
        if name := os.environ.get("TZ", "").removeprefix(":"):
            return ZoneInfo(name)
        named = str(_LOCAL_TIME.resolve(strict=True)).partition("/zoneinfo/")[2]
        if named:
            return ZoneInfo(named)
        with _LOCAL_TIME.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ValueError, LookupError, OSError):
        ahead = datetime.now().astimezone().tzinfo
        assert ahead is not None
        return ahead


def _endpoint(settings: ControllerSettings, listen: str | None) -> str:
    """The endpoint at which other hosts reach a listener of the controller; empty: it does not listen."""
    if listen is None:
        return ""
    host, _, port = listen.removeprefix("tcp://").rpartition(":")
    if settings.address is not None:
        is_bare_ipv6 = ":" in settings.address and not settings.address.startswith("[")
        host = f"[{settings.address}]" if is_bare_ipv6 else settings.address
    elif host in _EVERY_ADDRESS:
        host = socket.gethostname()
    return f"tcp://{host}:{port}"


def _server_key(location: Location) -> str:
    return read_keys(server_key_path(location.keys_dir)).public.decode("ascii")


def _partitions(settings: tuple[PartitionSettings, ...]) -> tuple[Partition, ...]:
    """The partitions; if none is marked as the default, the first one is."""
    has_default = any(one.default for one in settings)
    return tuple(
        Partition(
            name=one.name,
            nodes=ALL_NODES if one.nodes is None else one.nodes,
            is_default=one.default or (not has_default and place == 0),
            is_up=one.up,
            default_time_s=one.default_time_s,
            max_time_s=one.max_time_s,
            priority=one.priority,
            max_nodes=one.max_nodes,
            default_cpus_per_gpu=one.default_cpus_per_gpu,
            default_mem_per_gpu_mib=one.default_mem_per_gpu_mib,
            users=one.users,
            groups=one.groups,
            accounts=one.accounts,
            qos=one.qos,
        )
        for place, one in enumerate(settings)
    )
