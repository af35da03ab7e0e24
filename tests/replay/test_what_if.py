"""What `gqsub --what-if` predicts of each alternative, against the simulator that is then given that alternative."""

from __future__ import annotations

import random

import msgspec
import pytest

from gq.model.estimate import Alternative
from gq.model.ids import RequestId
from gq.model.job import JobSpec
from gq.request.getopt import parse
from gq.request.jobspec import Submission, job_spec
from gq.request.layers import job_arguments
from gq.request.options import SUB, options_of
from gq.wire import client
from gqd.sim.engine import EPOCH, Engine
from gqd.sim.workload import SimJob
from gqd.state.effect import Reply
from gqd.state.input import ClientRequest
from tests.effort import first
from tests.replay.traces import ALL, engine_of, job

CLUSTER = {ALL: (3, 4)}
ASKED_S = 700.5
"""When it is asked: nothing else happens in this moment."""
QUESTION = "what if"
LIMIT_S = 3600


class Asking(Engine):
    """In the place of one job, what else could be asked for is asked."""

    answer: tuple[Alternative, ...] = ()

    def _submit(self, position: int, now: float) -> None:
        job = self._jobs[position]
        if job.name != QUESTION:
            super()._submit(position, now)
            return
        spec = JobSpec(
            name=QUESTION, resources=job.resources, partition=job.partition, time_limit_s=LIMIT_S, account=job.account
        )
        peer, body = self._peers[job.user], client.WhatIf(spec=spec)
        request = ClientRequest(peer=peer, route=("clients", b""), request_id=RequestId(b"?" * 16), body=body)
        effects = self.controller.handle(request, now).effects
        while not self.answer:
            replies = [one.body for one in effects if isinstance(one, Reply)]
            self.answer = next((one.alternatives for one in replies if isinstance(one, client.Alternatives)), ())
            effects = self.controller.estimate(100_000, now).effects


def to_its_limit(name: str, submit_s: float, gpus: int, limit_s: int) -> SimJob:
    return job(name, submit_s, limit_s, gpus, limit_s=limit_s)


def queue(chance: random.Random) -> list[SimJob]:
    arrivals = sorted(chance.randrange(600) for _ in range(14))
    widths = (1, 2, 3, 4, 6, 8, 12)
    return [
        to_its_limit(f"j{number}", at, chance.choice(widths), 60 * chance.randint(1, 60))
        for number, at in enumerate(arrivals)
    ]


def altered(asked: SimJob, options: str) -> SimJob:
    """The job with these options put on the command line."""
    words = [f"--gpus={asked.gpus}", f"--time={LIMIT_S}s", *options.split()]
    where = Submission(name="job", submit_dir="/", submit_host="login", umask=0o22, now=0.0, command="/job.sh")
    spec = job_spec(job_arguments(SUB, parse(words, options_of(SUB))[0], {}), where)
    limit_s = float(spec.time_limit_s or LIMIT_S)
    return msgspec.structs.replace(asked, resources=spec.resources, limit_s=limit_s, duration_s=limit_s)


@pytest.mark.parametrize("policy", first(3, ["default", "easy-user", "fifo", "conservative"]))
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_what_if_equals_what_the_simulator_then_does(seed: int, policy: str) -> None:
    jobs = queue(random.Random(seed))
    asked = altered(to_its_limit("it", ASKED_S, 6, LIMIT_S), "")
    asking = engine_of(Asking, policy, [*jobs, msgspec.structs.replace(asked, name=QUESTION)], CLUSTER)
    asking.run()
    assert asking.answer[0].options == ""
    for one in asking.answer:
        run = engine_of(Engine, policy, [*jobs, altered(asked, one.options)], CLUSTER).run()
        predicted = tuple(at and at - EPOCH for at in (one.start_at, one.end_at))
        assert predicted == (run.starts_s[-1], run.ends_s[-1]), one
