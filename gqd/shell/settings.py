"""gq.toml → the `Policy` that decisions depend on."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from gq.config import Config, PartitionSettings
from gqd.state.policy import ALL_NODES, Limits, Partition, Policy, Timers

S = TypeVar("S", bound=msgspec.Struct)


def policy_of(config: Config, owner_uid: int) -> Policy:
    return Policy(
        cluster=config.cluster,
        partitions=_partitions(config.partitions),
        limits=_shared(Limits, config.limits),
        timers=_shared(Timers, config.timers),
        owner_uid=owner_uid,
        job_requeue=config.controller.job_requeue,
        default_mem_per_cpu_mib=config.controller.default_mem_per_cpu_mib,
    )


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
