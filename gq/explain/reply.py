"""The words of an answer to `gqwhy`, as a client shows them.  Pure."""

from __future__ import annotations

from gq.explain.render import Rendered, render
from gq.explain.sentence import Context
from gq.wire.explanation import Explanation, decoded_facts


def words_of(answer: Explanation) -> Rendered:
    """The facts of the answer in words; those of the controller, if it sent a kind of fact that is unknown here."""
    facts = decoded_facts(answer)
    names = {job.job_id: job for job in answer.jobs}
    if facts is None or answer.job_id not in names:
        return Rendered(answer.why, answer.facts or (answer.why,), answer.hint)
    return render(Context(names[answer.job_id], names.get), facts)
