"""Chains: jobs submitted together, each of which starts after the one before has succeeded.  Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gq.errors import Refusal
from gq.model.dependency import Dependency, DependencyKind, DependencyTerm, format_dependency
from gq.model.job import JobSpec
from gq.wire import client
from gqd.control import job
from gqd.control.access import Caller, Denied
from gqd.control.notices import spec as notice_spec
from gqd.state.input import ClientRequest

if TYPE_CHECKING:
    from gqd.control.turn import TurnBuilder

MAX_STAGES = 100


def decide_submit(
    draft: TurnBuilder, caller: Caller, request: ClientRequest, body: client.SubmitChain
) -> client.ChainSubmitted:
    """Queue all stages or none: every stage is checked before the first is queued; a refusal names its stage."""
    if not 0 < len(body.stages) <= MAX_STAGES:
        raise Refusal(
            "bad_chain", f"a chain has 1 to {MAX_STAGES} stages, not {len(body.stages)}", "submit several chains"
        )
    stages: tuple[job.Prepared, ...] = ()
    for number, stage in enumerate(body.stages, 1):
        try:
            _refuse_bad_stage(stage)
            spec = _after(stage.spec, stages[-1].fact.job_id) if stages else stage.spec
            stages = (*stages, job.prepare(draft, caller, request, spec, stages))
        except Refusal as refusal:
            message = f"stage {number} of {len(body.stages)} ({stage.spec.name[:80]}): {refusal.message}"
            raise (Denied if isinstance(refusal, Denied) else Refusal)(refusal.code, message, refusal.hint) from None
    notes = (notice_spec.note_of(asked.spec, stage.fact.spec) for asked, stage in zip(body.stages, stages, strict=True))
    note = next((note for note in notes if note), "")
    return client.ChainSubmitted(job_ids=tuple([job.queue(draft, stage) for stage in stages]), note=note)


def _refuse_bad_stage(stage: client.Submit) -> None:
    if stage.test_only:
        raise Refusal("bad_chain", "a stage cannot be submitted with --test-only", "test its script by itself")
    if stage.spec.is_interactive:
        raise Refusal("bad_chain", "a stage has a batch script, and this is an interactive job")


def _after(spec: JobSpec, before: int) -> JobSpec:
    """The stage, made to depend on the success of job `before`; if that fails, the stage is cancelled."""
    own = spec.dependency
    if own is not None and own.is_any and len(own.terms) > 1:
        message = f"its dependency `{format_dependency(own)}` is for any of several jobs, and job {before} is required"
        raise Refusal("bad_chain", message, "leave out this dependency, or submit the jobs one by one")
    term = DependencyTerm(DependencyKind.AFTEROK, before)
    terms = (term, *(own.terms if own is not None else ()))
    return msgspec.structs.replace(spec, dependency=Dependency(terms), kill_on_invalid_dep=True)
