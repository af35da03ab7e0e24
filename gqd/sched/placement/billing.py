"""The billing rate of a job while it runs, in millionths of a weighted GPU.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gq.model.policy_tables import Billing
from gq.model.resource import Grant
from gqd.sched.snapshot.node import NodeFacts
from gqd.state.index.usage import MILLION
from gqd.state.records import mask_of

TYPE_PREFIX = "gpus:"


def billing_of(billing: Billing, amounts: Mapping[str, int], usage_factor: float = 1.0) -> int:
    """The billing rate for `amounts`, named as in `gqd.state.index.tally`: ``gpus``, ``gpus:TYPE``, ``cpus``,
    ``memory`` (MiB).

    GPUs of no known type have the weight ``gpu``; the usage factor of the QOS multiplies the sum.
    """
    typed = {name: count for name, count in amounts.items() if name.startswith(TYPE_PREFIX)}
    weighted = billing.gpu * (amounts.get("gpus", 0) - sum(typed.values()))
    for name, count in typed.items():
        weighted += billing.gpu_types.get(name.removeprefix(TYPE_PREFIX), billing.gpu) * count
    weighted += billing.cpu * amounts.get("cpus", 0) + billing.memory_gib * amounts.get("memory", 0) / 1024
    return round(weighted * usage_factor * MILLION)


def amounts_of(grants: Iterable[Grant], nodes: Sequence[NodeFacts], places: Mapping[str, int]) -> dict[str, int]:
    """The sum of the grants, as limits and billing count it."""
    amounts = {"jobs": 1, "gpus": 0, "cpus": 0, "memory": 0}
    for grant in grants:
        amounts["gpus"] += len(grant.gpus)
        amounts["cpus"] += len(grant.cpus)
        amounts["memory"] += grant.memory_mib
        mask = mask_of(grant.gpus)
        for gpu_type, of_type in nodes[places[grant.node]].gpu_types if mask else ():
            if count := (mask & of_type).bit_count():
                amounts[f"gpus:{gpu_type}"] = amounts.get(f"gpus:{gpu_type}", 0) + count
    return amounts
