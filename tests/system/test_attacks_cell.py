"""What a job tries on the node that runs it: to get out, to take more, to become more."""

from __future__ import annotations

import shlex
import sys

import pytest

from gq.host.job_tmp import own_programs
from gq.model.job import JobSpec
from gq.model.resource import ResourceRequest
from gq.wire import client as wire
from tests.clusters import wait_until
from tests.integration.jobs import submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE, BOB
from tests.system.attacks import CONTAINED, ENDED, NOTHING, REFUSED, attack
from tests.system.hosts import User
from tests.system.stage import GPU_MAJOR, GPUS, PIDS_MAX, Stage

pytestmark = [
    needs_root,
    needs_program("ip"),
    needs_program("nsenter"),
    pytest.mark.xdist_group("attacks"),
    pytest.mark.timeout(120),
]

OPEN_TO_ALL = (".toml", ".pub", ".pid", "/member-n1", "/member-login")
"""Names, public keys and that a daemon is there are no secrets."""
ESCAPES = """#!/bin/sh
stay='echo $$ >> pids; exec sleep 1000'
setsid sh -c "$stay" &
(setsid sh -c "(trap '' TERM HUP INT; $stay) &" &)
(env -i PATH="$PATH" setsid sh -c "(trap '' TERM; $stay) &" &)
(env -i PATH="$PATH" setsid sh -c "(trap '' TERM; kill -STOP \\$\\$; $stay) &" &)
until [ "$(wc -l < pids)" = 4 ]; do sleep 0.05; done
"""
OPEN = """
import errno, os, sys
for path in sys.argv[1:]:
    try:
        os.open(path, os.O_RDWR)
    except OSError as error:
        print(errno.errorcode[error.errno])
    else:
        print("opened")
"""
AT_IS_SET_UP = """
set -e
[ -e /etc/at.deny ] || touch /etc/at.deny
install -d -m 1770 -o daemon -g daemon /var/spool/cron/atjobs /var/spool/cron/atspool
install -m 600 -o daemon -g daemon /dev/null /var/spool/cron/atjobs/.SEQ
"""
OPEN_ALREADY = """
import os
found = []
for number in range(3, 256):
    try:
        found.append(os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass
print(found)
"""
MULTIPLY = """
import errno, os, signal
children = 0
try:
    while children < 1000 and os.fork():
        children += 1
except OSError as error:
    print(errno.errorcode[error.errno], children, flush=True)
    os.killpg(0, signal.SIGKILL)
signal.pause()
"""
ATTACH = """
import ctypes, errno, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
for pid in map(int, sys.argv[1:]):
    libc.ptrace(16, pid, 0, 0)
    traced = errno.errorcode[ctypes.get_errno()]
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError as error:
        print(traced, errno.errorcode[error.errno])
for pid in map(int, sys.argv[1:]):
    for name in ("environ", "mem", "fd"):
        try:
            os.listdir(f"/proc/{pid}/fd") if name == "fd" else open(f"/proc/{pid}/{name}", "rb").read(1)
        except OSError as error:
            print(errno.errorcode[error.errno])
        else:
            print("read", pid, name)
"""

REACH = """
import ctypes, errno, os
from gqnode.shepherd.seccomp import ARCHITECTURES, DENIED, UNSHARE
libc = ctypes.CDLL(None, use_errno=True)
column = list(ARCHITECTURES).index(os.uname().machine)
for number in (*DENIED.values(), UNSHARE):
    arguments = [0x10000000] if number is UNSHARE else [-1, None, -1, -1, -1]
    failed = libc.syscall(number[column], *arguments) == -1
    print(errno.errorcode[ctypes.get_errno()] if failed else "done")
"""

KEYS = """
import ctypes, errno, sys
from gqnode.shepherd.keyring import SYSCALL_NUMBERS
import os
libc = ctypes.CDLL(None, use_errno=True)
number = SYSCALL_NUMBERS[os.uname().machine]
SEARCH, SESSION = 10, -3
def search():
    found = libc.syscall(number, SEARCH, SESSION, b"user", b"gq-attack", 0)
    print("found" if found > 0 else errno.errorcode[ctypes.get_errno()], flush=True)
"""
ADD_KEY = (
    KEYS
    + """
ADD_KEY_NUMBERS = {"x86_64": 248, "aarch64": 217, "riscv64": 217}
assert libc.syscall(ADD_KEY_NUMBERS[os.uname().machine], b"user", b"gq-attack", b"s3cret", 6, SESSION) > 0
search()
"""
)
SEARCH_KEY = KEYS + "search()\n"


def on(stage: Stage, host: str) -> User:
    return stage.user(BOB, host)


def output(stage: Stage, *options: str, wrap: str = "", script: str = "", host: str = "n1", **environ: str) -> str:
    """What a job of Bob's writes until it has ended, however it ends."""
    job = submit(stage.bob, "-w", host, *options, wrap=wrap, script=script, **environ)
    stage.await_state(job, "COMPLETED", "FAILED", "OUT_OF_MEMORY", "TIMEOUT")
    return on(stage, host).path(f"gq-{job}.out").read_text()


def python(code: str, *arguments: str) -> str:
    return shlex.join([sys.executable, "-S", "-E", "-c", code, *arguments])


def daemon_pids(stage: Stage, host: str) -> list[str]:
    """gqnode and all shepherds there, by their numbers on that host."""
    return stage.host(host).ok("pgrep", "-U", "0", "-f", "gqnode").split()


def with_gq(code: str) -> str:
    """The command line of a Python that can import gq, whoever runs it and wherever."""
    return shlex.join([sys.executable, "-I", "-c", code])


# ── out of the cell ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("host", ["n1", "n2"])
@attack("Outlive the job by setsid, double forks, an empty environment and ignored signals", ENDED, NOTHING)
def test_outlive_the_job_by_setsid_double_forks_an_empty_environment_and_ignored_signals(
    stage: Stage, host: str
) -> None:
    on(stage, host).run("rm", "-f", "pids")
    output(stage, script=ESCAPES, host=host)
    pids = on(stage, host).path("pids").read_text().split()

    assert len(pids) == 4
    assert stage.host(host).run("pgrep", "-U", f"{BOB.uid}").stdout == ""


@attack("Leave the job through the files of its cgroups", REFUSED, NOTHING)
def test_leave_the_job_through_the_files_of_its_cgroups(stage: Stage) -> None:
    script = """#!/bin/sh
    grep -v ':/$' /proc/self/cgroup | while IFS=: read -r _ kind path; do
      for base in /sys/fs/cgroup /sys/fs/cgroup/unified "/sys/fs/cgroup/$kind"; do
        [ -e "$base$path/cgroup.procs" ] || continue
        echo found
        (echo $$ > "$base/cgroup.procs") 2>/dev/null && echo left
        (echo $$ > "$base$path/../cgroup.procs") 2>/dev/null && echo left
        for file in "$base$path"/*; do (echo 1 > "$file") 2>/dev/null && echo wrote "$file"; done
        mkdir "$base$path/mine" 2>/dev/null && echo made
      done
    done"""
    lines = set(output(stage, "--mem=64M", script=script).splitlines())

    assert lines == {"found"}


@attack("Kill, trace or look into the daemon and the shepherds", REFUSED, NOTHING)
def test_kill_trace_or_look_into_the_daemon_and_the_shepherds(stage: Stage) -> None:
    pids = daemon_pids(stage, "n1")
    lines = output(stage, wrap=python(ATTACH, *pids)).splitlines()

    assert len(pids) >= 2 and len(lines) == 4 * len(pids)
    assert set(lines) <= {"EPERM EPERM", "EACCES", "EPERM"}, lines
    assert set(pids) <= set(daemon_pids(stage, "n1"))


@attack("Kill the processes of another user's job", REFUSED, NOTHING)
def test_kill_the_processes_of_another_users_job(stage: Stage) -> None:
    job = stage.running_job("-w", "n1")
    pids = stage.host("n1").ok("pgrep", "-U", f"{ALICE.uid}").split()
    output(stage, wrap=f"kill -9 {' '.join(pids)}; kill -9 -1")

    assert stage.facts(job).state == "RUNNING"
    assert stage.host("n1").ok("pgrep", "-U", f"{ALICE.uid}").split() == pids


@attack("Become root by a set-uid program, where the node forbids it", CONTAINED, NOTHING)
def test_become_root_by_a_set_uid_program_where_the_node_forbids_it(stage: Stage) -> None:
    for host in ("n1", "n2"):
        stage.host(host).ok("sh", "-c", "cp $(command -v id) /run/whoami; chmod 4755 /run/whoami")
    assert output(stage, wrap="/run/whoami -u", host="n1") == "0\n", "as anywhere, where nothing forbids it"
    assert output(stage, wrap="/run/whoami -u", host="n2") == f"{BOB.uid}\n"


@attack("Gain capabilities by a program with file capabilities, where the node forbids it", CONTAINED, NOTHING)
def test_gain_capabilities_by_a_program_with_file_capabilities_where_the_node_forbids_it(stage: Stage) -> None:
    bounding = "grep CapBnd /proc/self/status"

    assert int(output(stage, wrap=bounding, host="n1").split()[1], 16) > 0, "as anywhere, where nothing forbids it"
    assert int(output(stage, wrap=bounding, host="n2").split()[1], 16) == 0


@attack("Make system calls that broke kernels before, where the node forbids them", REFUSED, NOTHING)
def test_make_system_calls_that_broke_kernels_before_where_the_node_forbids_them(stage: Stage) -> None:
    allowed = output(stage, wrap=with_gq(REACH), host="n1").split()

    assert len(set(allowed)) > 2, "as anywhere, where nothing forbids it"
    assert set(output(stage, wrap=with_gq(REACH), host="n2").split()) == {"EPERM"}


@needs_program("at")
@attack("Run something later by at, where the node forbids set-uid programs", REFUSED, NOTHING)
def test_run_something_later_by_at_where_the_node_forbids_set_uid_programs(stage: Stage) -> None:
    queued = {}
    for name in ("n1", "n2"):
        host = stage.host(name)
        host.ok("sh", "-c", AT_IS_SET_UP)
        output(stage, wrap="echo sleep 1000 | at now + 1 hour", host=name)
        queued[name] = host.ok("find", "/var/spool/cron/atjobs", "-type", "f", "-name", "a*").count("\n")
        host.ok("rm", "-rf", "/var/spool/cron")

    assert queued == {"n1": 1, "n2": 0}, "as anywhere, where nothing forbids it"


# ── devices ───────────────────────────────────────────────────────────────────────────────────────────────────


by_every_guard = pytest.mark.parametrize(
    ("host", "guards"), [("n1", ("cgroup1", "cgroup2")), ("n2", ("cgroup2",))], ids=["as it comes", "cgroup v2"]
)
"""Where this machine has the controllers of v1, a node uses them by itself."""


@by_every_guard
@attack("Open the GPU of another job", REFUSED, NOTHING)
def test_open_the_gpu_of_another_job(stage: Stage, host: str, guards: tuple[str, ...]) -> None:
    assert stage.isolation(host).devices in guards
    stage.running_job("-w", host, "--gpus=1")
    lines = output(stage, "--gpus=1", wrap=python(OPEN, *GPUS), host=host).split()

    assert lines == ["EPERM", "ENXIO"], "ENXIO: it may, and there is no such device"


@by_every_guard
@attack("Open a GPU from a job that requested none", REFUSED, NOTHING)
def test_open_a_gpu_from_a_job_that_requested_none(stage: Stage, host: str, guards: tuple[str, ...]) -> None:
    assert stage.isolation(host).devices in guards
    assert output(stage, wrap=python(OPEN, *GPUS), host=host).split() == ["EPERM", "EPERM"]


@attack("Create a device node for a GPU", REFUSED, NOTHING)
def test_create_a_device_node_for_a_gpu(stage: Stage) -> None:
    make = f"mknod gpu c {GPU_MAJOR} 240 2>/dev/null; echo $?"

    assert "0" not in output(stage, wrap=f"{make}; unshare -Ur {make}").split()


# ── more than one's share ─────────────────────────────────────────────────────────────────────────────────────


@attack("Use more memory than the job has", ENDED, NOTHING)
def test_use_more_memory_than_the_job_has(stage: Stage) -> None:
    other = stage.running_job("-w", "n1", "--mem=64M")
    job = submit(stage.bob, "-w", "n1", "--mem=64M", wrap=python("x = [b'x' * 2**20 for _ in range(200)]"))

    assert stage.await_state(job, "OUT_OF_MEMORY", "COMPLETED", "FAILED").state == "OUT_OF_MEMORY"
    assert stage.facts(other).state == "RUNNING"


@attack("Exceed the job's memory limit through /dev/shm", ENDED, NOTHING)
def test_exceed_the_jobs_memory_limit_through_dev_shm(stage: Stage) -> None:
    job = submit(stage.bob, "-w", "n1", "--mem=64M", wrap="head -c 200M /dev/zero > /dev/shm/hoard; echo $?")

    ended = stage.await_state(job, "OUT_OF_MEMORY", "COMPLETED", "FAILED")
    assert ended.state == "OUT_OF_MEMORY"
    stage.host("n1").run("rm", "-f", "/dev/shm/hoard")


@attack("Start more processes than a job may", CONTAINED, NOTHING)
def test_start_more_processes_than_a_job_may(stage: Stage) -> None:
    other = stage.running_job("-w", "n1", wrap="while :; do /bin/true; sleep 0.1; done")
    error, children = output(stage, wrap=f"setsid {python(MULTIPLY)}").split()[:2]

    assert error == "EAGAIN" and int(children) < PIDS_MAX
    assert stage.facts(other).state == "RUNNING"


@attack("Leave files in /tmp and /dev/shm for the next job, where they are private", CONTAINED, NOTHING)
def test_leave_files_in_tmp_and_dev_shm_for_the_next_job_where_they_are_private(stage: Stage) -> None:
    output(stage, wrap="touch /tmp/left /dev/shm/left; chmod 777 /tmp/left", host="n2")

    kept = [place.split("/")[2] for place in own_programs()]  # where gq's own commands are shows
    assert output(stage, wrap="ls -A /tmp /dev/shm", host="n2").split() == ["/dev/shm:", "/tmp:", *kept]
    assert "left" not in stage.host("n2").ok("ls", "-A", "/tmp", "/dev/shm")


@attack("Fill the disk of the output", CONTAINED, NOTHING)
def test_fill_the_disk_of_the_output(stage: Stage) -> None:
    n1 = stage.host("n1")
    n1.ok("sh", "-c", "mkdir -p /run/small; mount -t tmpfs -o size=1m,mode=1777 small /run/small")
    job = submit(stage.bob, "-w", "n1", "-o", "/run/small/out", wrap="head -c 50M /dev/zero; echo done > ended")
    stage.await_state(job, "COMPLETED", "FAILED")

    assert n1.path("/run/small/out").stat().st_size <= 2**20
    stage.await_state(submit(stage.alice, "-w", "n1", "-o", "/run/small/other", wrap="true"), "COMPLETED", "FAILED")
    assert output(stage, wrap="echo fine") == "fine\n"
    n1.ok("umount", "/run/small")


@attack("Dump core where the node forbids it, and raise resource limits", REFUSED, NOTHING)
def test_dump_core_where_the_node_forbids_it_and_raise_resource_limits(stage: Stage) -> None:
    lift = "(ulimit -c unlimited) 2>/dev/null || echo no; (ulimit -n 4096) 2>/dev/null || echo no"

    assert output(stage, wrap=f"ulimit -c; ulimit -n; ulimit -Hn; {lift}", host="n2").split() == [
        "0",
        "256",
        "512",
        "no",
        "no",
    ]


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────


@attack("Write into a file of root's by a symbolic link as output", REFUSED, NOTHING)
def test_write_into_a_file_of_roots_by_a_symbolic_link_as_output(stage: Stage) -> None:
    n1, bob = stage.host("n1"), on(stage, "n1")
    n1.ok("chmod", "600", "/etc/shadow")
    before = n1.path("/etc/shadow").read_text()
    bob.ok("ln", "-sf", "/etc/shadow", "link")
    for options in (("-o", "link"), ("-o", "out", "-e", "link"), ("-o", "link", "--open-mode=append")):
        job = submit(stage.bob, "-w", "n1", *options, wrap="echo root::0:0:::::")
        assert stage.await_state(job, "FAILED", "BOOT_FAIL", "COMPLETED").state != "COMPLETED"

    assert n1.path("/etc/shadow").read_text() == before


@attack("Read another user's file as the job's input", REFUSED, NOTHING)
def test_read_another_users_file_as_the_jobs_input(stage: Stage) -> None:
    stage.user(ALICE, "n1").write("private", "s3cret")
    stage.user(ALICE, "n1").ok("chmod", "711", ".")
    job = submit(stage.bob, "-w", "n1", "-i", f"{stage.alice.home}/private", wrap="cat")

    assert stage.await_state(job, "FAILED", "BOOT_FAIL", "COMPLETED").state != "COMPLETED"
    out = on(stage, "n1").path(f"gq-{job}.out")
    assert not out.exists() or "s3cret" not in out.read_text()


@attack("Block the node by an output or an input that never opens", ENDED, NOTHING)
def test_block_the_node_by_an_output_or_an_input_that_never_opens(stage: Stage) -> None:
    on(stage, "n1").ok("sh", "-c", "rm -f fifo*; mkfifo fifo1 fifo2")
    stuck = [submit(stage.bob, "-w", "n1", *options, wrap="true") for options in (("-o", "fifo1"), ("-i", "fifo2"))]
    stage.await_state(submit(stage.alice, "-w", "n1", wrap="true"), "COMPLETED")
    stage.bob.ok("gqdel", *stuck)

    for job in stuck:
        assert stage.await_state(job, "CANCELLED", "FAILED", "COMPLETED").state in ("CANCELLED", "FAILED")
    assert stage.host("n1").run("pgrep", "-U", f"{BOB.uid}").stdout == ""


@attack("Run in a directory that is closed to the user", REFUSED, NOTHING)
def test_run_in_a_directory_that_is_closed_to_the_user(stage: Stage) -> None:
    stage.host("n1").ok("sh", "-c", "mkdir -p -m 700 /run/closed")
    job = submit(stage.bob, "-w", "n1", "-D", "/run/closed", "-o", f"{stage.bob.home}/closed", wrap="pwd")

    wait_until(lambda: stage.facts(job).reason == "BadWorkdir", what="the job is held")
    assert not stage.host("n1").path(f"{stage.bob.home}/closed").exists()


@attack("Read the daemons' files: database, scripts, keys, spool", REFUSED, NOTHING)
def test_read_the_daemons_files_database_scripts_keys_spool(stage: Stage) -> None:
    stage.running_job("-w", "n1", "--comment", "s3cret", wrap="echo s3cret > /dev/null; sleep 1000")
    for host in ("ctl", "n1", "login"):
        places = "/var/lib/gq /run/gq /etc/gq"
        assert stage.host(host).run("sh", "-c", f"grep -rlas s3cret {places}").stdout or host == "login"
        assert on(stage, host).run("sh", "-c", f"grep -rlas s3cret {places}").stdout == ""
        readable = on(stage, host).run("sh", "-c", f"find {places} -type f -readable -print 2>/dev/null").stdout
        assert not [path for path in readable.split() if not path.endswith(OPEN_TO_ALL)], readable


@attack("Look into another user's job by /proc", REFUSED, NOTHING)
def test_look_into_another_users_job_by_proc(stage: Stage) -> None:
    stage.running_job("-w", "n1", wrap="sleep 1000")
    pids = stage.host("n1").ok("pgrep", "-U", f"{ALICE.uid}").split()
    tries = "; ".join(f"cd /proc/{pid}; cat environ; ls fd cwd/ root/" for pid in pids)

    assert pids
    assert output(stage, wrap=f"({tries}) 2>/dev/null") == ""


@attack("Find open files of the daemon in the job", CONTAINED, NOTHING)
def test_find_open_files_of_the_daemon_in_the_job(stage: Stage) -> None:
    assert output(stage, wrap=python(OPEN_ALREADY)) == "[]\n"


# ── what a job brings along ───────────────────────────────────────────────────────────────────────────────────


@attack("Submit variables that affect root's processes", CONTAINED, "Submit: done")
def test_submit_variables_that_affect_roots_processes(stage: Stage) -> None:
    bob = on(stage, "n1")
    trap = "id -u >> /tmp/trapped\n"
    bob.write("trap.sh", trap, 0o644)
    bob.ok("chmod", "755", ".")
    bob.ok("mkdir", "-p", "lib")
    bob.write("lib/sitecustomize.py", "import os; open('/tmp/trapped', 'a').write(f'{os.geteuid()}\\n')", 0o644)
    variables = {
        "LD_DEBUG": "files",
        "LD_DEBUG_OUTPUT": "/tmp/loaded",
        "BASH_ENV": f"{bob.home}/trap.sh",
        "ENV": f"{bob.home}/trap.sh",
        "PYTHONPATH": f"{bob.home}/lib",
        "PATH": f"{bob.home}/lib:/usr/bin:/bin",
    }
    spec = JobSpec(name="brings", chdir=bob.home, submit_dir=bob.home, resources=ResourceRequest(nodelist=("n1",)))
    script = f"#!/bin/bash\n{sys.executable} -c pass\ntrue\n".encode()
    answer = stage.ask(stage.bob, wire.Submit(spec=spec, script=script, environment=variables))
    assert isinstance(answer, wire.Submitted)
    stage.await_state(answer.job_id, "COMPLETED")

    look = "stat -c %u /tmp/loaded.* /tmp/trapped; cat /tmp/trapped; rm /tmp/loaded.* /tmp/trapped"
    owners = stage.host("n1").ok("sh", "-c", look)
    assert set(owners.split()) == {f"{BOB.uid}"}, "the job's own processes only"


# ── keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


@attack("Search the keyrings for a key of another user's job", CONTAINED, NOTHING)
def test_search_the_keyrings_for_a_key_of_another_users_job(stage: Stage) -> None:
    holder = submit(stage.alice, "-w", "n1", wrap=f"{with_gq(ADD_KEY)}; gqrun {with_gq(SEARCH_KEY)}; sleep 1000")
    kept = stage.user(ALICE, "n1").path(f"gq-{holder}.out")
    wait_until(lambda: kept.exists() and len(kept.read_text().split()) >= 2, what="Alice's job has its key")

    assert kept.read_text().split() == ["found", "found"]  # a step of the same job finds it
    assert output(stage, wrap=with_gq(SEARCH_KEY)).split() == ["ENOKEY"]
