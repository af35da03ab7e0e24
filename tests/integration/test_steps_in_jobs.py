"""Steps of batch jobs: much output and input, many at once, cancelled; a `gqrun` that vanishes or is interrupted."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters import ClusterYard, PrivateCluster, wait_until
from tests.integration.jobs import LONG_S, MakeCluster, await_file, await_state, config, submit

MIB = 2**20


pytestmark = pytest.mark.xdist_group("steps_in_jobs")  # so that the cluster is set up once


def made(make: MakeCluster) -> PrivateCluster:
    return make(config=config(nodes=2, cpus=8, gpus=4, grace_s=1, interactive_lost_s=2))


@pytest.fixture(scope="module")
def shared(module_yard: ClusterYard) -> PrivateCluster:
    return made(module_yard.make)


@pytest.fixture
def cluster(shared: PrivateCluster) -> Iterator[PrivateCluster]:
    with shared.lent():
        yield shared


def steps(cluster: PrivateCluster, job: str) -> list[dict[str, object]]:
    [found] = json.loads(cluster.ok("gqacct", "--json", "-j", job))
    return list(found["steps"])


def test_megabytes_arrive_whole_from_both_nodes_through_a_reader_that_is_slow(cluster: PrivateCluster) -> None:
    made = "import sys; [sys.stdout.write(f'{n:063d}\\n') for n in range(2**16)]"
    one = "".join(f"{number:063d}\n" for number in range(2**16))
    script = f"""#!/bin/sh
gqrun -N2 -n2 python3 -c "{made}" | (sleep 0.5; sort | md5sum > sum)
"""
    job = submit(cluster, "-N2", script=script)
    await_state(cluster, job, "COMPLETED")
    both = "".join(sorted((one + one).splitlines(keepends=True)))
    assert (cluster.workdir / "sum").read_text().split()[0] == hashlib.md5(both.encode()).hexdigest()


def test_binary_input_reaches_a_task_of_another_node_unchanged(cluster: PrivateCluster) -> None:
    data = hashlib.shake_128(b"gq").digest(4 * MIB)
    (cluster.workdir / "data").write_bytes(data)
    job = submit(cluster, "-N2", wrap="gqrun -N1 -n1 -w n2 sh -c 'cat > copied; hostname > /dev/null' < data")
    await_state(cluster, job, "COMPLETED")
    assert (cluster.workdir / "copied").read_bytes() == data


def test_steps_at_once_never_share_a_gpu_and_the_rest_wait_their_turn(cluster: PrivateCluster) -> None:
    """Twelve steps of one GPU each on eight GPUs: each holds a lock file named by its GPU while it runs."""
    lock = "held-$GQ_NODENAME-$CUDA_VISIBLE_DEVICES"
    step = f"mkdir {lock} || touch shared; sleep 0.3; rmdir {lock}"
    script = f"""#!/bin/sh
for n in 1 2 3 4 5 6 7 8 9 10 11 12; do gqrun -N1 -n1 -c1 --gpus-per-task=1 sh -c '{step}' & done
wait
"""
    job = submit(cluster, "-N2", "-c8", "--gpus-per-node=4", script=script)
    await_state(cluster, job, "COMPLETED")
    assert not (cluster.workdir / "shared").exists()
    assert [(one["step"], one["state"]) for one in steps(cluster, job)] == [(n, "COMPLETED") for n in range(12)]


def test_one_step_can_be_cancelled_and_the_job_and_the_others_go_on(cluster: PrivateCluster) -> None:
    task = "echo $$ > pid-$GQ_STEP_ID; while [ ! -e go ]; do sleep 0.05; done"
    script = f"""#!/bin/sh
gqrun -N1 -n1 -c1 sh -c '{task}' & first=$!
until [ -e pid-0 ]; do sleep 0.05; done
gqrun -N1 -n1 -c1 sh -c '{task}' & second=$!
wait $first; echo first $?
wait $second; echo second $?
"""
    job = submit(cluster, "-c4", script=script)
    await_file(cluster.workdir / "pid-1")
    cluster.ok("gqdel", f"{job}.0")
    log = cluster.workdir / f"gq-{job}.out"
    wait_until(lambda: "first " in log.read_text(), LONG_S, "the first step has ended")
    (cluster.workdir / "go").touch()
    await_state(cluster, job, "COMPLETED")
    assert log.read_text().splitlines()[-1] == "second 0"
    assert [one["state"] for one in steps(cluster, job)] == ["CANCELLED", "COMPLETED"]


@pytest.mark.slow
def test_tasks_end_when_the_gqrun_that_started_them_is_killed_and_the_job_goes_on(cluster: PrivateCluster) -> None:
    script = """#!/bin/sh
gqrun -N2 sh -c 'echo $$ > pid-$GQ_PROCID; exec sleep 600' & echo $! > gqrun
while [ ! -e go ]; do sleep 0.05; done
gqrun -N2 echo again
"""
    job = submit(cluster, "-N2", script=script)
    tasks = [int(await_file(cluster.workdir / f"pid-{rank}")) for rank in (0, 1)]
    subprocess.run(["kill", "-9", (cluster.workdir / "gqrun").read_text().strip()], check=True)
    wait_until(lambda: not [pid for pid in tasks if Path(f"/proc/{pid}/exe").exists()], LONG_S, "nobody needs them")
    (cluster.workdir / "go").touch()
    await_state(cluster, job, "COMPLETED")
    assert (cluster.workdir / f"gq-{job}.out").read_text().splitlines()[-2:] == ["again", "again"]


def test_ctrl_c_of_a_gqrun_with_a_job_of_its_own_ends_the_tasks_and_gives_the_job_back(cluster: PrivateCluster) -> None:
    process = cluster.start("gqrun", "-N2", "--gpus-per-node=4", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    tasks = [int(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LONG_S)
    assert process.returncode == 128 + signal.SIGINT
    assert not [pid for pid in tasks if Path(f"/proc/{pid}/exe").exists()]
    wait_until(lambda: cluster.ok("gqstat", "--json").strip() == "[]", LONG_S, "the job is gone from the queue")


def test_a_gqrun_that_is_killed_gives_its_job_back_by_itself(cluster: PrivateCluster) -> None:
    process = cluster.start("gqrun", "sh", "-c", "echo $$; exec sleep 600")
    assert process.stdout is not None
    task = int(process.stdout.readline())
    process.kill()
    wait_until(lambda: not Path(f"/proc/{task}/exe").exists(), LONG_S, "its task is ended")
    wait_until(lambda: cluster.ok("gqstat", "--json").strip() == "[]", LONG_S, "and its job given back")


def test_a_step_that_takes_too_much_memory_is_told_from_one_that_fails(cluster: PrivateCluster) -> None:
    eat = "import time; eaten = [b'x' * 2**26 for _ in range(6)]; time.sleep(600)"
    job = submit(cluster, "--mem=96M", wrap=f'gqrun python3 -c "{eat}"; gqrun false')
    await_state(cluster, job, "OUT_OF_MEMORY")
    assert steps(cluster, job)[0]["state"] == "OUT_OF_MEMORY"
