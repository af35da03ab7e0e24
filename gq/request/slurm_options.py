"""The options of Slurm's commands for jobs, queue and history, and gq's alternatives to those that it lacks.  Pure.

The table names every documented option of `sbatch`, `srun`, `salloc`, `squeue`, `sacct` and `scancel` of Slurm 22.05,
25.05 and 25.11, and the commonly used options of `sinfo`, `sprio` and `sshare`.  Options that gq has are decided
elsewhere.  The module is loaded only when a command or a script header has an option that gq does not know, so that the
refusal can name the way out.
"""

from __future__ import annotations

from typing import NamedTuple

from gq.errors import UsageError
from gq.request.options import ALLOC, JOB_OPTIONS, RUN, SUB, shown_options

SBATCH, SRUN, SALLOC, SQUEUE, SINFO = "sbatch", "srun", "salloc", "squeue", "sinfo"
SACCT, SCANCEL, SPRIO, SSHARE = "sacct", "scancel", "sprio", "sshare"
COUNTERPARTS = {
    SUB: SBATCH, RUN: SRUN, ALLOC: SALLOC, "gqstat": SQUEUE, "gqinfo": SINFO, "gqacct": SACCT, "gqdel": SCANCEL,
    "gqprio": SPRIO, "gqshare": SSHARE,
}  # fmt: skip
"""Command of gq → its counterpart in Slurm."""


class SlurmOption(NamedTuple):
    """An option of Slurm."""

    name: str
    """Long name, without dashes."""
    commands: tuple[str, ...]
    """Commands of Slurm that have it."""
    letter: str = ""
    instead: str = ""
    """The alternative in gq, for commands whose counterpart lacks the option; empty: every counterpart has it."""


_ALL = (SBATCH, SRUN, SALLOC, SQUEUE)
_JOB = (SBATCH, SRUN, SALLOC)
_BATCH_RUN = (SBATCH, SRUN)
_BATCH_ALLOC = (SBATCH, SALLOC)
_RUN_ALLOC = (SRUN, SALLOC)
_ORDER = (SPRIO, SSHARE)

NOTHING = "leave it out: gq has nothing like it"
_BINDING = "leave it out: steps have CPUs and GPUs of their own; numactl and taskset bind further"
_BURST = "leave it out: gq has no burst buffers"
_BOOT = "leave it out: gq does not boot nodes for jobs"
_CLUSTERS = "the variables GQ_DIR and GQ_CONFIG choose the cluster"
_CONTAINER = "start the container in the script, for instance with `apptainer exec` or `podman run`"
_COPY = "put the program where all nodes of the job see it"
_FEDERATION = "leave it out: gq has no federations of clusters"
_INFO_COLUMNS = "choose fields of `gqinfo --json` with jq"
_INFO_STATES = "`gqinfo -N` shows the state of every node; `gqinfo --json` lists it for jq"
_JSON_AND_JQ = "choose from `gqacct --json` with jq"
_SEGMENTS = "use --switches=COUNT: it limits how many leaf switches the nodes are under"
_SOCKETS = "gq counts CPUs, not sockets and cores: use --cpus-per-task and --ntasks-per-node"
_WRAPPED = "make it part of the command: `gqrun sh -c 'BEFORE; COMMAND; AFTER'`"

SLURM_OPTIONS: tuple[SlurmOption, ...] = (
    # ── of jobs ───────────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("account", _ALL, "A"),
    SlurmOption("acctg-freq", _JOB, instead=NOTHING),
    SlurmOption("array", (SBATCH,), "a"),
    SlurmOption("batch", (SBATCH,), instead="leave it out: the script runs on the first node of the job"),
    SlurmOption("bb", _JOB, instead=_BURST),
    SlurmOption("bbf", _JOB, instead=_BURST),
    SlurmOption("begin", _JOB, "b"),
    SlurmOption("bell", (SALLOC,), instead=NOTHING),
    SlurmOption("chdir", _JOB, "D"),
    SlurmOption("cluster-constraint", _JOB, instead=_FEDERATION),
    SlurmOption("clusters", _ALL, "M", _CLUSTERS),
    SlurmOption("comment", _JOB),
    SlurmOption("consolidate-segments", _JOB, instead=_SEGMENTS),
    SlurmOption("constraint", _JOB, "C"),
    SlurmOption("container", _JOB, instead=_CONTAINER),
    SlurmOption("container-id", _JOB, instead=_CONTAINER),
    SlurmOption("container-type", _JOB, instead=_CONTAINER),
    SlurmOption("contiguous", _JOB, instead="use --switches=1 for nodes that are close to each other"),
    SlurmOption("core-spec", _JOB, "S", NOTHING),
    SlurmOption("cores-per-socket", _JOB, instead=_SOCKETS),
    SlurmOption("cpu-freq", _JOB, instead=NOTHING),
    SlurmOption("cpus-per-gpu", _JOB),
    SlurmOption("cpus-per-task", _JOB, "c"),
    SlurmOption("deadline", _JOB),
    SlurmOption("delay-boot", _JOB, instead=_BOOT),
    SlurmOption("dependency", _JOB, "d"),
    SlurmOption("distribution", _JOB, "m", "use --ntasks-per-node to say how many tasks each node gets"),
    SlurmOption("error", _BATCH_RUN, "e"),
    SlurmOption("exclude", _JOB, "x"),
    SlurmOption("exclusive", _JOB),
    SlurmOption("export", _BATCH_RUN),
    SlurmOption("export-file", (SBATCH,), instead="use --export=ALL,NAME=VALUE,... or set variables in the script"),
    SlurmOption("extra", _JOB, instead="use --comment=TEXT for a text, --constraint to choose nodes by attributes"),
    SlurmOption("extra-node-info", _JOB, "B", _SOCKETS),
    SlurmOption("get-user-env", _BATCH_ALLOC, instead="use --export=NONE: a job has then what a login sets"),
    SlurmOption("gid", _JOB, instead="submit as that user: `runuser -u USER -g GROUP -- gqsub ...`"),
    SlurmOption("gpu-bind", _JOB, instead="use --gpus-per-task: each task has GPUs of its own"),
    SlurmOption("gpu-freq", _JOB, instead=NOTHING),
    SlurmOption("gpus", _JOB, "G"),
    SlurmOption("gpus-per-node", _JOB),
    SlurmOption("gpus-per-socket", _JOB, instead="gq counts no sockets: use --gpus-per-node"),
    SlurmOption("gpus-per-task", _JOB),
    SlurmOption("gres", _JOB),
    SlurmOption("gres-flags", _JOB, instead=NOTHING),
    SlurmOption("help", _ALL, "h"),
    SlurmOption("hint", _JOB, instead=_SOCKETS),
    SlurmOption("hold", _JOB, "H"),
    SlurmOption("ignore-pbs", (SBATCH,), instead="delete the #PBS lines of the script"),
    SlurmOption("immediate", _RUN_ALLOC, "I", "`gqsub --test-only` tells when a job would start"),
    SlurmOption("input", _BATCH_RUN, "i"),
    SlurmOption("job-name", _JOB, "J"),
    SlurmOption("kill-command", (SALLOC,), "K", "use --signal=SIG@SECONDS for a signal before the time limit"),
    SlurmOption("kill-on-invalid-dep", (SBATCH,)),
    SlurmOption("licenses", _JOB, "L"),
    SlurmOption("mail-type", _JOB),
    SlurmOption("mail-user", _JOB),
    SlurmOption("mcs-label", _JOB, instead=NOTHING),
    SlurmOption("mem", _JOB),
    SlurmOption("mem-bind", _JOB, instead=_BINDING),
    SlurmOption("mem-per-cpu", _JOB),
    SlurmOption("mem-per-gpu", _JOB),
    SlurmOption("mem-update", _JOB, instead=NOTHING),
    SlurmOption("mincpus", _JOB, instead="use --ntasks-per-node and --cpus-per-task"),
    SlurmOption("network", _JOB, instead=NOTHING),
    SlurmOption("nice", _JOB),
    SlurmOption("no-bell", (SALLOC,), instead=NOTHING),
    SlurmOption("no-kill", _JOB, "k"),
    SlurmOption("no-requeue", (SBATCH,)),
    SlurmOption(
        "no-shell", (SALLOC,),
        instead="`gqsub --wrap 'sleep infinity'` holds resources, `gqrun --jobid=JOB` uses them",
    ),
    SlurmOption("nodefile", _JOB, "F", "use --nodelist=n1,n2 or --nodelist=$(paste -sd, FILE)"),
    SlurmOption("nodelist", _ALL, "w"),
    SlurmOption("nodes", _JOB, "N"),
    SlurmOption("ntasks", _JOB, "n"),
    SlurmOption("ntasks-per-core", _JOB, instead=_SOCKETS),
    SlurmOption("ntasks-per-gpu", _JOB),
    SlurmOption("ntasks-per-node", _JOB),
    SlurmOption("ntasks-per-socket", _JOB, instead=_SOCKETS),
    SlurmOption("oom-kill-step", _JOB, instead=NOTHING),
    SlurmOption("open-mode", _BATCH_RUN),
    SlurmOption("output", _BATCH_RUN, "o"),
    SlurmOption("overcommit", _JOB, "O", "leave it out: each task has CPUs of its own; --cpus-per-task says how many"),
    SlurmOption("oversubscribe", _JOB, "s", "leave it out: jobs share nodes unless --exclusive is given"),
    SlurmOption("parsable", (SBATCH,)),
    SlurmOption("partition", _ALL, "p"),
    SlurmOption("power", _JOB, instead=NOTHING),
    SlurmOption("prefer", _JOB),
    SlurmOption("priority", _JOB),
    SlurmOption("profile", _JOB, instead=NOTHING),
    SlurmOption("propagate", _BATCH_RUN, instead="use `ulimit` in the script"),
    SlurmOption("qos", _ALL, "q"),
    SlurmOption("quiet", _JOB, "Q", "leave it out, or redirect notes: 2>/dev/null"),
    SlurmOption("reboot", _JOB, instead=_BOOT),
    SlurmOption("requeue", (SBATCH,)),
    SlurmOption("reservation", _JOB),
    SlurmOption("resources", _JOB, instead="use --licenses for what the cluster shares, --gres for what nodes have"),
    SlurmOption("resv-ports", _JOB, instead="leave it out: MASTER_PORT is a port that only this job uses"),
    SlurmOption("segment", _JOB, instead=_SEGMENTS),
    SlurmOption("signal", _JOB),
    SlurmOption("sockets-per-node", _JOB, instead=_SOCKETS),
    SlurmOption("spread-job", _JOB, instead="use --nodes with --ntasks-per-node or --gpus-per-node"),
    SlurmOption("spread-segments", _JOB, instead=_SEGMENTS),
    SlurmOption("stepmgr", _JOB, instead=NOTHING),
    SlurmOption("switches", _JOB),
    SlurmOption("tasks-per-node", _JOB),
    SlurmOption("test-only", _BATCH_RUN, instead="`gqsub --test-only` tells when a job would start"),
    SlurmOption("thread-spec", _JOB, instead=NOTHING),
    SlurmOption("threads-per-core", _JOB, instead=_SOCKETS),
    SlurmOption("time", _JOB, "t"),
    SlurmOption("time-min", _JOB),
    SlurmOption("tmp", _JOB),
    SlurmOption("tres-bind", _JOB, instead=_BINDING),
    SlurmOption("tres-per-task", _JOB, instead="use --cpus-per-task, --gpus-per-task and --gres"),
    SlurmOption("uid", _JOB, instead="submit as that user: `runuser -u USER -- gqsub ...`"),
    SlurmOption("usage", _ALL, instead="use --help"),
    SlurmOption("use-min-nodes", _JOB, instead="give one number of nodes: --nodes=COUNT"),
    SlurmOption("verbose", _ALL, "v", "leave it out: `gqwhy JOB` tells what a job waits for"),
    SlurmOption("version", _ALL, "V"),
    SlurmOption("wait", (SBATCH,), "W"),
    SlurmOption("wait-all-nodes", _BATCH_ALLOC, instead="leave it out: a job starts when all its nodes are ready"),
    SlurmOption("wckey", _JOB, instead="use --comment=TEXT or --account=NAME"),
    SlurmOption("wrap", (SBATCH,)),
    SlurmOption("x11", _RUN_ALLOC, instead=NOTHING),
    # ── of steps ──────────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("accel-bind", (SRUN,), instead=_BINDING),
    SlurmOption("bcast", (SRUN,), instead=_COPY),
    SlurmOption("bcast-exclude", (SRUN,), instead=_COPY),
    SlurmOption("compress", (SRUN,), instead=_COPY),
    SlurmOption("cpu-bind", (SRUN,), instead=_BINDING),
    SlurmOption("disable-status", (SRUN,), "X", "leave it out: Ctrl-C interrupts the tasks at once"),
    SlurmOption("epilog", (SRUN,), instead=_WRAPPED),
    SlurmOption("exact", (SRUN,), instead="leave it out: steps have CPUs and GPUs of their own"),
    SlurmOption("external", (SRUN,), instead=NOTHING),
    SlurmOption("external-launcher", (SRUN,), instead=NOTHING),
    SlurmOption("het-group", (SRUN,)),
    SlurmOption("jobid", (SRUN,)),
    SlurmOption("kill-on-bad-exit", (SRUN,), "K"),
    SlurmOption("label", (SRUN,), "l"),
    SlurmOption("mpi", (SRUN,), instead="leave it out: gqrun has no PMI; start MPI programs with mpirun"),
    SlurmOption("msg-timeout", (SRUN,), instead=NOTHING),
    SlurmOption("multi-prog", (SRUN,), instead="name each program: `gqrun -n1 PROGRAM : -n4 OTHER`"),
    SlurmOption("no-allocate", (SRUN,), "Z", NOTHING),
    SlurmOption("overlap", (SRUN,)),
    SlurmOption("preserve-env", (SRUN,), "E", "leave it out: tasks have the variables of this shell"),
    SlurmOption("prolog", (SRUN,), instead=_WRAPPED),
    SlurmOption("pty", (SRUN,)),
    SlurmOption("quit-on-interrupt", (SRUN,), instead="leave it out: Ctrl-C interrupts the tasks at once"),
    SlurmOption("relative", (SRUN,), "r", "use --nodelist to name the nodes of the step"),
    SlurmOption("send-libs", (SRUN,), instead=_COPY),
    SlurmOption("slurmd-debug", (SRUN,), instead=NOTHING),
    SlurmOption("task-epilog", (SRUN,), instead=_WRAPPED),
    SlurmOption("task-prolog", (SRUN,), instead=_WRAPPED),
    SlurmOption("threads", (SRUN,), "T", NOTHING),
    SlurmOption("treewidth", (SRUN,), instead=NOTHING),
    SlurmOption("unbuffered", (SRUN,), "u"),
    SlurmOption("wait", (SRUN,), "W", "leave it out: gqrun waits for all tasks; --kill-on-bad-exit ends them early"),
    SlurmOption("wait-for-children", (SRUN,), instead=NOTHING),
    # ── of the queue ──────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("all", (SQUEUE,), "a", "leave it out: jobs of all partitions are shown"),
    SlurmOption("array", (SQUEUE,), "r"),
    SlurmOption("array-unique", (SQUEUE,), instead="use --array: a line for each task"),
    SlurmOption("expand-patterns", (SQUEUE,), instead="use `-O stdout,stderr`: it shows the names of the files"),
    SlurmOption("federation", (SQUEUE,), instead=_FEDERATION),
    SlurmOption("format", (SQUEUE,), "o"),
    SlurmOption("Format", (SQUEUE,), "O"),
    SlurmOption("hide", (SQUEUE,), instead="use --partition=NAME to show the jobs of one partition"),
    SlurmOption("iterate", (SQUEUE,), "i"),
    SlurmOption("jobs", (SQUEUE,), "j"),
    SlurmOption("json", (SQUEUE,)),
    SlurmOption("licenses", (SQUEUE,), "L", "use `-O jobid,licenses`: it shows the licences of each job"),
    SlurmOption("local", (SQUEUE,), instead=_FEDERATION),
    SlurmOption("long", (SQUEUE,), "l", "use -O to choose the columns: `-O jobid,state,timelimit,nodelist`"),
    SlurmOption("me", (SQUEUE,)),
    SlurmOption("name", (SQUEUE,), "n"),
    SlurmOption("noconvert", (SQUEUE,), instead="use --json: numbers are plain there"),
    SlurmOption("noheader", (SQUEUE,), "h"),
    SlurmOption("notme", (SQUEUE,), instead="use --user=NAMES to choose whose jobs are shown"),
    SlurmOption("only-job-state", (SQUEUE,), instead="use `-O jobid,state`"),
    SlurmOption("priority", (SQUEUE,), "P", "use `gqprio`: it shows pending jobs with their priority"),
    SlurmOption("reservation", (SQUEUE,), "R", "use `-O jobid,reservation`: it shows the reservation of each job"),
    SlurmOption("running-over", (SQUEUE,), instead="use `-O jobid,timeused,timelimit`"),
    SlurmOption("running-under", (SQUEUE,), instead="use `-O jobid,timeused,timelimit`"),
    SlurmOption("sibling", (SQUEUE,), instead=_FEDERATION),
    SlurmOption("sort", (SQUEUE,), "S"),
    SlurmOption("start", (SQUEUE,)),
    SlurmOption("states", (SQUEUE,), "t"),
    SlurmOption("steps", (SQUEUE,), "s", "use `gqacct -j JOB`: it lists the steps of a job"),
    SlurmOption("user", (SQUEUE,), "u"),
    SlurmOption("yaml", (SQUEUE,), instead="use --json"),
    # ── of sinfo ──────────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("all", (SINFO,), "a", "leave it out: all partitions are shown"),
    SlurmOption("clusters", (SINFO,), "M", _CLUSTERS),
    SlurmOption("dead", (SINFO,), "d", _INFO_STATES),
    SlurmOption("exact", (SINFO,), "e", "use -N: it shows each node by itself"),
    SlurmOption("federation", (SINFO,), instead=_FEDERATION),
    SlurmOption("format", (SINFO,), "o", _INFO_COLUMNS),
    SlurmOption("Format", (SINFO,), "O", _INFO_COLUMNS),
    SlurmOption("future", (SINFO,), "F", NOTHING),
    SlurmOption("help", (SINFO,)),
    SlurmOption("hide", (SINFO,), instead="use --partition=NAME to show one partition"),
    SlurmOption("iterate", (SINFO,), "i", "use watch(1): `watch gqinfo`"),
    SlurmOption("json", (SINFO,)),
    SlurmOption("list-reasons", (SINFO,), "R", "use -N: its last column is the reason why a node is out of use"),
    SlurmOption("local", (SINFO,), instead=_FEDERATION),
    SlurmOption("long", (SINFO,), "l", "use -N: it shows each node, with what it enforces"),
    SlurmOption("noconvert", (SINFO,), instead="use --json: numbers are plain there"),
    SlurmOption("Node", (SINFO,), "N"),
    SlurmOption("nodes", (SINFO,), "n"),
    SlurmOption("noheader", (SINFO,), "h"),
    SlurmOption("partition", (SINFO,), "p"),
    SlurmOption("reservation", (SINFO,), "T", "use `gqresv list`"),
    SlurmOption("responding", (SINFO,), "r", _INFO_STATES),
    SlurmOption("sort", (SINFO,), "S", "sort `gqinfo --json` with jq"),
    SlurmOption("states", (SINFO,), "t", _INFO_STATES),
    SlurmOption("summarize", (SINFO,), "s", "leave it out: without -N there is one line for each partition"),
    SlurmOption("usage", (SINFO,), instead="use --help"),
    SlurmOption("verbose", (SINFO,), "v", "use -N"),
    SlurmOption("version", (SINFO,), "V"),
    SlurmOption("yaml", (SINFO,), instead="use --json"),
    # ── of sacct ──────────────────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("accounts", (SACCT,), "A"),
    SlurmOption("allclusters", (SACCT,), "L", _CLUSTERS),
    SlurmOption("allocations", (SACCT,), "X"),
    SlurmOption("allusers", (SACCT,), "a"),
    SlurmOption("array", (SACCT,), instead="use `-j ARRAY`: tasks of an array have lines of their own"),
    SlurmOption("associations", (SACCT,), "x", "use --account and --user"),
    SlurmOption("batch-script", (SACCT,), "B", "use `-o jobid,command`: it shows the file of the script"),
    SlurmOption("brief", (SACCT,), "b", "use `-o jobid,state,exitcode`"),
    SlurmOption("clusters", (SACCT,), "M", _CLUSTERS),
    SlurmOption("completion", (SACCT,), "c", NOTHING),
    SlurmOption("constraints", (SACCT,), "C", "use `-o jobid,constraints`: it shows the constraint of each job"),
    SlurmOption("delimiter", (SACCT,), instead="use -P, and `tr '|' ';'` behind it"),
    SlurmOption("duplicates", (SACCT,), "D", "use `-o jobid,restarts`: a requeued job has one line"),
    SlurmOption("endtime", (SACCT,), "E"),
    SlurmOption("env-vars", (SACCT,), instead=NOTHING),
    SlurmOption("expand-patterns", (SACCT,), instead="use `-o stdout,stderr`: it shows the names of the files"),
    SlurmOption("federation", (SACCT,), instead=_FEDERATION),
    SlurmOption("file", (SACCT,), "f", "leave it out: gqacct reads the database of the controller"),
    SlurmOption("flags", (SACCT,), "F", NOTHING),
    SlurmOption("format", (SACCT,), "o"),
    SlurmOption("gid", (SACCT,), "g", "use --user=NAMES to choose whose jobs are shown"),
    SlurmOption("group", (SACCT,), instead="use --user=NAMES to choose whose jobs are shown"),
    SlurmOption("help", (SACCT,), "h"),
    SlurmOption("helpformat", (SACCT,), "e"),
    SlurmOption("jobs", (SACCT,), "j"),
    SlurmOption("json", (SACCT,)),
    SlurmOption("local", (SACCT,), instead=_FEDERATION),
    SlurmOption("long", (SACCT,), "l", "use -o with the fields that you want; `gqacct -e` lists them"),
    SlurmOption("name", (SACCT,)),
    SlurmOption("ncpus", (SACCT,), "I", _JSON_AND_JQ),
    SlurmOption("nnodes", (SACCT,), "i", _JSON_AND_JQ),
    SlurmOption("noconvert", (SACCT,), instead="use --json: numbers are plain there"),
    SlurmOption("nodelist", (SACCT,), "N"),
    SlurmOption("noheader", (SACCT,), "n"),
    SlurmOption("parsable", (SACCT,), "p"),
    SlurmOption("parsable2", (SACCT,), "P"),
    SlurmOption("partition", (SACCT,), "r"),
    SlurmOption("qos", (SACCT,), "q"),
    SlurmOption("reason", (SACCT,), "R", _JSON_AND_JQ),
    SlurmOption("starttime", (SACCT,), "S"),
    SlurmOption("state", (SACCT,), "s"),
    SlurmOption("timelimit-max", (SACCT,), "K", _JSON_AND_JQ),
    SlurmOption("timelimit-min", (SACCT,), "k", _JSON_AND_JQ),
    SlurmOption("truncate", (SACCT,), "T", "leave it out: each job is shown with its own start and end"),
    SlurmOption("uid", (SACCT,), instead="use --user=NAMES"),
    SlurmOption("units", (SACCT,), instead="use --json: memory is in MiB there"),
    SlurmOption("usage", (SACCT,), instead="use --help"),
    SlurmOption("use-local-uid", (SACCT,), instead="leave it out: names of users are those of the controller's host"),
    SlurmOption("user", (SACCT,), "u"),
    SlurmOption("verbose", (SACCT,), "v", "leave it out: `gqwhy JOB` tells how a job ended"),
    SlurmOption("version", (SACCT,), "V"),
    SlurmOption("wckeys", (SACCT,), "W", "use --account=NAMES"),
    SlurmOption("whole-hetjob", (SACCT,), instead="use `-o jobid,roles`: a job with several roles is one job"),
    SlurmOption("yaml", (SACCT,), instead="use --json"),
    # ── of scancel ────────────────────────────────────────────────────────────────────────────────────────────────────
    SlurmOption("account", (SCANCEL,), "A"),
    SlurmOption("admin-comment", (SCANCEL,), instead="leave it out: `gqctl audit` shows who cancelled which job"),
    SlurmOption("batch", (SCANCEL,), "b"),
    SlurmOption("clusters", (SCANCEL,), "M", _CLUSTERS),
    SlurmOption("cron", (SCANCEL,), instead="use `gqcron -e` to remove an entry from the crontab"),
    SlurmOption("ctld", (SCANCEL,), "c", "leave it out: signals always go through the controller"),
    SlurmOption("full", (SCANCEL,), "f"),
    SlurmOption("help", (SCANCEL,)),
    SlurmOption("hurry", (SCANCEL,), "H", NOTHING),
    SlurmOption("interactive", (SCANCEL,), "i", "`gqstat` with the same filters shows first which jobs are meant"),
    SlurmOption("me", (SCANCEL,)),
    SlurmOption("name", (SCANCEL,), "n"),
    SlurmOption("nodelist", (SCANCEL,), "w"),
    SlurmOption("partition", (SCANCEL,), "p"),
    SlurmOption("qos", (SCANCEL,), "q"),
    SlurmOption("quiet", (SCANCEL,), "Q"),
    SlurmOption("reservation", (SCANCEL,), "R", "`gqstat -O jobid,reservation` shows the jobs of each; name their ids"),
    SlurmOption("sibling", (SCANCEL,), instead=_FEDERATION),
    SlurmOption("signal", (SCANCEL,), "s"),
    SlurmOption("state", (SCANCEL,), "t"),
    SlurmOption("usage", (SCANCEL,), instead="use --help"),
    SlurmOption("user", (SCANCEL,), "u"),
    SlurmOption("verbose", (SCANCEL,), "v"),
    SlurmOption("version", (SCANCEL,), "V"),
    SlurmOption("wckey", (SCANCEL,), instead="use --account=NAMES"),
    # ── of sprio and sshare ───────────────────────────────────────────────────────────────────────────────────
    SlurmOption("clusters", _ORDER, "M", _CLUSTERS),
    SlurmOption("help", _ORDER),
    SlurmOption("json", _ORDER),
    SlurmOption("noheader", _ORDER, "h"),
    SlurmOption("usage", _ORDER, instead="use --help"),
    SlurmOption("verbose", _ORDER, "v", "leave it out: `gqshare --explain=USER` tells more of a user"),
    SlurmOption("version", _ORDER, "V"),
    SlurmOption("yaml", _ORDER, instead="use --json"),
    SlurmOption("federation", (SPRIO,), instead=_FEDERATION),
    SlurmOption("format", (SPRIO,), "o", "choose fields of `gqprio --json` with jq"),
    SlurmOption("jobs", (SPRIO,), "j"),
    SlurmOption("local", (SPRIO,), instead=_FEDERATION),
    SlurmOption("long", (SPRIO,), "l", "leave it out: all factors that give points are shown"),
    SlurmOption("norm", (SPRIO,), "n"),
    SlurmOption("partition", (SPRIO,), "p"),
    SlurmOption("sibling", (SPRIO,), instead=_FEDERATION),
    SlurmOption("sort", (SPRIO,), "S", "leave it out: the highest priority comes first"),
    SlurmOption("user", (SPRIO,), "u"),
    SlurmOption("weights", (SPRIO,), "w"),
    SlurmOption("accounts", (SSHARE,), "A"),
    SlurmOption("all", (SSHARE,), "a"),
    SlurmOption("format", (SSHARE,), "o", "choose fields of `gqshare --json` with jq"),
    SlurmOption("helpformat", (SSHARE,), "e", "`gqshare --json` shows all fields"),
    SlurmOption("long", (SSHARE,), "l", "`gqshare --json` shows all fields"),
    SlurmOption("noconvert", (SSHARE,), instead="use --json: numbers are plain there"),
    SlurmOption("parsable", (SSHARE,), "p", "use --json"),
    SlurmOption("parsable2", (SSHARE,), "P", "use --json"),
    SlurmOption("partition", (SSHARE,), "m", "leave it out: shares are of accounts and users"),
    SlurmOption("users", (SSHARE,), "u"),
    SlurmOption("Users", (SSHARE,), "U", "name users with --user: the accounts above them are shown, too"),
)  # fmt: skip

GUESSES = {
    "cpus": "cpus-per-task", "memory": "mem", "name": "job-name", "node": "nodes", "queue": "partition",
    "tasks": "ntasks", "walltime": "time",
}  # fmt: skip
"""Names that users try first → the intended job option."""
RESERVATION_GUESSES = {
    "begin": "start", "begintime": "start", "corecnt": "gpus", "count": "gpus", "endtime": "end", "group": "users",
    "nodecnt": "nodes", "starttime": "start", "time": "duration", "tres": "gpus",
}  # fmt: skip
"""Names that users try first for `gqresv create` and `gqresv update`, including words of scontrol(1) → the option."""


def refusal(command: str, written: str, source: str = "") -> UsageError | None:
    """Return the refusal of an option that Slurm, or another command of gq, has and `command` lacks.

    `written`: with its dashes; `source`: ``job.sh:3`` for a header line.  None for an unknown option.
    """
    place = f"{source}: " if source else ""
    if found := _find(COUNTERPARTS.get(command, ""), written):
        spelt = f"`{written}`" if written == f"--{found.name}" else f"`{written}` (--{found.name})"
        if found.instead:
            message = f"{place}unknown option {spelt}: Slurm has it, gq does not"
            return UsageError("unknown_option", message, found.instead)
    hint = _hint(command, written)
    return UsageError("unknown_option", f"{place}unknown option `{written}`", hint) if hint else None


def _hint(command: str, written: str) -> str:
    """Return the intended option of gq, or the command that has it; empty: neither is known."""
    if command in ("gqresv create", "gqresv update") and (
        meant := RESERVATION_GUESSES.get(written.removeprefix("--").casefold())
    ):
        return f"did you mean `--{meant}`?"
    if command not in COUNTERPARTS:
        return ""
    if command in (SUB, RUN, ALLOC) and (meant := GUESSES.get(written.removeprefix("--"))):
        return f"did you mean `--{meant}`?"
    commands = _commands_with(written)
    if command in commands:
        return f"it belongs on the command line of `{command}`, not into a script"
    return f"it is an option of {' and '.join(f'`{owner}`' for owner in commands)}" if commands else ""


def _find(slurm_command: str, written: str) -> SlurmOption | None:
    for option in SLURM_OPTIONS:
        names = (f"--{option.name}", f"-{option.letter}" if option.letter else "")
        if slurm_command in option.commands and written in names:
            return option
    return None


def _commands_with(written: str) -> tuple[str, ...]:
    """Return the commands for jobs that have this long option."""
    found = dict.fromkeys(
        command
        for option in JOB_OPTIONS
        if written.startswith("--") and written[2:] in (option.name, *option.aliases)
        for command in option.commands
        if option in shown_options(command)
    )
    return tuple(found)
