"""`gqctl`: change jobs and nodes.  The verbs of each noun are in `gq.cli.ctl`; for jobs the noun may be left out."""

from __future__ import annotations

from gq.cli._command import Command
from gq.cli.ctl import job, node

_UNBUILT_NOUNS = ("partition", "account", "user", "qos", "limit", "token", "key", "config", "gpu", "audit", "events")


def _verbs() -> dict[str, Command]:
    return {
        **job.verbs(),
        "job": Command(
            name="gqctl job", summary="Change and show jobs.", verbs=job.verbs, unbuilt=job.UNBUILT, operands="VERB"
        ),
        "node": Command(
            name="gqctl node", summary="Change and show nodes.", verbs=node.verbs, unbuilt=node.UNBUILT, operands="VERB"
        ),
    }


COMMAND = Command(
    name="gqctl",
    summary="Change jobs and nodes.",
    operands="[NOUN] VERB",
    details="For jobs the noun may be left out: `gqctl hold 12` is `gqctl job hold 12`.",
    verbs=_verbs,
    unbuilt=(*job.UNBUILT, *_UNBUILT_NOUNS),
)
