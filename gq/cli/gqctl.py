"""`gqctl`: change jobs, nodes and keys.  Each noun is a module of `gq.cli.ctl`; for jobs the noun may be left out."""

from __future__ import annotations

from gq.cli._command import Command
from gq.cli.ctl import audit, job, key, node, token

_UNBUILT_NOUNS = ("partition", "account", "user", "qos", "limit", "config", "gpu", "events")


def _verbs() -> dict[str, Command]:
    return {
        **job.verbs(),
        "job": Command(
            name="gqctl job", summary="Change and show jobs.", verbs=job.verbs, unbuilt=job.UNBUILT, operands="VERB"
        ),
        "node": Command(
            name="gqctl node", summary="Change and show nodes.", verbs=node.verbs, unbuilt=node.UNBUILT, operands="VERB"
        ),
        "token": Command(name="gqctl token", summary="Let hosts become nodes.", verbs=token.verbs, operands="VERB"),
        "key": Command(
            name="gqctl key",
            summary="Let users in from machines outside the cluster.",
            verbs=key.verbs,
            operands="VERB",
        ),
        **audit.commands(),
    }


COMMAND = Command(
    name="gqctl",
    summary="Change jobs, nodes and keys.",
    operands="[NOUN] VERB",
    details="For jobs the noun may be left out: `gqctl hold 12` is `gqctl job hold 12`.",
    verbs=_verbs,
    unbuilt=(*job.UNBUILT, *_UNBUILT_NOUNS),
)
