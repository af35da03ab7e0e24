"""What is read as a trace: CSV, sacct, SWF, and the cluster beside it; and what is refused, with its place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from gq.errors import UsageError
from gqd.sim.trace import read_trace, with_jitter
from gqd.sim.workload import offered_load, those_that_fit, with_limits, with_load

POOLS = '{"variants": {"all": {"pools": [{"pool": "all", "nodes": 2, "gpus_per_node": 4}]}}}'
BY_ACCOUNT = """{"default": "two", "variants": {
  "one": {"pools": [{"pool": "all", "nodes": 2, "gpus_per_node": 4, "gpu_type": "a100"}]},
  "two": {"pool_by": "vc", "pools": [{"pool": "nlp", "nodes": 1, "gpus_per_node": 4},
                                     {"pool": "cv", "nodes": 1, "gpus_per_node": 8}]}}}"""
CSV = """job_id,user,vc,submit_s,duration_s,gpus,requested_s
b,bob,cv,7,10,8,
a,ada,nlp,5,20,1,60
c,,nlp,7,30,5,
"""
SACCT = """JobID|User|Account|Partition|Submit|Elapsed|Timelimit|AllocTRES|State
7|ada|nlp|gpu|2026-01-01T10:00:30|00:01:40|01:00:00|billing=8,cpu=16,gres/gpu=8,node=1|COMPLETED
7.batch||nlp||2026-01-01T10:00:31|00:01:40||cpu=16,gres/gpu=8|COMPLETED
8|bob|cv|gpu|2026-01-01T10:00:00|1-00:00:00|UNLIMITED|cpu=4,gres/gpu:a100=2|TIMEOUT
9|bob|cv|gpu|2026-01-01T10:00:10|00:00:00|00:10:00||CANCELLED by 7
10|bob|cv|cpu|2026-01-01T10:00:10|00:05:00|00:10:00|cpu=4|COMPLETED
"""
SWF = """; Version: 2.2
; MaxNodes: 4
; MaxProcs: 16
1 0 3 100 4 -1 -1 4 200 -1 1 1 2 -1 -1 -1 -1 -1
2 5 -1 -1 4 -1 -1 4 200 -1 5 1 2 -1 -1 -1 -1 -1
3 9 3 50 -1 -1 -1 8 -1 -1 1 -1 2 -1 -1 -1 -1 -1
"""


def written(folder: Path, name: str, text: str, cluster: str = POOLS) -> Path:
    path = folder / name
    path.write_text(text)
    if cluster:
        (folder / f"{name.partition('.')[0]}.cluster.json").write_text(cluster)
    return path


def test_a_csv_is_read_in_the_order_of_submission_and_equal_ones_in_that_of_the_file(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv", CSV, BY_ACCOUNT))

    shown = [(one.name, one.user, one.account, one.partition, one.submit_s, one.limit_s) for one in trace.jobs]
    assert shown == [
        ("a", "ada", "nlp", "nlp", 5.0, 60.0),
        ("b", "bob", "cv", "cv", 7.0, None),
        ("c", "nlp", "nlp", "nlp", 7.0, None),
    ]


def test_a_gzipped_csv_is_the_same(tmp_path: Path) -> None:
    plain = written(tmp_path, "t.csv", CSV, BY_ACCOUNT)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(CSV.encode()))

    assert read_trace(tmp_path / "t.csv.gz").jobs == read_trace(plain).jobs


def test_a_variant_is_another_cluster_of_the_same_jobs(tmp_path: Path) -> None:
    path = written(tmp_path, "t.csv", CSV, BY_ACCOUNT)

    usual, other = read_trace(path).site, read_trace(path, variant="one").site

    assert ([one.name for one in usual.partitions], usual.gpus) == (["nlp", "cv"], 12)
    assert list(usual.nodes) == ["nlp-1", "cv-1"]
    assert ([one.name for one in other.partitions], other.gpus) == (["all"], 8)
    assert {gpu.type for node in other.nodes.values() for gpu in node.gpus} == {"a100"}


def test_jobs_that_are_wider_than_their_pool_are_dropped_and_counted(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.csv", CSV, BY_ACCOUNT))

    kept, dropped = those_that_fit(trace.jobs, trace.site)

    assert [one.name for one in kept] == ["a", "b"]
    assert [(one.name, one.why) for one in dropped] == [("c", "it asks for 5 GPUs, partition nlp has 4")]


def test_what_sacct_prints_is_read_without_steps_and_without_jobs_that_never_ran_on_gpus(tmp_path: Path) -> None:
    jobs = read_trace(written(tmp_path, "t.txt", SACCT)).jobs

    shown = [(one.name, one.user, one.account, one.submit_s, one.duration_s, one.gpus, one.limit_s) for one in jobs]
    assert shown == [("8", "bob", "cv", 0.0, 86400.0, 2, None), ("7", "ada", "nlp", 30.0, 100.0, 8, 3600.0)]


def test_swf_is_read_with_the_nodes_of_its_header(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, "t.swf", SWF, cluster=""))

    shown = [
        (one.name, one.user, one.account, one.submit_s, one.duration_s, one.gpus, one.limit_s) for one in trace.jobs
    ]
    assert shown == [("1", "user1", "group2", 0.0, 100.0, 4, 200.0), ("3", "group2", "group2", 9.0, 50.0, 8, None)]
    assert [len(node.gpus) for node in trace.site.nodes.values()] == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("job_id,submit_s,gpus\n", "t.csv has no column `duration_s`", "it needs job_id, submit_s, duration_s, gpus"),
        ("job_id,submit_s,duration_s,gpus\na,1,soon,1\n", "t.csv:2: duration_s is `soon`", "a number, 0 or more"),
        ("job_id,submit_s,duration_s,gpus\na,-1,5,1\n", "t.csv:2: submit_s is `-1`", "a number, 0 or more"),
        ("job_id,submit_s,duration_s,gpus\n", "t.csv contains no job", "a line for each job"),
        ("JobID|Submit\n7|x\n", "t.csv has no field `Elapsed`", "sacct --parsable2"),
        ("JobID|Submit|Elapsed\n7|x\n", "t.csv:2: 2 fields; the header has 3", "a value for each field"),
        (
            "JobID|Submit|Elapsed|AllocTRES\n7|x|00:01:00|gres/gpu=1\n",
            "t.csv:2: Submit is `x`",
            "YYYY-MM-DDTHH:MM:SS",
        ),
        ("; MaxNodes: 4\n1 2 3\n", "t.csv:2: `1 2 3` is not a job", "18 numbers"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place_and_what_it_should_be(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_trace(written(tmp_path, "t.csv", text))

    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("cluster", "variant", "message", "hint"),
    [
        ("", None, "t.cluster.json, the cluster of t.csv, does not exist", "--cluster FILE.json"),
        ("{", None, "t.cluster.json is not a description of a cluster", "gqsim(1)"),
        (BY_ACCOUNT, "tow", "has no variant `tow`", "did you mean `two`? it has `one`, `two`"),
        (POOLS.replace('"nodes": 2', '"nodes": 0'), None, "has a pool `all` of 0 × 4", "at least one node"),
    ],
)
def test_a_wrong_cluster_is_refused_with_what_it_should_be(
    tmp_path: Path, cluster: str, variant: str | None, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_trace(written(tmp_path, "t.csv", CSV, cluster), variant=variant)

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_load_moves_submissions_so_that_so_much_is_asked_for(tmp_path: Path) -> None:
    lines = "".join(f"j{row},{100 + 10 * row},40,2\n" for row in range(50))
    jobs = read_trace(written(tmp_path, "t.csv", f"job_id,submit_s,duration_s,gpus\n{lines}")).jobs

    moved = with_load(jobs, 8, 0.5)

    assert offered_load(jobs, 8) == pytest.approx(50 * 80 / (8 * 490))
    assert offered_load(moved, 8) == pytest.approx(0.5, rel=0.01)
    assert [one.submit_s for one in moved[:3]] == [0.0, 20.0, 41.0]


def test_jitter_is_whole_seconds_from_0_to_9_by_the_seed_and_0_moves_nothing(tmp_path: Path) -> None:
    lines = "".join(f"j{row},{1000 * row},40,2\n" for row in range(200))
    jobs = read_trace(written(tmp_path, "t.csv", f"job_id,submit_s,duration_s,gpus\n{lines}")).jobs

    late = [after.submit_s - before.submit_s for before, after in zip(jobs, with_jitter(jobs, 3), strict=True)]

    assert set(late) == set(range(10))
    assert with_jitter(jobs, 3) == with_jitter(jobs, 3) != with_jitter(jobs, 4)
    assert with_jitter(jobs, 0) == jobs


def test_only_jobs_without_a_limit_are_given_one(tmp_path: Path) -> None:
    jobs = read_trace(written(tmp_path, "t.csv", CSV, BY_ACCOUNT)).jobs

    assert [one.limit_s for one in with_limits(jobs, 2.5)] == [60.0, 25.0, 75.0]
