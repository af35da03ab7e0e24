"""One table of every console script and every verb: closed streams, `--json`, and what prints nothing.

A verb that is not in the table fails a test, so a new one is held to the same rules.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gq.cli._run import load
from gq.cli.framework.command import Command
from tests.clusters import BIN, PrivateCluster, cluster_yard, wait_until
from tests.conftest import MARK
from tests.integration.test_laptop import free_ports

SCRIPTS = tuple(tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"])
CONFIG = """
cluster = "gq"

[[partition]]
name = "main"
default = true
default_time = "5m"
max_time = "1d"

[[node]]
name = "n1"
address = "127.0.0.1"
cpus = 200
memory = "8G"
gpus = []
fake_gpu = [{ type = "fake" }, { type = "fake" }, { type = "fake" }, { type = "fake" }]
"""
CLOSED = {"stdin": (0,), "stdout": (1,), "stderr": (2,), "all": (0, 1, 2)}

REFUSED = ("gqctl node down", "gqctl node remove", "gq down", "gq pam-check", "gq checkpoint-done", "gq resume-done")
"""Verbs that have nothing here that they may end, or that belong into a job: their exit status is 1."""

VERBS = {
    "gqsub": "--wrap true",
    "gqrun": "true",
    "gqalloc": "true",
    "gqstat": "-t all",
    "gqwhy": "{ended}",
    "gqdel": "{held}",
    "gqlog": "{ended}",
    "gqwait": "{ended}",
    "gqinfo": "",
    "gqacct": "-j {ended}",
    "gqprio": "-j {held}",
    "gqshare": "",
    "gqresv create": "{new} --gpus=1 --start={minute} --duration=1m",
    "gqresv update": "{reservation} --users=root",
    "gqresv list": "",
    "gqresv show": "{reservation}",
    "gqresv skip": "{reservation} 1",
    "gqresv edit": "{reservation} 1 --duration=1m",
    "gqresv renew": "{reservation} --duration=1m",
    "gqresv end": "{begun}",
    "gqresv delete": "{reservation}",
    "gqresv cal": "",
    "gqresv ics": "{reservation}",
    "gqcron": "{listing}",
    "gqsim": "--replay --policy=fifo",
    "gqctl hold": "{held}",
    "gqctl release": "{held}",
    "gqctl requeue": "{busy}",
    "gqctl update": "{held} --comment=x",
    "gqctl show": "{held}",
    "gqctl notify": "{running} hello",
    "gqctl ask": "{busy} please",
    "gqctl answer": "{asked} decline",
    "gqctl asks": "",
    "gqctl suspend": "{busy}",
    "gqctl resume": "{suspended}",
    "gqctl extend": "{running} +1m",
    "gqctl node show": "",
    "gqctl node drain": "n1:0 --reason=x",
    "gqctl node resume": "n1:0",
    "gqctl node down": "nowhere --reason=x",
    "gqctl node remove": "nowhere",
    "gqctl partition show": "",
    "gqctl account add": "{new}",
    "gqctl account set": "{account} --shares=2",
    "gqctl account show": "",
    "gqctl account remove": "{account}",
    "gqctl user add": "{new} --account={account}",
    "gqctl user set": "{member} --account=default --shares=2",
    "gqctl user show": "",
    "gqctl user remove": "{member} --account=default",
    "gqctl qos add": "{new}",
    "gqctl qos set": "{qos} --description=x",
    "gqctl qos show": "",
    "gqctl qos remove": "{qos}",
    "gqctl limit set": "gpus=8 --account={account}",
    "gqctl limit show": "",
    "gqctl limit remove": "gpus --account={limited}",
    "gqctl config show": "",
    "gqctl config check": "{config}",
    "gqctl config reload": "",
    "gqctl token create": "",
    "gqctl token list": "",
    "gqctl token revoke": "{token}",
    "gqctl key add": "{key}",
    "gqctl key show": "",
    "gqctl key revoke": "{enrolled}",
    "gqctl notice list": "",
    "gqctl audit": "",
    "gqctl whoami": "",
    "gqctl events": "",
    "gq up": "",
    "gq down": "--dir={nowhere}",
    "gq status": "",
    "gq demo": "--help",
    "gq doctor": "",
    "gq ssh": "{running} true",
    "gq pam-check": "",
    "gq checkpoint-done": "",
    "gq resume-done": "",
    "gq key new": "--out={nowhere}/key",
    "gq install-service": "--node --print",
}
"""Words behind each verb; `Subjects` says what stands for ``{held}`` and so on."""

OBJECTS = ("gqsub", "gqsim", "gqcron")
"""Whose JSON is documented as one object."""
OWN_FORM = ("gqlog", "gqresv ics", "gq demo")
"""What prints something that has a form of its own: a job's output, a calendar, a show."""
ABOUT_A_JOB = r"\{(ended|held|busy|running|asked|suspended)\}"


class Subjects:
    """What the words of the table are about: made anew each time, since most verbs change it."""

    def __init__(self, cluster: PrivateCluster) -> None:
        self._cluster = cluster
        self._count = 0
        self._busy: list[str] = []
        self._kept = {"ended": self._make_done(""), "running": self._make_busy("")}
        self._busy.clear()

    def words(self, verb: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line of `verb`, its first words with these options behind them."""
        text = re.sub(r"\{(\w+)\}", lambda found: self.subject(found[1]), VERBS[verb])
        return [*verb.split(), *options, *text.split()]

    def run(self, verb: str, *more: str, closed: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
        return self._cluster.run(*self.words(verb, more), closed=closed)

    def run_words(self, verb: str, words: str) -> subprocess.CompletedProcess[str]:
        return self._cluster.run(*verb.split(), *words.split())

    def subject(self, name: str) -> str:
        if name in self._kept:
            return self._kept[name]
        self._count += 1
        new = f"x{self._count}"
        if make := getattr(self, f"_make_{name}", None):
            return str(make(new))
        match name:
            case "minute":
                return f"now+{1440 + self._count}m"
            case "reservation":
                self._cluster.ok(
                    "gqresv", "create", new, "--gpus=1", f"--start=now+{60 + self._count}m", "--duration=1m"
                )
            case "account" | "qos":
                self._cluster.ok("gqctl", name, "add", new)
            case "limited":
                self._cluster.ok("gqctl", "account", "add", new)
                self._cluster.ok("gqctl", "limit", "set", "gpus=8", f"--account={new}")
            case "member":
                self._cluster.ok("gqctl", "user", "add", new, "--account=default")
            case _:
                assert name == "new"
        return new

    def end_jobs(self) -> None:
        """End what was made to run for one test."""
        if self._busy:
            self._cluster.ok("gqdel", *self._busy)
            self._cluster.run("gqwait", *self._busy)
            self._busy.clear()

    def _make_done(self, new: str) -> str:
        job = self._submit("--wrap=true")
        self._cluster.ok("gqwait", job)
        return job

    def _make_held(self, new: str) -> str:
        return self._submit("--hold", "--wrap=true")

    def _make_busy(self, new: str) -> str:
        job = self._submit("--time=1:00:00", "--wrap=sleep 3600")
        wait_until(lambda: self._cluster.ok("gqstat", "-h", "-j", job, "-o", "%t").strip() == "R", what="the job runs")
        self._busy.append(job)
        return job

    def _make_asked(self, new: str) -> str:
        job = self._make_busy(new)
        self._cluster.ok("gqctl", "ask", job, "please")
        return job

    def _make_suspended(self, new: str) -> str:
        job = self._make_busy(new)
        self._cluster.ok("gqctl", "suspend", job)
        return job

    def _make_begun(self, new: str) -> str:
        self._cluster.ok("gqresv", "create", new, "--gpus=1", "--start=now", "--duration=1h")
        return new

    def _make_listing(self, new: str) -> str:
        path = self._make_nowhere(new)
        path.write_text("0 3 1 1 * true\n")
        self._cluster.ok("gqcron", str(path))
        return "-l"

    def _make_config(self, new: str) -> Path:
        return self._cluster.directory / "gq.toml"

    def _make_nowhere(self, new: str) -> Path:
        return self._cluster.workdir / new

    def _make_key(self, new: str) -> str:
        return self._cluster.ok("gq", "key", "new", f"--out={self._make_nowhere(new)}").strip()

    def _make_enrolled(self, new: str) -> str:
        key = self._make_key(new)
        self._cluster.ok("gqctl", "key", "add", key)
        return key[:8]

    def _make_token(self, new: str) -> str:
        self._cluster.ok("gqctl", "token", "create", f"--node-name={new}")
        return next(
            line.split()[0] for line in self._cluster.ok("gqctl", "token", "list").splitlines() if f" {new} " in line
        )

    def _submit(self, *options: str) -> str:
        return self._cluster.ok("gqsub", "--parsable", *options).strip()


def listen_for_other_hosts(cluster: PrivateCluster) -> None:
    """Make tokens and keys possible."""
    nodes, clients = free_ports(2)
    cluster.ok("gqd", "keygen")
    cluster.ok("gq", "down", "--yes")
    with (cluster.directory / "gq.toml").open("a") as config:
        config.write(
            f'[controller]\nlisten = "tcp://127.0.0.1:{nodes}"\nlisten_clients = "tcp://127.0.0.1:{clients}"\n'
        )
    cluster.up()


@pytest.fixture(scope="module")
def subjects(cluster_base: Path, pytestconfig: pytest.Config) -> Iterator[Subjects]:
    with cluster_yard(cluster_base, pytestconfig.stash[MARK]) as yard:
        cluster = yard.make(config=CONFIG)
        listen_for_other_hosts(cluster)
        yield Subjects(cluster)


def verbs_of(command: Command) -> Iterator[Command]:
    """The command, or each verb of its family."""
    if command.verbs is None:
        yield command
        return
    for verb in command.verbs().values():
        yield from verbs_of(verb)


COMMANDS = {command.name: command for command in verbs_of(load("gq"))}
HAS_JSON = [name for name, command in COMMANDS.items() if any(option.name == "json" for option in command.options)]


def test_the_table_has_every_verb() -> None:
    assert sorted(VERBS) == sorted(COMMANDS)


@pytest.mark.xdist_group("every_verb")
@pytest.mark.parametrize("verb", VERBS)
def test_closed_streams_change_no_exit_status_and_give_no_traceback(subjects: Subjects, verb: str) -> None:
    expected = 1 if verb in REFUSED else 0

    assert subjects.run(verb).returncode == expected
    for name, closed in CLOSED.items():
        done = subjects.run(verb, closed=closed)
        assert (name, done.returncode) == (name, expected), done
        assert "Traceback" not in done.stdout + done.stderr
        assert 1 not in closed or not done.stdout
    subjects.end_jobs()


@pytest.mark.xdist_group("every_verb")
@pytest.mark.parametrize("verb", sorted({*HAS_JSON} - {*REFUSED}))
def test_a_verb_that_shows_data_prints_a_json_list_where_asked(subjects: Subjects, verb: str) -> None:
    done = subjects.run(verb, "--json")

    assert (done.returncode, "error" in done.stderr) == (0, False), done
    if verb == "gqctl events":  # a stream: a value on each line
        shown = [json.loads(line) for line in done.stdout.splitlines()]
    else:
        shown = json.loads(done.stdout)
    assert isinstance(shown, dict if verb in OBJECTS else list)
    subjects.end_jobs()


@pytest.mark.xdist_group("every_verb")
@pytest.mark.parametrize("verb", sorted({*VERBS} - {*HAS_JSON} - {*OWN_FORM}))
def test_a_verb_without_json_prints_nothing(subjects: Subjects, verb: str) -> None:
    assert subjects.run(verb).stdout == ""
    subjects.end_jobs()


@pytest.mark.xdist_group("every_verb")
@pytest.mark.parametrize("verb", [verb for verb, words in VERBS.items() if re.search(ABOUT_A_JOB, words)])
def test_a_verb_that_takes_a_job_takes_the_last_one(subjects: Subjects, verb: str) -> None:
    [kind] = re.findall(ABOUT_A_JOB, VERBS[verb])
    subjects.subject({"running": "busy", "ended": "done"}.get(kind, kind))

    done = subjects.run_words(verb, VERBS[verb].replace(f"{{{kind}}}", "last"))

    assert done.returncode == 0, done
    subjects.end_jobs()


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_console_script_runs_with_all_of_its_streams_closed(script: str) -> None:
    done = subprocess.run(["/bin/sh", "-c", f"exec {BIN / script} --version <&- >&- 2>&-"], timeout=60, check=False)

    assert done.returncode == 0


@pytest.mark.slow
def test_daemons_serve_jobs_with_all_of_their_streams_closed(private_cluster: Callable[..., PrivateCluster]) -> None:
    cluster = private_cluster()
    for daemon, words in (("gqnode-n1", "gqnode --name=n1"), ("gqd", "gqd")):
        cluster.kill(daemon)
        command = f"exec {words} --dir={cluster.directory} <&- >&- 2>&-"
        started = cluster.start("/bin/sh", "-c", command)
        (cluster.directory / f"{daemon}.pid").write_text(f"{started.pid}\n")
    wait_until(lambda: " idle " in cluster.run("gqinfo", "-N").stdout, what="gqd answers, and the node is there")

    assert cluster.ok("gqrun", "echo", "hello") == "hello\n"
    job = cluster.ok("gqsub", "--parsable", "--wrap", "echo out; cat; echo err >&2").strip()
    cluster.ok("gqwait", job)
    assert cluster.ok("gqlog", job) == "out\nerr\n"
