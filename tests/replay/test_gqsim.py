"""The command: what it prints and writes, what it refuses, and the same bytes each time."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from gq.cli._run import load
from gq.cli.framework.invoke import invoke
from gq.config.config import config_of
from gqd.sim.policies import read_policies

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "replay"
WEEK = str(EXAMPLE / "week.csv")
DAYS_JOBS = 120
PATIENT = str(EXAMPLE / "patient.toml")
KEYS = [
    "jobs", "dropped", "makespan_s", "mean_wait_s", "median_wait_s", "p95_wait_s", "p99_wait_s", "max_wait_s",
    "wide_p95_wait_s", "node_mean_wait_s", "node_p95_wait_s", "mean_jct_s", "mean_bounded_slowdown",
    "preemptions", "gpu_utilisation", "wall_s", "jobs_per_s",
]  # fmt: skip


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first days of that week: the same in a fraction of the time."""
    path = tmp_path_factory.mktemp("days") / "days.csv"
    path.write_text("".join(Path(WEEK).read_text().splitlines(keepends=True)[: DAYS_JOBS + 1]))
    path.with_suffix(".cluster.json").write_text((EXAMPLE / "week.cluster.json").read_text())
    return str(path)


def gqsim(*words: str) -> int:
    return invoke(load("gqsim"), words)


def test_policies_are_compared_in_a_table_and_in_json_keyed_by_their_names(
    days: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "summary.json"

    assert gqsim("--trace", days, "--policy", "fifo", "--policy", f"sjf,{PATIENT}", "--out", str(out), "--chart") == 0

    summaries = json.loads(out.read_text())
    assert {name: list(summary) for name, summary in summaries.items()} == dict.fromkeys(
        ["fifo", "sjf", "patient"], KEYS
    )
    assert [summary["jobs"] for summary in summaries.values()] == [DAYS_JOBS] * 3
    assert summaries["sjf"]["mean_wait_s"] < summaries["fifo"]["mean_wait_s"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["POLICY", "fifo", "sjf", "patient"]
    assert lines[4].startswith("GPUs in use")
    assert set(lines[5].removeprefix("fifo    ")) <= set(" ▁▂▃▄▅▆▇█")


def test_jobs_that_are_dropped_are_named_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wide = "".join(f"w{number},ada,vision,{number},60,99,\n" for number in range(7))
    (tmp_path / "t.csv").write_text(
        f"job_id,user,vc,submit_s,duration_s,gpus,requested_s\na,ada,vision,0,60,1,\nx,ada,mars,1,60,1,\n{wide}"
    )
    pools = [{"pool": "vision", "nodes": 2, "gpus_per_node": 8, "gpu_type": "a100"}]
    cluster = {"default": "one", "variants": {"one": {"pool_by": "vc", "pools": pools}}}
    (tmp_path / "t.cluster.json").write_text(json.dumps(cluster))

    assert gqsim("--trace", str(tmp_path / "t.csv"), "--policy=fifo") == 0

    told = " ".join(capsys.readouterr().err.split())
    wide = "w0, w1, w2, w3, w4 and 2 more (it asks for 99 GPUs, partition vision has 16)"
    assert told == f"fifo: 8 jobs were dropped: {wide}; x (there is no partition mars)"


def test_a_table_that_is_wider_than_the_terminal_has_a_line_for_each_figure(
    days: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gq.cli.framework.output.is_terminal", lambda: True)
    for name, width in (("NO_COLOR", "1"), ("COLUMNS", "80")):
        monkeypatch.setenv(name, width)

    assert gqsim("--trace", days, "--policy=fifo,fifo-skip") == 0

    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].split() == ["POLICY", "fifo", "fifo-skip"]
    assert lines[1].split() == ["JOBS", str(DAYS_JOBS), str(DAYS_JOBS)]
    assert lines[3].startswith("MEAN WAIT") and len(lines) == 15
    assert max(map(len, lines)) <= 80


def test_a_history_keeps_the_licences_and_switches_of_its_cluster_under_every_policy(tmp_path: Path) -> None:
    leaf = {"name": "s1", "nodes": ["n1"]}
    own = config_of({"licenses": {"matlab": 2}, "topology": [leaf]}, "gq.toml")
    file = tmp_path / "more.toml"
    file.write_text("[licenses]\nmatlab = 9\n")

    named, of_file = read_policies(["fifo", str(file)], [], own)

    assert named.policy.licenses == {"matlab": 2}
    assert [one.name for one in named.policy.topology] == ["s1"]
    assert of_file.policy.licenses == {"matlab": 9}, "what a file says, it says"


def test_each_policy_has_a_file_of_starts_and_all_share_a_picture(tmp_path: Path) -> None:
    starts, plot = tmp_path / "starts.csv", tmp_path / "waits.svg"

    assert gqsim("--trace", WEEK, "--policy=fifo,fifo-skip", f"--jobs={starts}", f"--plot={plot}") == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == ["starts.fifo-skip.csv", "starts.fifo.csv", "waits.svg"]
    rows = list(csv.DictReader((tmp_path / "starts.fifo.csv").open()))
    assert list(rows[0]) == ["job_id", "submit_s", "start_s", "end_s", "gpus"]
    assert len(rows) == 460
    assert all(int(row["submit_s"]) <= int(row["start_s"]) < int(row["end_s"]) for row in rows)
    texts = [one.text for one in ElementTree.parse(plot).iter("{http://www.w3.org/2000/svg}text")]
    assert {"GPUs in use", "mean wait", "fifo", "fifo-skip", "week.csv"} <= set(texts)


def test_the_same_command_writes_the_same_bytes_but_for_the_time_it_took(days: str, tmp_path: Path) -> None:
    texts = []
    for name in ("first", "second"):
        out, starts, plot = (tmp_path / f"{name}.{suffix}" for suffix in ("json", "csv", "svg"))
        words = ("--policy=default", "--jitter=2", f"--out={out}", f"--jobs={starts}", f"--plot={plot}")
        assert gqsim("--trace", days, *words) == 0
        summary = json.loads(out.read_text())["default"]
        del summary["wall_s"], summary["jobs_per_s"]
        texts.append((summary, starts.read_bytes(), plot.read_bytes()))

    assert texts[0] == texts[1]


def test_set_changes_a_setting_of_the_policy(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["--policy=fifo-skip"], ["--policy=fifo", "--set=scheduler.backfill=skip"]):
        assert gqsim("--trace", days, "--json", *words) == 0
        (summary,) = json.loads(capsys.readouterr().out).values()
        shown.append(summary["mean_wait_s"])

    assert shown[0] == shown[1]


def test_no_job_runs_before_the_start_delay_is_over(days: str, tmp_path: Path) -> None:
    starts = tmp_path / "starts.csv"

    assert gqsim("--trace", days, "--policy=fifo", "--start-delay=60", f"--jobs={starts}") == 0

    rows = list(csv.DictReader(starts.open()))
    assert min(int(row["start_s"]) - int(row["submit_s"]) for row in rows) == 60


def test_limits_and_a_load_are_heeded(days: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for word in ("--jitter=0", "--load=0.3", "--limits=0.5"):
        assert gqsim("--trace", days, "--json", "--policy=fifo", word) == 0
        (shown[word],) = json.loads(capsys.readouterr().out).values()

    usual = shown.pop("--jitter=0")
    assert shown["--load=0.3"]["mean_wait_s"] < usual["mean_wait_s"]
    assert shown["--limits=0.5"]["mean_jct_s"] < usual["mean_jct_s"], "half of most jobs is cut off"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ((), "`gqsim` needs exactly one of --trace and --replay", "--help"),
        (("--trace", "/nowhere/t.csv"), "/nowhere/t.csv cannot be read: No such file or directory", "--trace names"),
        (("--trace", WEEK, "extra"), "unexpected argument `extra`", "--trace"),
        (("--trace", WEEK, "--policy", "fito"), "`--policy`: `fito` is not a policy", "did you mean `fifo`?"),
        (("--trace", WEEK, "--policy", "/nowhere/p.toml"), "/nowhere/p.toml cannot be read", "--policy names"),
        (("--trace", WEEK, "--set", "order"), "`--set`: `order` is not TABLE.KEY=VALUE", "scheduler.order=arrival"),
        (
            ("--trace", WEEK, "--set", "sched.order=x"),
            "`--set`: `sched` is not a scheduling table",
            "there are scheduler, priority",
        ),
        (("--trace", WEEK, "--set", "scheduler.ordr=x"), "`scheduler.ordr` is not a setting", "did you mean `order`?"),
        (("--trace", WEEK, "--set", "scheduler.order=x"), "`scheduler.order` `x` is not one of", ""),
        (("--trace", WEEK, "--variant", "fuor"), "week.cluster.json has no variant `fuor`", "did you mean `four`?"),
        (("--trace", WEEK, "--load", "0"), "`--load`: `0` is not a number above 0", ""),
        (("--trace", WEEK, "--limits", "some"), "`--limits`: `some` is not a number above 0", ""),
        (("--trace", WEEK, "--jitter", "-1"), "`--jitter`: -1 is too small", "the minimum is 0"),
        (("--trace", WEEK, "--since", "3d"), "`--since` needs --replay", ""),
        (("--trace", WEEK, "--out", "/nowhere/o.json"), "`--out`: /nowhere/o.json cannot be written", "name a file"),
    ],
)
def test_what_is_wrong_is_said_with_its_value_the_rule_and_a_way_out(
    words: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = gqsim(*words)

    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert message.replace("`", "") in said.err.replace("`", "")
    assert hint in said.err
