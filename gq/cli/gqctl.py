"""`gqctl`: change jobs, nodes, accounts, limits and keys.

Each noun is a module of `gq.cli.ctl`; for jobs the noun may be left out.
"""

from __future__ import annotations

from gq.cli._command import Command
from gq.cli.ctl import account, audit, config, event, job, key, limit, node, notice, qos, steering, token

_UNBUILT_NOUNS = ("partition", "gpu")


def _job_verbs() -> dict[str, Command]:
    return {**job.verbs(), **steering.verbs()}


def _verbs() -> dict[str, Command]:
    return {
        **_job_verbs(),
        "job": Command(
            name="gqctl job", summary="Change and show jobs.", verbs=_job_verbs, unbuilt=job.UNBUILT, operands="VERB"
        ),
        "node": Command(
            name="gqctl node", summary="Change and show nodes.", verbs=node.verbs, unbuilt=node.UNBUILT, operands="VERB"
        ),
        "account": Command(
            name="gqctl account", summary="Add, change and show accounts.", verbs=account.verbs, operands="VERB"
        ),
        "user": Command(
            name="gqctl user", summary="Say who is in which account.", verbs=account.user_verbs, operands="VERB"
        ),
        "qos": Command(
            name="gqctl qos", summary="Add, change and show classes of service.", verbs=qos.verbs, operands="VERB"
        ),
        "limit": Command(
            name="gqctl limit",
            summary="Say how much users, accounts and QOS may have.",
            verbs=limit.verbs,
            operands="VERB",
        ),
        "config": Command(
            name="gqctl config",
            summary="Show the settings, and read them again.",
            verbs=config.verbs,
            operands="VERB",
        ),
        "token": Command(name="gqctl token", summary="Let hosts become nodes.", verbs=token.verbs, operands="VERB"),
        "key": Command(
            name="gqctl key",
            summary="Let users in from machines outside the cluster.",
            verbs=key.verbs,
            operands="VERB",
        ),
        "notice": Command(
            name="gqctl notice", summary="Show what owners of jobs were told.", verbs=notice.verbs, operands="VERB"
        ),
        **audit.commands(),
        **event.commands(),
    }


COMMAND = Command(
    name="gqctl",
    summary="Change jobs, nodes, accounts, limits and keys.",
    operands="[NOUN] VERB",
    details="For jobs the noun may be left out: `gqctl hold 12` is `gqctl job hold 12`.",
    verbs=_verbs,
    named_here={"reload": "gqctl config reload", "reconfigure": "gqctl config reload"},
    unbuilt=(*job.UNBUILT, *_UNBUILT_NOUNS),
)
