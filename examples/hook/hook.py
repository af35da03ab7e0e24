"""A submit hook to start from: copy it to /etc/gq/hook.py, and name it in gq.toml.

    [controller]
    submit_hook = "/etc/gq/hook.py:submit"

Then `systemctl reload gqd`, or `gqctl config reload`.  See gq-hook(7).
"""

from msgspec.structs import replace

from gq.config.submit_hook import JobSpec, Reject, Submitter

HOUR = 3600
LONGEST_WITHOUT_STAFF = 24 * HOUR


def submit(job: JobSpec, submitter: Submitter) -> JobSpec | None:
    """Give jobs without a time limit two hours and wide jobs their partition; reject long jobs, except for staff."""
    if job.time_limit_s is None:
        job = replace(job, time_limit_s=2 * HOUR)
    elif job.time_limit_s > LONGEST_WITHOUT_STAFF and "staff" not in submitter.groups:
        raise Reject("jobs of more than a day are for staff", "ask for at most --time=1-0, and write checkpoints")
    gpus = job.resources.gpus or job.resources.gpus_per_node or 0
    if gpus > 8 and job.partition is None:
        job = replace(job, partition="wide")
    return job
