"""The options of jobs: one table for `gqsub`, `gqrun` and `gqalloc`, for script headers and for input variables.  Pure.

The module owns which options exist, which commands have them, how script, variables and command line override each
other, and which options have no effect.  The meaning of their values is in `gq.request.jobspec`.  Help texts, man
pages, completions, header lines and ``GQSUB_…`` variables all come from here, so that each option is defined once.

A placement option is a row of `RESOURCE_OPTIONS`: the field of `ResourceRequest` that it sets, how its value is read,
where it is shown, and which other commands have it.  Every list of these options elsewhere is derived from the rows.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from gq.request.option import Option

SUB = "gqsub"
RUN = "gqrun"
ALLOC = "gqalloc"
ALL = (SUB, RUN, ALLOC)


class JobOption(Option, frozen=True, kw_only=True):
    """An option of a job, with the commands and places that accept it."""

    commands: tuple[str, ...] = ALL
    in_header: bool = True
    """Whether a ``#GQ`` or ``#SBATCH`` line (of a script for `gqsub`) may have it."""
    rivals: tuple[str, ...] = ()
    """Options for the same setting: an option in a stronger layer removes these from weaker layers."""
    is_unbuilt: bool = False
    """Whether a later version will implement the documented option; it is refused as not available."""


class ResourceOption(JobOption, frozen=True, kw_only=True):
    """An option that sets a field of a `ResourceRequest`."""

    field: str = ""
    """Field of `ResourceRequest` that the option sets; empty: the option's name with ``_``."""
    reads: Literal["", "count", "memory", "memory_or_none", "flag", "nodelist"] = ""
    """How the value is read; empty: `gq.request.resources` or `gq.request.node_options` has a function for it."""
    minimum: int | None = None
    """Minimum of the number in the field."""
    needs_gpus: bool = False
    """Whether only jobs that request GPUs may have it."""
    is_shown: bool = False
    """Whether ``gqctl show`` and JSON show the field, under its name."""
    in_steps: bool = False
    """Whether a step of a job may have it."""
    is_changeable: bool = True
    """Whether ``gqctl update`` may change it."""
    in_reservations: bool = False
    """Whether reservations of `gqresv` have it."""

    @property
    def sets(self) -> str:
        """The field of `ResourceRequest` that the option sets.  It replaces the values of its rivals' fields."""
        return self.field or self.name.replace("-", "_")


_MEM = ("mem", "mem-per-cpu", "mem-per-gpu")

_WHAT: tuple[JobOption, ...] = (
    JobOption(name="job-name", letter="J", metavar="NAME", help="Name of the job."),
    JobOption(name="comment", metavar="TEXT", help="Any text, shown with the job."),
    JobOption(
        name="wrap", metavar="COMMAND", commands=(SUB,), in_header=False,
        help="Run this command line under /bin/sh instead of a script.",
    ),
    JobOption(
        name="chain", commands=(SUB,), in_header=False,
        help="Queue several scripts; each starts when the one before has succeeded.",
    ),
    JobOption(
        name="array", letter="a", metavar="TASKS[%COUNT|%auto]", commands=(SUB,),
        help="Queue an array of tasks: 1-100, 1,5,9 or 0-30:10; with %8 at most 8 of them at once, with %auto as many"
        " as there are idle GPUs.",
    ),
    JobOption(
        name="sweep", metavar="'NAME=VALUE,... ...'", commands=(SUB,),
        help="Queue an array with a task for each combination of these values, passed in its environment:"
        " 'lr=1e-3,1e-4 bs=32,64'.",
    ),
    JobOption(name="fail-fast", commands=(SUB,), help="Cancel the other tasks of the array when a task fails."),
    JobOption(
        name="role", metavar="NAME:COUNT[,KEY=VALUE...]",
        help="Another kind of tasks, started with the others: ps:2,cpus=4 (also gpus, mem, nodes, constraint);"
        " may be repeated.",
        commands=(SUB, ALLOC),
    ),
    JobOption(
        name="role", metavar="NAME[:COUNT,...]", commands=(RUN,),
        help="In a job: only the tasks of this role; outside, as in gqsub: ps:2,cpus=4. May be repeated.",
    ),
    JobOption(
        name="het-group", metavar="NUMBERS", commands=(RUN,),
        help="In a job: only the tasks of these roles or components, counted from 0: 0,2-3.",
    ),
    JobOption(name="chdir", letter="D", metavar="DIR", help="Working directory (default: the current one)."),
    JobOption(
        name="export", metavar="ALL|NONE|NAMES", commands=(SUB, RUN),
        help="Environment variables to pass: ALL (the default), NONE, or names; NAME=VALUE sets a variable.",
    ),
    JobOption(
        name="overlap", commands=(RUN,),
        help="Share the CPUs and GPUs of other steps instead of waiting for them.",
    ),
    JobOption(name="jobid", metavar="JOB", commands=(RUN,), help="Job to start the step in (default: GQ_JOB_ID)."),
)  # fmt: skip

_NEEDS: tuple[JobOption, ...] = (
    JobOption(name="time", letter="t", metavar="TIME", help="Time limit: minutes, h:m:s, d-h, 2h; 0: unlimited."),
    ResourceOption(
        name="nodes", letter="N", metavar="MIN[-MAX]", field="nodes_min", minimum=1, in_steps=True,
        help="Number of nodes; the job starts on all of them at once.",
    ),
    ResourceOption(
        name="elastic", field="is_elastic", reads="flag", in_steps=True, is_changeable=False,
        help="Start on MIN nodes and use up to MAX while they are idle.",
    ),
    ResourceOption(
        name="ntasks", letter="n", metavar="COUNT", reads="count", minimum=1, in_steps=True, help="Number of tasks.",
    ),
    ResourceOption(
        name="ntasks-per-node", aliases=("tasks-per-node",), metavar="COUNT", rivals=("ntasks-per-gpu",),
        reads="count", minimum=1, in_steps=True, help="Tasks on each node; with --ntasks: the maximum on each node.",
    ),
    ResourceOption(
        name="ntasks-per-gpu", metavar="COUNT", rivals=("ntasks-per-node", "gpus-per-task"),
        reads="count", minimum=1, is_shown=True, in_steps=True,
        help="Tasks for each GPU: --ntasks determines the GPUs, or the GPUs determine the tasks.",
    ),
    ResourceOption(
        name="cpus-per-task", letter="c", metavar="COUNT", rivals=("cpus-per-gpu",),
        reads="count", minimum=1, in_steps=True, help="CPUs of each task.",
    ),
    ResourceOption(
        name="mem", metavar="SIZE", rivals=_MEM, field="mem_per_node_mib", reads="memory", minimum=0,
        help="Memory per node (MiB, or with K, M, G, T); 0: all of it.",
    ),
    ResourceOption(
        name="mem-per-cpu", metavar="SIZE", rivals=_MEM, field="mem_per_cpu_mib", reads="memory", minimum=1,
        help="Memory per CPU.",
    ),
    ResourceOption(
        name="mem-per-gpu", metavar="SIZE", rivals=_MEM,
        field="mem_per_gpu_mib", reads="memory", minimum=1, needs_gpus=True, in_reservations=True,
        help="Memory per GPU.",
    ),
    ResourceOption(
        name="gpus", letter="G", metavar="[TYPE:]COUNT[-MAX]", minimum=0, in_steps=True,
        help="GPUs of the whole job; 1-8: start with 1 and use up to 8 of one node while they are idle.",
    ),
    ResourceOption(
        name="gpus-per-node", metavar="[TYPE:]COUNT", rivals=("gres",), minimum=0, in_steps=True,
        help="GPUs on each node.",
    ),
    ResourceOption(
        name="gpus-per-task", metavar="[TYPE:]COUNT", rivals=("ntasks-per-gpu",), minimum=0, in_steps=True,
        help="GPUs of each task.",
    ),
    ResourceOption(
        name="cpus-per-gpu", metavar="COUNT", rivals=("cpus-per-task",),
        reads="count", minimum=1, needs_gpus=True, in_reservations=True, help="CPUs for each GPU.",
    ),
    ResourceOption(
        name="gres", metavar="NAME[:TYPE]:COUNT,...", rivals=("gpus-per-node",), field="resources", in_steps=True,
        help="Resources on each node: gpu:2 means --gpus-per-node=2; other resources by name: fpga:1.",
    ),
    ResourceOption(
        name="min-gpu-mem", metavar="SIZE",
        field="min_gpu_mem_mib", reads="memory_or_none", minimum=1, needs_gpus=True, is_shown=True,
        in_reservations=True, help="Minimum memory of each GPU.",
    ),
    ResourceOption(
        name="fill-nodes", field="is_dense", reads="flag", is_shown=True, is_changeable=False,
        help="Distribute --gpus so that every node except the last is filled.",
    ),
    ResourceOption(name="tmp", metavar="SIZE", field="resources", help="Scratch space on each node."),
    ResourceOption(name="licenses", letter="L", metavar="NAME[:COUNT],...", help="Licences of the cluster."),
)  # fmt: skip

_WHERE: tuple[JobOption, ...] = (
    JobOption(name="partition", letter="p", metavar="NAME", help="Partition to run in."),
    JobOption(name="reservation", metavar="NAME", help="Run in this reservation only."),
    ResourceOption(
        name="nodelist", letter="w", metavar="NODES", reads="nodelist", in_steps=True, in_reservations=True,
        help="Nodes that the job must include: n1,n[3-4].",
    ),
    ResourceOption(
        name="exclude", letter="x", metavar="NODES", reads="nodelist", in_steps=True, in_reservations=True,
        help="Nodes that the job must not use.",
    ),
    ResourceOption(
        name="exclusive", metavar="[=true]", if_bare="true", field="is_exclusive",
        help="Share the job's nodes with no other job.",
    ),
    ResourceOption(
        name="constraint", letter="C", metavar="EXPRESSION", is_shown=True, in_reservations=True,
        help="Required features and attributes of the nodes: 'nvlink&cuda>=12.4', 'a|b', '[rack1*2&rack2*2]'.",
    ),
    ResourceOption(
        name="prefer", metavar="EXPRESSION", is_shown=True,
        help="Preferred features of the nodes; after a while any node will do.",
    ),
    ResourceOption(
        name="switches", metavar="COUNT[@TIME]", minimum=1,
        help="Maximum number of leaf switches above the nodes; after TIME any nodes will do.",
    ),
    ResourceOption(name="data", metavar="NAME,...", is_shown=True, help="Prefer nodes that hold these data sets."),
)  # fmt: skip

_WHEN: tuple[JobOption, ...] = (
    JobOption(
        name="account", letter="A", metavar="NAME",
        help="Account that is charged for the job (default: your default account).",
    ),
    JobOption(name="qos", letter="q", metavar="NAME", help="Quality of service (default: the account's)."),
    JobOption(
        name="begin", letter="b", metavar="TIME", help="Earliest start: 18:00, 2026-12-24T18:00, now+2h, tomorrow.",
    ),
    JobOption(
        name="dependency", letter="d", metavar="LIST",
        help="Start after other jobs: afterok:12, after:12+5, singleton; `,` means all of them, `?` any.",
    ),
    JobOption(
        name="kill-on-invalid-dep", metavar="yes|no",
        help="Cancel the job when its dependency can never be satisfied, or leave it in the queue (no).",
    ),
    JobOption(
        name="if", metavar="COMMAND", commands=(SUB,),
        help="Run this command first, as a small job; the job starts only if the command exits with 0.",
    ),
    JobOption(
        name="deadline", metavar="TIME",
        help="Deadline: the job is not started too late to end by this time, and is ended then.",
    ),
    JobOption(name="hold", letter="H", help="Queue the job held until `gqctl release`."),
    JobOption(
        name="nice", metavar="[=COUNT]", if_bare="100",
        help="Lower the priority by COUNT; negative values are for operators.",
    ),
    JobOption(
        name="priority", metavar="COUNT", help="Set the priority instead of the sum of its factors; for operators.",
    ),
)  # fmt: skip

_END: tuple[JobOption, ...] = (
    JobOption(
        name="signal", metavar="[B:]SIG[@SECONDS]",
        help="Send this signal SECONDS (60) before the time limit or a preemption; to the steps, with B: to the"
        " script.",
    ),
    JobOption(
        name="grace", metavar="TIME",
        help="Time from SIGTERM to SIGKILL whenever the job is ended; at most the cluster's (30s).",
    ),
    JobOption(
        name="requeue", commands=(SUB,), help="Requeue the job after a node failure or a preemption.",
        rivals=("no-requeue",),
    ),
    JobOption(
        name="no-requeue", commands=(SUB,), help="Never requeue the job automatically.",
        rivals=("requeue", "requeue-on", "max-requeue"),
    ),
    JobOption(
        name="requeue-on", metavar="EVENTS", commands=(SUB,), rivals=("no-requeue",),
        help="Requeue the job after these events only: preempt, node_fail, timeout.",
    ),
    JobOption(
        name="max-requeue", metavar="COUNT", commands=(SUB,), rivals=("no-requeue",),
        help="Maximum number of automatic requeues.",
    ),
    JobOption(
        name="resume-cost", metavar="TIME", commands=(SUB,),
        help="The job saves its work when preempted and needs this time to resume (default: the cluster's).",
    ),
    JobOption(
        name="kill-on-bad-exit", letter="K", metavar="[=0|1]", if_bare="1",
        help="End a step when one of its tasks fails (1, the default), or do not (0).",
    ),
    JobOption(
        name="no-kill", letter="k", metavar="[=off]", if_bare="on",
        help="Keep the job running when one of its nodes is lost.",
    ),
)  # fmt: skip

_NOTIFIED: tuple[JobOption, ...] = (
    JobOption(
        name="notify", metavar="mail[:ADDRESS]|webhook:URL|slack:URL|command:PROGRAM",
        help="Where to send notifications; may be repeated.",
    ),
    JobOption(
        name="notify-on", metavar="EVENTS",
        help="Events to report: begin, end, fail, requeue, timeout, timeout_50 (80, 90), invalid_depend, array_tasks,"
        " all,"
        " none (end).",
    ),
    JobOption(
        name="mail-type", metavar="EVENTS",
        help="Events to report by mail, as in Slurm: BEGIN, END, FAIL, REQUEUE, TIME_LIMIT_80, ARRAY_TASKS, ALL ...",
    ),
    JobOption(name="mail-user", metavar="ADDRESS", help="Recipient of that mail (default: the job's owner)."),
)  # fmt: skip

_STREAMS: tuple[JobOption, ...] = (
    JobOption(
        name="output", letter="o", metavar="PATTERN", commands=(SUB,),
        help="File for standard output (gq-%j.out); %j job, %x name, %N node, %n node index, %t task, %u user.",
    ),
    JobOption(
        name="output", letter="o", metavar="PATTERN", commands=(RUN,),
        help="File for the tasks' output (default: shown here); with %t, %N or %n a file for each task or node.",
    ),
    JobOption(
        name="error", letter="e", metavar="PATTERN", commands=(SUB, RUN),
        help="File for standard error (default: that of --output).",
    ),
    JobOption(
        name="input", letter="i", metavar="PATTERN", commands=(SUB,),
        help="File for standard input (/dev/null).",
    ),
    JobOption(
        name="input", letter="i", metavar="PATTERN", commands=(RUN,),
        help="Task that receives this command's standard input, none, or a file (default: all tasks).",
    ),
    JobOption(
        name="open-mode", metavar="append|truncate", commands=(SUB, RUN),
        help="Whether to append to existing output files or to overwrite them.",
    ),
    JobOption(name="label", letter="l", commands=(RUN,), help="Prefix each line with the rank of its task."),
    JobOption(
        name="unbuffered", letter="u", commands=(RUN,), help="Forward output as it arrives, not line by line.",
    ),
    JobOption(name="pty", commands=(RUN,), help="Run task 0 in a pseudo-terminal connected to this terminal."),
)  # fmt: skip

_COMMAND: tuple[JobOption, ...] = (
    JobOption(name="parsable", commands=(SUB,), help="Print only the job id."),
    JobOption(name="wait", letter="W", commands=(SUB,), help="Wait for the job to end and exit with its exit code."),
    JobOption(name="test-only", commands=(SUB,), help="Validate the job and estimate its start; queue nothing."),
    JobOption(
        name="what-if", commands=(SUB,), in_header=False,
        help="Show alternative requests with their estimated start and end; queue nothing.",
    ),
)  # fmt: skip

GROUPS: dict[str, tuple[JobOption, ...]] = {
    "What runs": _WHAT,
    "Resources": _NEEDS,
    "Where it runs": _WHERE,
    "When it starts": _WHEN,
    "How it ends": _END,
    "Who is notified": _NOTIFIED,
    "Input and output": _STREAMS,
    "What this command does": _COMMAND,
}
"""Options under the headings of the help texts, in this order."""

_UNBUILT: tuple[JobOption, ...] = (
    *(
        JobOption(name=name, letter=letter, metavar=metavar, is_unbuilt=True, is_hidden=True)
        for name, letter, metavar in (
            ("time-min", "", "TIME"),
        )
    ),
)  # fmt: skip
"""Options that a later version will implement."""

JOB_OPTIONS: tuple[JobOption, ...] = (
    *(msgspec.structs.replace(option, group=heading) for heading, group in GROUPS.items() for option in group),
    *_UNBUILT,
)

RESOURCE_OPTIONS = tuple(option for option in JOB_OPTIONS if isinstance(option, ResourceOption))
RESOURCE_NAMES = frozenset(option.name for option in RESOURCE_OPTIONS)
OPTION_OF_FIELD = {option.sets: f"--{option.name}" for option in RESOURCE_OPTIONS}
STEP_SIZES = {
    option.name.replace("-", "_"): option.minimum
    for option in RESOURCE_OPTIONS
    if option.in_steps and option.minimum is not None
}
"""Field of `StepRequest` for a number of nodes, tasks, CPUs or GPUs → the minimum of that number."""

NO_EFFECT: tuple[Option, ...] = (
    Option(name="wckey", metavar="NAME"),
    Option(name="hint", metavar="TYPE"),
    Option(name="get-user-env", metavar="[=LIMIT]", if_bare=""),
    Option(name="contiguous"),
    Option(name="threads-per-core", metavar="COUNT"),
)
"""Options accepted in ``#SBATCH`` lines without effect and with a note, since clients always write them."""


def options_of(command: str) -> tuple[JobOption, ...]:
    """Return the options of `gqsub`, `gqrun` or `gqalloc`; unbuilt options are included, to be refused."""
    return tuple(option for option in JOB_OPTIONS if command in option.commands)


def shown_options(command: str) -> tuple[JobOption, ...]:
    """Return the options that work, for help, completion and man page."""
    return tuple(option for option in options_of(command) if not option.is_unbuilt)


def header_options() -> tuple[JobOption, ...]:
    """Return the options that a script's header may have."""
    return tuple(option for option in options_of(SUB) if option.in_header)
