"""gq.toml → the `Policy` that decisions depend on."""

from __future__ import annotations

import socket
from typing import TypeVar

import msgspec

from gq.config import Config, ControllerSettings, PartitionSettings
from gq.curve import read_keys, server_key_path
from gq.locate import Location, is_run_for_all
from gqd.state.policy import ALL_NODES, Limits, Partition, Policy, Timers

S = TypeVar("S", bound=msgspec.Struct)
_EVERY_ADDRESS = frozenset({"*", "0.0.0.0", "[::]"})
"""To listen on; nobody can connect to them from elsewhere."""


def policy_of(config: Config, owner_uid: int, location: Location | None = None) -> Policy:
    """`location`: where the controller runs, if it does; then its key is read, which must be there for a tcp door."""
    endpoint = _endpoint(config.controller, config.controller.listen)
    client_endpoint = _endpoint(config.controller, config.controller.listen_clients)
    has_tcp = bool(endpoint or client_endpoint)
    return Policy(
        cluster=config.cluster,
        partitions=_partitions(config.partitions),
        limits=_shared(Limits, config.limits),
        timers=_shared(Timers, config.timers),
        owner_uid=owner_uid,
        job_requeue=config.controller.job_requeue,
        default_mem_per_cpu_mib=config.controller.default_mem_per_cpu_mib,
        is_shared=location is not None and is_run_for_all(location),
        administrators=config.access.administrators,
        operators=config.access.operators,
        root_jobs=config.access.root_jobs,
        login_nodes=tuple(node.name for node in config.nodes if node.login),
        endpoint=endpoint,
        client_endpoint=client_endpoint,
        server_key=_server_key(location) if location is not None and has_tcp else "",
    )


def _endpoint(settings: ControllerSettings, listen: str | None) -> str:
    """Where other hosts reach a door of the controller, as far as it can know."""
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
    """Where none is the default, the first is."""
    has_default = any(one.default for one in settings)
    return tuple(
        Partition(
            name=one.name,
            nodes=ALL_NODES if one.nodes is None else one.nodes,
            is_default=one.default or (not has_default and place == 0),
            is_up=one.up,
            default_time_s=one.default_time_s,
            max_time_s=one.max_time_s,
        )
        for place, one in enumerate(settings)
    )


def _shared(kind: type[S], settings: msgspec.Struct) -> S:
    """The fields that both have; a test holds the names and defaults together."""
    fields = msgspec.structs.fields(kind)
    return kind(**{field.name: getattr(settings, field.name) for field in fields})
