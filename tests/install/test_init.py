"""`gqd init`: what it writes with which modes, what it leaves alone, and what it says."""

from __future__ import annotations

import signal
import stat

import pytest
from msgspec import structs

from gq.config.config import parse_config
from gq.errors import Refusal
from gqd.admin.init import with_user
from tests.clusters import wait_until
from tests.integration.jobs import LONG_S, await_state, facts, submit
from tests.requires import needs_program, needs_root
from tests.system.accounts import ALICE
from tests.system.hosts import CONFIG_PATH, KEYS, Host

pytestmark = [needs_root, needs_program("ip"), needs_program("nsenter"), pytest.mark.xdist_group("init")]

MODES = {
    "/etc/gq": 0o755,
    CONFIG_PATH: 0o644,
    "/var/lib/gq": 0o711,
    "/run/gq": 0o755,
}
GQD = "/var/lib/gq/controller"
OF_USER = {
    GQD: 0o700,
    "/run/gq/controller": 0o755,
    f"{GQD}/keys": 0o700,
    f"{GQD}/keys/gqd.key": 0o600,
    f"{GQD}/keys/gqd.pub": 0o644,
}


def modes(host: Host) -> dict[str, int]:
    return {
        path: stat.S_IMODE(host.path(path).stat().st_mode) for path in (*MODES, *OF_USER) if host.path(path).exists()
    }


def everything(host: Host) -> dict[str, bytes]:
    """Every file of gq on the host."""
    return {
        str(path.relative_to(host.path("/"))): path.read_bytes()
        for top in ("/etc/gq", "/var/lib/gq")
        for path in sorted(host.path(top).rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("umask", ["000", "022", "077"])
def test_a_fresh_host_gets_settings_keys_and_directories_with_the_right_modes(
    hosts: dict[str, Host], umask: str
) -> None:
    a = hosts["a"]
    a.ok("sh", "-c", f"umask {umask}; gqd init --cluster lab")

    assert modes(a) == MODES | OF_USER
    assert {a.path(path).stat().st_uid for path in MODES} == {0}
    gq = a.ok("id", "-u", "gq").strip()
    assert {str(a.path(path).stat().st_uid) for path in OF_USER} == {gq} and 0 < int(gq) < 1000
    config = parse_config(a.path(CONFIG_PATH).read_text(), CONFIG_PATH)
    assert (config.cluster, config.controller.listen, config.controller.address, config.nodes) == (
        "lab",
        "tcp://*:7133",
        "a",
        (),
    )


def test_it_says_what_to_do_next_in_lines_that_fit(hosts: dict[str, Host]) -> None:
    said = hosts["a"].ok("gqd", "init")

    assert said.splitlines()[0] == f"cluster gq is set up: {CONFIG_PATH}, {GQD}"
    assert "  gqctl token create | ssh root@HOST gqnode join tcp://a:7133 --start" in said.splitlines()
    assert "gqd init --start" in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_options_are_what_the_file_says(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init", "--listen=tcp://10.77.0.1:999", "--node=here")

    config = parse_config(a.path(CONFIG_PATH).read_text(), CONFIG_PATH)
    assert (config.controller.listen, config.controller.address) == ("tcp://10.77.0.1:999", "10.77.0.1")
    [node] = config.nodes
    assert node.private_tmp, "in a cluster of many users jobs do not meet in /tmp"
    assert (node.name, node.controller, node.address) == ("here", None, "10.77.0.1")
    assert node.step_listen == "tcp://10.77.0.1:7134"
    assert stat.S_IMODE(a.path(f"{KEYS}/node-here.key").stat().st_mode) == 0o600


@needs_program("setpriv")
def test_a_host_without_mount_namespaces_says_so_and_its_node_shares_tmp(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    done = a.run("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "gqd", "init", "--node=here")

    assert done.returncode == 0
    assert "warning: jobs of this node share /tmp and /dev/shm" in done.stderr
    assert "Operation not permitted" in done.stderr
    text = a.path(CONFIG_PATH).read_text()
    assert not parse_config(text, CONFIG_PATH).node("here").private_tmp
    assert (
        "private_tmp = false              # jobs share /tmp and /dev/shm: a mount namespace with its own /tmp" in text
    )


def test_a_host_that_was_set_up_is_left_as_it_is_and_the_way_to_join_is_said_again(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    first = a.ok("gqd", "init", "--address=head.example.org")
    before = everything(a)

    again = a.ok("gqd", "init")

    assert everything(a) == before
    assert again == first.replace("is set up", "was set up already")
    assert "tcp://head.example.org:7133" in again


def test_an_interrupted_call_is_simply_made_again(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    keys = a.path(f"{GQD}/keys/gqd.key").read_text()
    a.path(CONFIG_PATH).unlink()
    a.path(f"{GQD}/keys/gqd.pub").unlink()

    a.ok("gqd", "init")

    assert modes(a) == MODES | OF_USER
    assert a.path(f"{GQD}/keys/gqd.key").read_text() == keys


def test_the_host_of_the_controller_can_become_a_node_later(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init", "--cluster=lab")
    a.path(CONFIG_PATH).write_text(f"{a.path(CONFIG_PATH).read_text()}# mine\n")

    a.ok("gqd", "init", "--node=here")
    once = everything(a)
    a.ok("gqd", "init", "--node=here")

    text = a.path(CONFIG_PATH).read_text()
    assert [node.name for node in parse_config(text, CONFIG_PATH).nodes] == ["here"]
    assert "# mine\n" in text and 'cluster = "lab"' in text
    assert everything(a) == once


def test_settings_elsewhere_do_not_change_the_directory_that_they_lie_in(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "--config=/tmp/gq.toml", "init")
    there = a.path("/tmp/gq.toml")

    assert stat.S_IMODE(there.parent.stat().st_mode) == 0o1777
    assert stat.S_IMODE(there.stat().st_mode) == 0o644
    there.unlink()


# ── what is refused ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("there", "words", "message", "way_out"),
    [
        ('[[node]]\nname = "n"\ncontroller = "tcp://x:1"\n', [], "is a node of another controller", "remove"),
        ('cluster = "mine"\n', [], "already exists without [controller] listen", "add listen"),
        ('[controller]\nlisten = "tcp://*:1"\n', [], "gqd.key, ", ""),
        ("[controler]\n", [], "`controler` is not a setting", "did you mean"),
    ],
)
def test_settings_of_something_else_are_not_touched(
    hosts: dict[str, Host], there: str, words: list[str], message: str, way_out: str
) -> None:
    a = hosts["a"]
    a.path("/etc/gq").mkdir()
    a.path(CONFIG_PATH).write_text(there)
    if not way_out:
        message, way_out = f"{KEYS}/gqd.key does not", "gqd keygen"

    done = a.run("gqd", "init", *words)

    assert done.returncode != 0 and done.stdout == ""
    assert done.stderr.startswith("error: ") and message in done.stderr
    assert way_out in done.stderr.partition("hint: ")[2]
    assert everything(a) == {"etc/gq/gq.toml": there.encode()}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster=other"], "already exists with cluster gq, not other"),
        (["--listen=tcp://*:1"], "already exists with listen tcp://*:7133, not tcp://*:1"),
        (["--address=x"], "already exists with address a, not x"),
    ],
)
def test_another_wish_than_the_one_that_was_fulfilled_is_refused(
    hosts: dict[str, Host], words: list[str], message: str
) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    before = everything(a)

    done = a.run("gqd", "init", *words)

    assert (done.returncode, done.stdout) == (1, "")
    assert message in done.stderr and "hint: change the file" in done.stderr
    assert everything(a) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cluster=a b"], "`a b` is not a name"),
        (["--listen=7133"], "`7133` is not tcp://ADDRESS:PORT"),
        (["--node=../x"], "`../x` is not a name"),
    ],
)
def test_a_value_that_cannot_stand_in_the_file_is_refused_before_anything_is_written(
    hosts: dict[str, Host], words: list[str], message: str
) -> None:
    a = hosts["a"]
    done = a.run("gqd", "init", *words)

    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert not a.path("/etc/gq").exists() and not a.path("/var/lib/gq").exists()


def test_a_queue_without_its_settings_is_not_taken_over(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.path("/var/lib/gq").mkdir()
    a.path("/var/lib/gq/gq.db").write_text("jobs")

    done = a.run("gqd", "init")

    assert done.returncode == 1
    assert "/var/lib/gq/gq.db, the queue of a cluster, exists" in done.stderr and "hint: restore" in done.stderr
    assert everything(a) == {"var/lib/gq/gq.db": b"jobs"}


@pytest.mark.parametrize("path", ["/etc/gq", "/var/lib/gq"])
def test_a_directory_that_belongs_to_somebody_else_is_not_used(hosts: dict[str, Host], path: str) -> None:
    a = hosts["a"]
    a.ok("sh", "-c", f"mkdir {path}; chown alice {path}")

    done = a.run("gqd", "init")

    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path} is not a directory that you own" in done.stderr and "hint: move it away" in done.stderr
    assert not a.path(CONFIG_PATH).exists()


def test_settings_that_others_can_write_are_not_believed(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    a.path(CONFIG_PATH).chmod(0o666)

    done = a.run("gqd", "init")

    assert done.returncode != 0
    assert "is writable by others" in done.stderr and f"chmod go-w {CONFIG_PATH}" in done.stderr


def test_an_ordinary_user_is_told_of_root_and_of_a_private_cluster(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    done = a.run("setpriv", "--reuid=2001", "--regid=2001", "--clear-groups", "gqd", "init")

    assert (done.returncode, done.stdout) == (1, "")
    assert "as root" in done.stderr and "for yourself with `gq up`" in done.stderr


def test_a_private_cluster_is_not_made_by_it(hosts: dict[str, Host]) -> None:
    done = hosts["a"].run("gqd", "--dir=/tmp/x", "init")

    assert done.returncode == 2
    assert "`gqd init` does not create a private cluster" in done.stderr


# ── the user that gqd runs as ─────────────────────────────────────────────────────────────────────────────────


def owner(host: Host, path: str) -> str:
    return host.ok("stat", "-c", "%U", path).strip()


@pytest.mark.slow
def test_an_installation_of_root_is_given_to_a_user_with_its_jobs_and_keys(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init", "--user=root", "--node=a")
    a.path(CONFIG_PATH).write_text(a.path(CONFIG_PATH).read_text().replace('user = "root"', "#"))  # as before
    old = a.daemon("gqd", "--config", CONFIG_PATH)
    old.await_log("gqd runs as root")
    old.await_log("gqd is ready")
    node = a.daemon("gqnode", "--config", CONFIG_PATH, "--name", "a")
    node.await_log("is part of cluster")
    running = submit(a.user(ALICE), wrap="until [ -e go ]; do sleep 0.1; done; echo ended")
    await_state(a.user(ALICE), running, "RUNNING")
    waiting = submit(a.user(ALICE), "--hold", wrap="true")
    key = a.path(f"{KEYS}/gqd.key").read_text()

    refused = a.run("gqd", "init", "--user=gq")
    assert refused.returncode == 1 and "gqd runs (process" in refused.stderr and "`gqd stop`" in refused.stderr
    assert 'user = "gq"' not in a.path(CONFIG_PATH).read_text()
    old.kill(signal.SIGTERM)
    a.ok("gqd", "init", "--user=gq")
    new = a.daemon("gqd", "--config", CONFIG_PATH)
    new.await_log("gqd is ready")

    try:
        assert owner(a, f"{GQD}/gq.db") == owner(a, f"{GQD}/blobs.db") == owner(a, f"{GQD}/keys/gqd.key") == "gq"
        assert a.path(f"{GQD}/keys/gqd.key").read_text() == key
        assert not list(a.path("/var/lib/gq").glob("*.db*")) and not a.path(f"{KEYS}/gqd.key").exists()
        wait_until(lambda: facts(a.user(ALICE), running)["state"] == "RUNNING", LONG_S, "the job runs on")
        assert facts(a.user(ALICE), waiting)["state"] == "PENDING"
        a.user(ALICE).path("go").touch()
        await_state(a.user(ALICE), running, "COMPLETED")
        assert a.user(ALICE).ok("gqlog", running) == "ended\n"
        assert a.run("gq", "doctor").stdout.count("FAIL") == 0
    finally:
        new.kill(signal.SIGTERM)
        node.kill(signal.SIGTERM)


def test_a_queue_that_was_left_in_roots_directory_keeps_gqd_from_starting(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    a.path("/var/lib/gq/gq.db").write_text("jobs")

    done = a.run("gqd", "--config", CONFIG_PATH)

    assert done.returncode == 1
    assert "/var/lib/gq/gq.db is still in the directory that gqd used as root" in done.stderr
    assert "hint: `gqd init` moves it to the user" in done.stderr


@pytest.mark.parametrize(
    ("user", "message", "way_out"),
    [
        ("alice", "runs as alice", ""),
        ("nobody-here", "this host has no user `nobody-here`", "`gqd init` creates it"),
        ("toor", "`toor` has uid 0", 'user = "root"'),
    ],
)
def test_a_user_that_cannot_be_becomes_a_refusal(hosts: dict[str, Host], user: str, message: str, way_out: str) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    passwd = a.path("/etc/passwd")
    known = passwd.read_text()
    passwd.write_text(f"{known}toor:x:0:0::/root:/bin/sh\n")
    a.path(CONFIG_PATH).write_text(a.path(CONFIG_PATH).read_text().replace('user = "gq"', f'user = "{user}"'))

    who = ("setpriv", "--reuid=bob", "--regid=bob", "--clear-groups") if user == "alice" else ()
    done = a.run(*who, "gqd", "--config", CONFIG_PATH)

    passwd.write_text(known)
    assert done.returncode != 0 and message in done.stderr and way_out in done.stderr


def test_a_host_that_cannot_make_a_user_says_so_and_changes_nothing(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("mount", "--bind", "/bin/false", "/usr/sbin/useradd")
    try:
        done = a.run("gqd", "init")
    finally:
        a.ok("umount", "/usr/sbin/useradd")

    assert done.returncode == 1
    assert "a system user `gq` for gqd cannot be created: useradd failed" in done.stderr
    assert "--user=root runs gqd as root" in done.stderr
    assert not a.path(CONFIG_PATH).exists()


def test_a_person_who_is_called_gq_is_not_taken_for_a_system_user(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("useradd", "--uid", "1700", "gq")

    done = a.run("gqd", "init")

    assert done.returncode == 1
    assert "user gq exists and is not a system account (uid 1700)" in done.stderr and "--user" in done.stderr


@pytest.mark.parametrize("set_gid", ["sendmail", "postdrop"])
def test_a_sendmail_that_needs_rights_which_gqd_gave_up_is_refused_with_the_way_out(
    hosts: dict[str, Host], set_gid: str
) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    a.ok("sh", "-c", "mkdir -p /run/mta; cd /run/mta; cp /bin/true sendmail; cp /bin/true postdrop; ln -s sendmail mta")
    with a.path(CONFIG_PATH).open("a") as file:
        file.write('[notify]\nmail = "/run/mta/mta"\n')
    a.ok("chmod", "g+s", f"/run/mta/{set_gid}")

    try:
        refused = a.run("gqd", "--config", CONFIG_PATH)
        found = a.run("gq", "doctor").stdout
        a.ok("chmod", "g-s", f"/run/mta/{set_gid}")
        gqd = a.daemon("gqd", "--config", CONFIG_PATH)
        gqd.await_log("gqd is ready")
        gqd.kill(signal.SIGTERM)
    finally:
        a.ok("rm", "-r", "/run/mta")

    assert refused.returncode == 2
    assert f"/run/mta/mta cannot be used: /run/mta/{set_gid} is set-gid" in refused.stderr
    assert 'hint: mail = "smtp://localhost:25"' in refused.stderr
    assert f"/run/mta/{set_gid} is set-gid" in " ".join(found.split())


def test_gqd_writes_into_the_new_log_after_a_rotation(hosts: dict[str, Host]) -> None:
    a = hosts["a"]
    a.ok("gqd", "init")
    a.ok("gqd", "start")
    log = "/var/log/gq/gqd.log"
    try:
        assert owner(a, log) == "gq"
        a.ok("sh", "-c", f"cd /var/log/gq; mv gqd.log gqd.log.1; install -m 644 -o gq -g gq /dev/null {log}")
        a.ok("sh", "-c", "kill -HUP $(cat /var/lib/gq/gqd.pid)")
        wait_until(lambda: "gq.toml was reloaded" in a.path(log).read_text(), LONG_S, "the new log has a line")
    finally:
        a.ok("gqd", "stop")


@pytest.mark.parametrize(
    "text",
    [
        "",
        'cluster = "c"',
        '[[node]]\nname = "a"\ncontroller = "tcp://x:1"\n',
        '[controller]\nlisten = "tcp://*:1"\n\n[access]\nroot_jobs = true\n',
        '[[node]]\nname = "a"\ncontroller = "tcp://x:1"\n\n  [ controller ] # here\njob_requeue = false',
        "[controller]",
    ],
)
def test_the_user_is_added_to_settings_of_any_shape(text: str) -> None:
    before, after = (parse_config(one, CONFIG_PATH) for one in (text, with_user(text, "gq", CONFIG_PATH)))

    assert after.controller == structs.replace(before.controller, user="gq")
    assert (after.cluster, after.nodes, after.access) == (before.cluster, before.nodes, before.access)


def test_a_user_is_not_added_where_the_settings_have_no_line_for_it() -> None:
    with pytest.raises(Refusal, match=r"has no line \[controller\]"):
        with_user("controller.job_requeue = true\n", "gq", CONFIG_PATH)
