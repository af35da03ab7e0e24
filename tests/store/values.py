"""Hypothesis strategies for everything that the store keeps: any value of the right type, sensible or not."""

from __future__ import annotations

from hypothesis import strategies as st

from gq.model.estimate import FirstEstimate
from gq.model.ids import AttemptId, StepId
from gq.model.job import ExitStatus, JobSpec, SignalSpec, Usage
from gq.model.key import KeyKind
from gq.model.node import Gpu, Inventory, IsolationLevels
from gq.model.resource import Grant, ResourceRequest
from gq.model.state import JobState, Outcome
from gq.model.step import StepLayout, StepPart
from gqd.state.events.event import Audited
from gqd.state.phases import AfterEnding, Hold, PartPhase
from gqd.state.preemption import Preempted, PreemptionNotice, Resumed
from gqd.state.records import Answer, Attempt, Job, Key, Node, Part, Step, StepPartEnd

WORDS = st.text(max_size=12)
NAMES = st.text("abcxyz-_09", min_size=1, max_size=8)
COUNTS = st.integers(0, 2**40)
IDS = st.integers(1, 2**53)
INSTANTS = st.floats(0, 4e9, allow_nan=False)
MAYBE_INSTANTS = st.none() | INSTANTS
ID_SETS = st.lists(st.integers(0, 300), unique=True, max_size=12).map(lambda ids: tuple(sorted(ids)))
OUTCOMES = st.none() | st.sampled_from(Outcome)
EXITS = st.builds(ExitStatus, code=st.integers(0, 255), signal=st.integers(0, 64))
USAGES = st.builds(Usage, user_cpu_s=INSTANTS, system_cpu_s=INSTANTS, max_rss_mib=COUNTS)

REQUESTS = st.builds(
    ResourceRequest,
    nodes_min=st.none() | st.integers(1, 99),
    ntasks=st.none() | st.integers(1, 99),
    ntasks_per_node=st.none() | st.integers(1, 9),
    gpus=st.none() | st.integers(0, 99),
    gpus_per_task=st.none() | st.integers(0, 9),
    mem_per_cpu_mib=st.none() | st.integers(0, 2**31 - 1),
    gpu_type=st.none() | NAMES,
    nodelist=st.lists(NAMES, max_size=3).map(tuple),
)
SPECS = st.builds(
    JobSpec,
    name=WORDS,
    resources=REQUESTS,
    nice=st.integers(-1000, 1000),
    is_held=st.booleans(),
    signal=st.none() | st.builds(SignalSpec, signum=st.integers(1, 64), before_s=st.integers(0, 999)),
    args=st.lists(WORDS, max_size=3).map(tuple),
    output=st.none() | WORDS,
    comment=WORDS,
    command=WORDS,
)
ESTIMATES = st.none() | st.builds(FirstEstimate, INSTANTS, INSTANTS, MAYBE_INSTANTS, st.booleans())

JOBS = st.builds(
    Job,
    job_id=IDS,
    spec=SPECS,
    user=WORDS,
    uid=COUNTS,
    gid=COUNTS,
    partition=WORDS,
    time_limit_s=st.none() | COUNTS,
    requeue=st.booleans(),
    submit_at=INSTANTS,
    eligible_at=INSTANTS,
    state=st.sampled_from(JobState),
    outcome=OUTCOMES,
    hold=st.none() | st.sampled_from(Hold),
    attempt=st.integers(0, 99),
    restart_count=COUNTS,
    launch_failures=COUNTS,
    avoid=st.dictionaries(NAMES, INSTANTS, max_size=3),
    start_at=MAYBE_INSTANTS,
    end_at=MAYBE_INSTANTS,
    exit=st.none() | EXITS,
    reason=WORDS,
    why=WORDS,
    failure_class=WORDS,
    expected_s=MAYBE_INSTANTS,
    estimate=ESTIMATES,
    ran_s=INSTANTS,
    resumed=st.none() | st.builds(Resumed, attempt=COUNTS, cost_s=INSTANTS),
    preempted=st.none()
    | st.builds(
        Preempted, by=WORDS, user=WORDS, at=INSTANTS, lost_gpu_s=INSTANTS, times=COUNTS, is_reclaim=st.booleans()
    ),
)

NOTICES = st.none() | st.builds(
    PreemptionNotice, preemptor=IDS, notified_at=INSTANTS, ends_at=INSTANTS, is_reclaim=st.booleans()
)
GRANTS = st.builds(Grant, node=NAMES, tasks=st.integers(0, 99), cpus=ID_SETS, gpus=ID_SETS, memory_mib=COUNTS)
GRANT_LISTS = st.lists(GRANTS, min_size=1, max_size=4, unique_by=lambda grant: grant.node).map(tuple)
ATTEMPT_IDS = st.builds(AttemptId, IDS, st.integers(1, 99))
STEP_IDS = st.builds(StepId, IDS, st.integers(1, 99), st.integers(0, 99))
PARTS = st.builds(Part, grant=GRANTS, phase=st.sampled_from(PartPhase), is_stranded=st.booleans())
ATTEMPTS = st.builds(
    Attempt,
    attempt_id=ATTEMPT_IDS,
    grants=GRANT_LISTS,
    allocated_at=INSTANTS,
    parts=st.just({}),
    master_port=st.integers(0, 65535),
    start_at=MAYBE_INSTANTS,
    end_at=MAYBE_INSTANTS,
    outcome=OUTCOMES,
    exit=st.none() | EXITS,
    reason=WORDS,
    why=WORDS,
    failure_class=WORDS,
    then=st.none() | st.sampled_from(AfterEnding),
    grace_s=COUNTS,
    usage=USAGES,
    slot=WORDS,
    estimate=ESTIMATES,
    checkpoint_at=MAYBE_INSTANTS,
    preemption=NOTICES,
    lost_gpu_s=INSTANTS,
    next_step=COUNTS,
)

STEP_PARTS = st.builds(
    StepPart, node=NAMES, first_rank=st.integers(0, 99), tasks=st.integers(1, 99), cpus=ID_SETS, gpus=ID_SETS
)
LAYOUTS = st.builds(
    StepLayout,
    name=WORDS,
    parts=st.lists(STEP_PARTS, min_size=1, max_size=3).map(tuple),
    cpus_per_task=st.integers(1, 9),
    gpus_per_task=st.none() | st.integers(0, 9),
    kill_on_bad_exit=st.booleans(),
)
STEPS = st.builds(
    Step,
    step_id=STEP_IDS,
    key=st.binary(max_size=32),
    layout=LAYOUTS,
    start_at=INSTANTS,
    received=st.sets(NAMES, max_size=3),
    part_ends=st.dictionaries(NAMES, st.builds(StepPartEnd, EXITS, st.sampled_from(Outcome)), max_size=3),
    end_at=MAYBE_INSTANTS,
    outcome=OUTCOMES,
    exit=st.none() | EXITS,
    usage=USAGES,
)

GPUS = st.builds(
    Gpu,
    index=st.integers(0, 15),
    uuid=WORDS,
    type=WORDS,
    memory_mib=COUNTS,
    numa=st.none() | st.integers(0, 7),
    is_fake=st.booleans(),
)
INVENTORIES = st.builds(
    Inventory,
    cpus=st.integers(1, 512),
    memory_mib=COUNTS,
    gpus=st.lists(GPUS, max_size=4, unique_by=lambda gpu: gpu.index).map(tuple),
    isolation=st.builds(IsolationLevels, cpu=WORDS, kill=WORDS),
    features=st.lists(WORDS, max_size=2).map(tuple),
    gq_version=WORDS,
)
NODES = st.builds(
    Node,
    name=NAMES,
    address=WORDS,
    inventory=INVENTORIES,
    incarnation=WORDS,
    boot_id=WORDS,
    step_endpoint=WORDS,
    step_public_key=WORDS,
    ticket_key=st.binary(max_size=32),
    registered_at=INSTANTS,
    is_lost=st.booleans(),
    is_down=st.booleans(),
    is_drained=st.booleans(),
    reason=WORDS,
    reason_by=WORDS,
    reason_at=MAYBE_INSTANTS,
    drained_gpus=st.dictionaries(st.integers(0, 15), WORDS, max_size=3),
    backoff_until=INSTANTS,
    backoff_failures=COUNTS,
)
KEYS = st.builds(
    Key,
    public=NAMES,
    kind=st.sampled_from(KeyKind),
    name=WORDS,
    added_at=INSTANTS,
    added_by=WORDS,
    uid=st.none() | COUNTS,
    gid=st.none() | COUNTS,
    is_login=st.booleans(),
    expires_at=MAYBE_INSTANTS,
    joined=WORDS,
    note=WORDS,
)
LINES = st.builds(
    Audited,
    at=INSTANTS,
    user=WORDS,
    uid=st.none() | COUNTS,
    origin=WORDS,
    action=WORDS,
    object=WORDS,
    outcome=WORDS,
    detail=WORDS,
)
ANSWERS = st.builds(Answer, at=INSTANTS, uid=COUNTS, answer=st.binary(max_size=64))
