"""`gqctl`: change jobs, nodes, accounts, limits and keys.

Each noun is a module of `gq.cli.ctl`; for jobs the noun may be left out.
"""

from __future__ import annotations

from gq.cli.ctl import account, audit, config, event, job, key, limit, node, notice, partition, qos, steering, token
from gq.cli.framework.command import JSON, Command
from gq.errors import UsageError
from gq.request.getopt import Arguments

_UNBUILT_NOUNS = ("gpu",)
_SHOWN = {"job": job.show, "node": node.show, "partition": partition.show}
"""The nouns of `gqctl show NOUN`, which has the form of `scontrol show`."""
_SHOWN_ELSEWHERE = {
    "config": "gqctl config show", "reservation": "gqresv show", "step": "gqacct -j JOB", "topology": "gqinfo -N",
}  # fmt: skip
"""Nouns of `scontrol show` that another command shows."""


def _show(arguments: Arguments) -> int:
    """`gqctl show 12`, and scontrol's `gqctl show job 12`, `gqctl show nodes n1`."""
    word = arguments.operands[0].lower() if arguments.operands else ""
    for noun, show in _SHOWN.items():
        if word in (noun, f"{noun}s"):
            return show(Arguments(arguments, arguments.operands[1:]))
    if command := next((shown for noun, shown in _SHOWN_ELSEWHERE.items() if word in (noun, f"{noun}s")), ""):
        raise UsageError("unknown_verb", f"`gqctl show` cannot show `{word}`", f"use `{command}`")
    return job.show(arguments)


def _job_verbs() -> dict[str, Command]:
    return {**job.verbs(), **steering.verbs()}


def _verbs() -> dict[str, Command]:
    return {
        **_job_verbs(),
        "show": Command(
            name="gqctl show",
            summary="Show all details of jobs, nodes or partitions.",
            operands="[job|node|partition] NAME...",
            details="Without a noun, NAME is a job.",
            options=(JSON,),
            run=_show,
        ),
        "job": Command(
            name="gqctl job", summary="Change and show jobs.", verbs=_job_verbs, unbuilt=job.UNBUILT, operands="VERB"
        ),
        "node": Command(
            name="gqctl node", summary="Change and show nodes.", verbs=node.verbs, unbuilt=node.UNBUILT, operands="VERB"
        ),
        "partition": Command(
            name="gqctl partition", summary="Show partitions.", verbs=partition.verbs, operands="VERB"
        ),
        "account": Command(
            name="gqctl account", summary="Add, change and show accounts.", verbs=account.verbs, operands="VERB"
        ),
        "user": Command(
            name="gqctl user", summary="Assign users to accounts.", verbs=account.user_verbs, operands="VERB"
        ),
        "qos": Command(
            name="gqctl qos", summary="Add, change and show QOS (classes of service).", verbs=qos.verbs, operands="VERB"
        ),
        "limit": Command(
            name="gqctl limit",
            summary="Limit what users, accounts and QOS may use.",
            verbs=limit.verbs,
            operands="VERB",
        ),
        "config": Command(
            name="gqctl config",
            summary="Show, check and reload the settings.",
            verbs=config.verbs,
            operands="VERB",
        ),
        "token": Command(
            name="gqctl token",
            summary="Create, list and revoke tokens that let hosts join.",
            verbs=token.verbs,
            operands="VERB",
        ),
        "key": Command(
            name="gqctl key",
            summary="Manage the keys of users outside the cluster.",
            verbs=key.verbs,
            operands="VERB",
        ),
        "notice": Command(
            name="gqctl notice", summary="Show notifications about jobs.", verbs=notice.verbs, operands="VERB"
        ),
        **audit.commands(),
        **event.commands(),
    }


COMMAND = Command(
    name="gqctl",
    summary="Change jobs, nodes, accounts, limits and keys.",
    operands="[NOUN] VERB",
    details="The noun `job` can be omitted: `gqctl hold 12` means `gqctl job hold 12`.",
    verbs=_verbs,
    named_here={"reload": "gqctl config reload", "reconfigure": "gqctl config reload"},
    unbuilt=(*job.UNBUILT, *_UNBUILT_NOUNS),
)
