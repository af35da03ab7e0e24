"""gqrun --elastic: the steps that follow the nodes of a job, without daemons."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gq.cli.step.follow import follow

STEP = """
import json, os, pathlib, sys, time
directory = pathlib.Path(__file__).parent
node = next(word for word in sys.argv if word.startswith("--nodelist=")).partition("=")[2]
with open(directory / "begun", "a") as log:
    log.write(node + "\\n")
times = (directory / "begun").read_text().split().count(node)
if node == "n2" and times == 1:  # n2 leaves the job and joins it again, with another number
    job = json.loads((directory / "job.json").read_text())
    job["joined"]["n2"] = 3
    (directory / "draft").write_text(json.dumps(job))
    os.replace(directory / "draft", directory / "job.json")
    sys.exit(3)
if node == "n2":
    (directory / "end").touch()
while not (directory / "end").exists():
    time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def signal_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_node_that_left_and_joined_between_two_looks_gets_a_new_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, job = tmp_path / "gqrun", tmp_path / "job.json"
    script.write_text(STEP)
    nodes = [{"name": name, "address": name, "gpus": 0, "tasks": 1} for name in ("n1", "n2")]
    facts = {"generation": 1, "current": [], "target": [], "most": 0, "nodes": nodes, "target_nodes": ["n1", "n2"]}
    job.write_text(json.dumps({**facts, "most_nodes": 2, "joined": {"n2": 1}}))
    monkeypatch.setenv("GQ_ELASTIC_FILE", str(job))
    monkeypatch.setattr(sys, "argv", [str(script), "--elastic", "agent"])

    assert follow([], is_in_job=True) == 0
    assert sorted((tmp_path / "begun").read_text().split()) == ["n1", "n2", "n2"]
