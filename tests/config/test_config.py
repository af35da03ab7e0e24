"""gq.toml: what it may say, how it complains, and where each value comes from."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from gq.config.config import ClientSettings, Config, LimitSettings, config_of, load_config, parse_config
from gq.connection.curve import make_keys, server_key_path, server_public_path
from gq.connection.locate import Location, private_location, system_location
from gq.errors import Refusal, UsageError
from gq.model.policy_tables import Accounting, Billing, Booking, PriorityWeights, Timers
from gq.model.scheduling import PRESETS, Scheduling
from gqd.shell.settings import local_zone, policy_of
from gqd.state.policy import ALL_NODES, Partition, Policy
from tests.requires import needs_root

PATH = "/etc/gq/gq.toml"

FULL = """
cluster = "lab"

[controller]
listen = "tcp://10.0.0.1:7321"
log_level = "debug"
log_json = true
job_requeue = false
default_mem_per_cpu = "2G"

[limits]
jobs = 5000

[timers]
heartbeat_s = 2

[[partition]]
name = "main"
default = true
nodes = ["n1", "n2"]
default_time = "1h"
max_time = "7d"

[[partition]]
name = "idle"
up = false
max_time = "unlimited"

[[node]]
name = "n1"
address = "10.0.0.2"
cpus = 64
memory = "64G"
gpus = [0, 1]
controller = "tcp://10.0.0.1:7321"
step_listen = "tcp://10.0.0.2:7322"
port_range = [20000, 20999]
isolation = { cpu = "none", devices = "cgroup1", memory = "auto" }

[[node]]
name = "n2"
gpus = "auto"
isolation = "auto"
login = true

[[node]]
name = "n3"
[[node.fake_gpu]]
type = "a100"
memory = "80G"
[[node.fake_gpu]]
memory_mib = 4096
device = "/dev/null"
numa = 1
"""


def test_an_empty_file_gives_every_default() -> None:
    config = parse_config("", PATH)
    assert config == Config(path=PATH)
    assert policy_of(config, owner_uid=7) == Policy(owner_uid=7, limits=config.limits, zone=local_zone())


def test_every_key_of_the_file_reaches_its_setting() -> None:
    config = parse_config(FULL, PATH)
    assert config.cluster == "lab"
    assert config.controller.listen == "tcp://10.0.0.1:7321"
    assert (config.controller.log_level, config.controller.log_json) == ("debug", True)
    assert config.controller.default_mem_per_cpu_mib == 2048
    assert (config.limits.jobs, config.timers.heartbeat_s) == (5000, 2.0)
    n1, n2, n3 = config.nodes
    assert (n1.address, n1.cpus, n1.memory_mib, n1.gpus) == ("10.0.0.2", 64, 65536, (0, 1))
    assert (n1.controller, n1.step_listen) == ("tcp://10.0.0.1:7321", "tcp://10.0.0.2:7322")
    assert n1.isolation == {"cpu": "none", "devices": "cgroup1"}
    assert (n2.gpus, n2.login, n2.isolation) == (None, True, {})
    assert [(gpu.type, gpu.memory_mib, gpu.device, gpu.numa) for gpu in n3.fake_gpus] == [
        ("a100", 81920, "", None),
        ("fake", 4096, "/dev/null", 1),
    ]


def test_the_policy_is_what_the_file_says() -> None:
    policy = policy_of(parse_config(FULL, PATH), owner_uid=7)
    assert policy.partitions == (
        Partition(name="main", nodes=("n1", "n2"), is_default=True, default_time_s=3600, max_time_s=7 * 86400),
        Partition(name="idle", nodes=ALL_NODES, is_up=False),
    )
    assert policy.limits == LimitSettings(jobs=5000)
    assert policy.timers == Timers(heartbeat_s=2.0)
    assert (policy.cluster, policy.job_requeue, policy.default_mem_per_cpu_mib) == ("lab", False, 2048)
    assert policy_of(parse_config("[controller]\nuse_interactive_step = true\n", PATH), 7).use_interactive_step


def test_the_first_partition_is_the_default_where_none_is_named() -> None:
    policy = policy_of(parse_config('[[partition]]\nname = "a"\n[[partition]]\nname = "b"\n', PATH), 0)
    assert policy.default_partition.name == "a"
    assert [partition.is_default for partition in policy.partitions] == [True, False]


def test_each_value_knows_where_it_comes_from() -> None:
    config = parse_config(FULL, PATH)
    origins = {key: origin for key, _, origin in config.settings()}
    assert origins["limits.jobs"] == PATH
    assert origins["limits.page"] == "default"
    assert origins["node.n1.memory"] == PATH
    assert origins["partition.idle.default_time"] == "default"
    assert origins["cluster"] == PATH
    values = {key: value for key, value, _ in config.settings()}
    assert values["timers.heartbeat_s"] == 2.0
    assert values["partition.main.max_time"] == 7 * 86400


@pytest.mark.parametrize(
    ("toml", "key", "words"),
    [
        ("clutser = 'x'", "clutser", "did you mean `cluster`?"),
        ("[limits]\njbos = 3", "limits.jbos", "did you mean `jobs`?"),
        ("[controller]\nlisten_on = 'x'", "controller.listen_on", "`listen`"),
        ("[[partition]]\nname = 'a'\nmaxtime = '1h'", "partition.a.maxtime", "did you mean `max_time`?"),
        ("[priority]\nmax_age_s = 3", "priority.max_age_s", "did you mean `max_age`?"),
        ("[priority]\nfairshare = 3", "priority.fairshare", "did you mean `fair_share`?"),
        ("[billing]\ngpus = 3", "billing.gpus", "`gpu`"),
        ("[accounts]\nrequired = true", "accounts.required", "did you mean `require`?"),
        ("[[partition]]\nname = 'a'\nuser = ['u']", "partition.a.user", "did you mean `users`?"),
        ("[[node]]\nname = 'n1'\n[[node.fake_gpu]]\nmemroy = '1G'", "node.n1.fake_gpu.0.memroy", "`memory`"),
        ("[[node]]\nname = 'n1'\nisolation = {gpu = 'none'}", "node.n1.isolation.gpu", "`devices`"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest_one(toml: str, key: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(toml, PATH)
    assert caught.value.message.startswith(f"{PATH}: `{key}`")
    assert words in caught.value.hint


@pytest.mark.parametrize(
    ("toml", "key"),
    [
        ("[limits]\njobs = 'many'", "limits.jobs"),
        ("[limits]\njobs = 1.5", "limits.jobs"),
        ("[limits]\njobs = 0", "limits.jobs"),
        ("[limits]\nmessage_bytes = 999999999", "limits.message_bytes"),
        ("[timers]\nheartbeat_s = -1", "timers.heartbeat_s"),
        ("[timers]\nnode_lost_s = 1", "timers.node_lost_s"),
        ("[controller]\nlog_json = 'yes'", "controller.log_json"),
        ("[controller]\nlog_level = 'loud'", "controller.log_level"),
        ("[controller]\nlisten = '10.0.0.1:7321'", "controller.listen"),
        ("[controller]\nlisten = 'tcp://10.0.0.1:99999'", "controller.listen"),
        ("[controller]\ndefault_mem_per_cpu = 'much'", "controller.default_mem_per_cpu"),
        ("[controller]\nsubmit_hook = '/etc/gq/hook.sh'", "controller.submit_hook"),
        ("[controller]\nsubmit_hook = '/etc/gq/hook.py:sub-mit'", "controller.submit_hook"),
        ("[controller]\nsubmit_hook_timeout_s = 0", "controller.submit_hook_timeout_s"),
        ("[controller]\nsubmit_hook_timeout_s = nan", "controller.submit_hook_timeout_s"),
        ("[controller]\nsubmit_hook_on_failure = 'shrug'", "controller.submit_hook_on_failure"),
        ("[priority]\nage = -1", "priority.age"),
        ("[priority]\nqos = nan", "priority.qos"),
        ("[priority]\nqos = inf", "priority.qos"),
        ("[priority]\nqos = true", "priority.qos"),
        ("[priority]\nmax_age = 3", "priority.max_age"),
        ("[priority]\nmax_age = '0'", "priority.max_age"),
        ("[priority]\nmax_age = 'unlimited'", "priority.max_age"),
        ("[priority]\nhalf_life = '0s'", "priority.half_life"),
        ("[priority]\nhalf_life = 'ever'", "priority.half_life"),
        ("[priority]\nfactors = 3", "priority.factors"),
        ("[priority.factors]\nweather = -0.5", "priority.factors.weather"),
        ("[priority.factors]\nweather = nan", "priority.factors.weather"),
        ("[priority.factors]\nweather = 'fine'", "priority.factors.weather"),
        ("[priority.factors]\n'bad weather' = 1", "priority.factors.bad weather"),
        ("[billing]\ncpu = -1", "billing.cpu"),
        ("[billing.gpu_types]\na100 = -2", "billing.gpu_types.a100"),
        ("[billing.gpu_types]\na100 = true", "billing.gpu_types.a100"),
        ("[accounts]\nrequire = 'yes'", "accounts.require"),
        ("[limits]\narray_tasks = 0", "limits.array_tasks"),
        ("[[partition]]\nname = 'a'\nmax_nodes = 0", "partition.a.max_nodes"),
        ("[[partition]]\nname = 'a'\npriority = -1", "partition.a.priority"),
        ("[[partition]]\nname = 'a'\ndefault_mem_per_gpu = '0'", "partition.a.default_mem_per_gpu"),
        ("[[partition]]\nname = 'a'\nusers = 'ann'", "partition.a.users"),
        ("cluster = 'a b'", "cluster"),
        ("limits = 3", "limits"),
        ("[partition]\nname = 'a'", "partition"),
        ("[[partition]]\ndefault = true", "partition"),
        ("[[partition]]\nname = 'a'\n[[partition]]\nname = 'a'", "partition"),
        ("[[partition]]\nname='a'\ndefault=true\n[[partition]]\nname='b'\ndefault=true", "partition"),
        ("[[partition]]\nname = 'a'\nmax_time = 60", "partition.a.max_time"),
        ("[[partition]]\nname = 'a'\nmax_time = 'soon'", "partition.a.max_time"),
        ("[[partition]]\nname = 'a'\nmax_time = '1h'\ndefault_time = '2h'", "partition.a.default_time"),
        ("[[node]]\nname = '../n1'", "node.../n1.name"),
        ("[[node]]\nname = 'n1'\ncpus = 0", "node.n1.cpus"),
        ("[[node]]\nname = 'n1'\nmemory = true", "node.n1.memory"),
        ("[[node]]\nname = 'n1'\ngpus = [0, 0]", "node.n1.gpus"),
        ("[[node]]\nname = 'n1'\ngpus = 'all'", "node.n1.gpus"),
        ("[[node]]\nname = 'n1'\nport_range = [20999, 20000]", "node.n1.port_range"),
        ("[[node]]\nname = 'n1'\nport_range = [80]", "node.n1.port_range"),
        ("[[node]]\nname = 'n1'\nfake_gpu = 4", "node.n1.fake_gpu"),
        ("[[node]]\nname = 'n1'\ngpus = [0]\n[[node.fake_gpu]]\ntype = 'a'", "node.n1.fake_gpu"),
        ("[[node]]\nname = 'n1'\nisolation = 'best'", "node.n1.isolation"),
        ("[[node]]\nname = 'n1'\nlogin = 1", "node.n1.login"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_file_and_key(toml: str, key: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_config(toml, PATH)
    assert caught.value.message.startswith(f"{PATH}: `{key}` ")


def test_what_is_not_toml_is_said_with_the_line() -> None:
    with pytest.raises(UsageError) as caught:
        parse_config("cluster = 'x'\n[limits\n", PATH)
    assert PATH in caught.value.message
    assert "line 2" in caught.value.message


def test_a_missing_file_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as caught:
        load_config(private_location(str(tmp_path), {}))
    assert caught.value.code == "no_config"
    assert "gq up" in caught.value.hint


def test_a_node_that_the_file_does_not_know_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refusal) as caught:
        parse_config(FULL, PATH).node("n11")
    assert "did you mean `n1`?" in caught.value.hint


# ── who goes next ─────────────────────────────────────────────────────────────────────────────────────────────

SCHEDULING = """
[controller]
time_zone = "Europe/Berlin"

[priority]
age = 5
fair_share = 2.5
job_size = 1
partition = 0
qos = 7
max_age = "14d"
half_life = "3d"
favor_small = true

[billing]
gpu = 1.5
cpu = 0.02
memory_gib = 0.001
[billing.gpu_types]
a100 = 2.5
h100 = 6

[accounts]
require = true
kill_on_invalid_dep = true

[limits]
array_tasks = 500
accounts = 50

[[partition]]
name = "gpu"
priority = 3
max_nodes = 4
default_cpus_per_gpu = 8
default_mem_per_gpu = "64G"
users = ["ann"]
groups = ["lab"]
accounts = ["physics"]
qos = ["normal", "high"]
"""


def test_all_that_the_file_says_of_who_goes_next_reaches_the_policy() -> None:
    policy = policy_of(parse_config(SCHEDULING, PATH), owner_uid=7)
    assert policy.weights == PriorityWeights(
        age=5.0,
        fair_share=2.5,
        job_size=1.0,
        partition=0.0,
        qos=7.0,
        max_age_s=14 * 86400.0,
        favor_small=True,
        half_life_s=3 * 86400.0,
    )
    assert policy.billing == Billing(gpu=1.5, gpu_types={"a100": 2.5, "h100": 6.0}, cpu=0.02, memory_gib=0.001)
    assert policy.accounting == Accounting(require=True, kill_on_invalid_dep=True)
    assert (policy.limits.array_tasks, policy.limits.accounts) == (500, 50)
    assert policy.partitions == (
        Partition(
            name="gpu",
            is_default=True,
            priority=3,
            max_nodes=4,
            default_cpus_per_gpu=8,
            default_mem_per_gpu_mib=65536,
            users=("ann",),
            groups=("lab",),
            accounts=("physics",),
            qos=("normal", "high"),
        ),
    )
    assert policy.zone == ZoneInfo("Europe/Berlin")


def test_weights_of_a_sites_own_factors_are_read_and_one_that_is_not_installed_is_refused() -> None:
    config = parse_config("[priority.factors]\nweather = 0.5\n", PATH)
    assert config.priority.factors == {"weather": 0.5}
    with pytest.raises(UsageError, match="weather"):
        policy_of(config, owner_uid=7)


@pytest.mark.parametrize("word", ["never", "unlimited"])
def test_usage_that_is_never_forgotten_has_no_half_life(word: str) -> None:
    policy = policy_of(parse_config(f'[priority]\nhalf_life = "{word}"\n', PATH), owner_uid=7)
    assert policy.weights.half_life_s is None


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "../../etc/passwd", "Europe", "UTC+3"])
def test_a_time_zone_that_this_host_does_not_have_is_named_with_file_and_key(zone: str) -> None:
    config = parse_config(f'[controller]\ntime_zone = "{zone}"\n', PATH)
    with pytest.raises(UsageError) as caught:
        policy_of(config, owner_uid=7)
    assert caught.value.message.startswith(f"{PATH}: `controller.time_zone` `{zone}` is not a time zone")


def test_the_machines_zone_is_the_default_and_follows_tz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", ":Asia/Tokyo")
    assert policy_of(parse_config("", PATH), owner_uid=7).zone == ZoneInfo("Asia/Tokyo")
    monkeypatch.setenv("TZ", "no/zone/of/that/name")
    assert local_zone().utcoffset(None) is not None, "what the clock says does instead"


# ── a shared cluster ──────────────────────────────────────────────────────────────────────────────────────────


def test_what_the_file_says_of_roles_and_login_nodes_reaches_the_policy() -> None:
    text = """
[access]
administrators = ["ann", "%wheel"]
operators = ["%ops"]
root_jobs = true

[[node]]
name = "gate"
login = true
"""
    policy = policy_of(parse_config(text, PATH), owner_uid=0)
    assert (policy.administrators, policy.operators, policy.root_jobs) == (("ann", "%wheel"), ("%ops",), True)
    assert policy.login_nodes == ("gate",)
    assert not policy.is_shared, "without a location nothing runs"


@pytest.mark.parametrize(
    ("settings", "endpoint"),
    [
        ('listen = "tcp://10.0.0.1:7133"', "tcp://10.0.0.1:7133"),
        ('listen = "tcp://*:7133"\naddress = "ctl.example.org"', "tcp://ctl.example.org:7133"),
        ('listen = "tcp://0.0.0.0:7133"\naddress = "fd00::1"', "tcp://[fd00::1]:7133"),
        ('listen = "tcp://[::]:7133"\naddress = "[fd00::1]"', "tcp://[fd00::1]:7133"),
        ('listen = "tcp://*:7133"', f"tcp://{socket.gethostname()}:7133"),
        ("", ""),
    ],
)
def test_nodes_are_told_an_address_that_leads_to_the_controller(settings: str, endpoint: str) -> None:
    assert policy_of(parse_config(f"[controller]\n{settings}\n", PATH), owner_uid=0).endpoint == endpoint


def test_the_policy_has_the_public_half_of_the_controllers_key(tmp_path: Path) -> None:
    location = Location(str(tmp_path / "gq.toml"), str(tmp_path), str(tmp_path), is_private=True)
    config = parse_config('[controller]\nlisten = "tcp://10.0.0.1:7133"\n', PATH)
    with pytest.raises(Refusal) as caught:
        policy_of(config, 0, location)
    assert "gqd keygen" in caught.value.hint
    pair = make_keys(server_key_path(location.keys_dir), server_public_path(location.keys_dir))
    assert policy_of(config, 0, location).server_key == pair.public.decode()


def test_a_laptop_is_told_where_the_controller_is_and_by_what_to_know_it() -> None:
    key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
    text = f'[client]\ncontroller = "tcp://10.0.0.1:7134"\nserver_key = "{key}"\n'
    assert parse_config(text, PATH).client == ClientSettings(controller="tcp://10.0.0.1:7134", server_key=key)
    for wrong in (key[:-1], key + "x", "~" * 40):
        with pytest.raises(UsageError, match="is not a public key"):
            parse_config(f'[client]\nserver_key = "{wrong}"\n', PATH)


@pytest.mark.parametrize(
    ("place", "mode"), [("file", 0o666), ("file", 0o620), ("file", 0o602), ("directory", 0o777), ("directory", 0o770)]
)
def test_a_file_that_others_can_write_rules_no_daemon_of_the_system(tmp_path: Path, place: str, mode: int) -> None:
    path = tmp_path / "etc" / "gq.toml"
    path.parent.mkdir(mode=0o755)
    path.touch(mode=0o644)
    location = system_location(str(path))
    assert load_config(location) == Config(path=str(path))
    wrong = path if place == "file" else path.parent
    wrong.chmod(mode)
    with pytest.raises(Refusal) as caught:
        load_config(location)
    assert caught.value.code == "unsafe_config"
    assert str(wrong) in caught.value.message
    assert f"chmod go-w {wrong}" == caught.value.hint
    wrong.chmod(wrong.stat().st_mode & ~0o022)
    assert load_config(location), "the hint is the way out"


@needs_root
@pytest.mark.parametrize("place", ["file", "directory"])
def test_a_file_of_somebody_else_rules_no_daemon_of_the_system(tmp_path: Path, place: str) -> None:
    path = tmp_path / "etc" / "gq.toml"
    path.parent.mkdir()
    path.touch()
    os.chown(path if place == "file" else path.parent, 4321, -1)
    with pytest.raises(Refusal) as caught:
        load_config(system_location(str(path)))
    assert caught.value.code == "unsafe_config"
    assert "4321" in caught.value.message


# ── [scheduler] ───────────────────────────────────────────────────────────────────────────────────────────────


def test_how_the_queue_is_planned_is_what_the_file_says_over_what_its_policy_has() -> None:
    text = """
[scheduler]
policy = "easy-user"
order = "priority"
protected_jobs = 3
protect_wide_after = "30m"
expected_without_history = "2h"
gpu_tiers = ["P100", "A100"]
"""
    config = parse_config(text, PATH)

    assert config.scheduler == Scheduling(
        policy="easy-user",
        order="priority",
        protected_jobs=3,
        protect_wide_after_s=1800.0,
        protect_any_after_s=None,
        expect="limit",
        expected_without_history_s=7200.0,
        gpu_tiers=("P100", "A100"),
    )
    assert policy_of(config, owner_uid=7).scheduling == config.scheduler
    assert config.origin("scheduler.protect_wide_after") == PATH
    assert config.origin("scheduler.expect") == "default"
    assert parse_config("", PATH).scheduler == Scheduling()


@pytest.mark.parametrize("name", PRESETS)
def test_a_policy_that_has_a_name_can_be_asked_for_and_what_only_gqsim_knows_is_refused(name: str) -> None:
    text = f'[scheduler]\npolicy = "{name}"\n'
    wanted = Scheduling(**(PRESETS[name] | {"policy": name}))
    assert config_of({"scheduler": {"policy": name}}, PATH).scheduler == wanted

    if wanted.expect == "exact":
        with pytest.raises(UsageError, match=r"`scheduler.policy` is `exact`, which only gqsim supports"):
            parse_config(text, PATH)
        assert parse_config(f'{text}expect = "limit"', PATH).scheduler == msgspec.structs.replace(
            wanted, expect="limit"
        )
    else:
        assert parse_config(text, PATH).scheduler == wanted


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("policy = 'esay'", "`scheduler.policy` `esay` is not one of"),
        ("order = 'random'", "`scheduler.order` `random` is not one of priority, shortest, arrival"),
        ("backfill = true", "`scheduler.backfill` has the wrong type"),
        ("expect = 'exact'", "`scheduler.expect` is `exact`, which only gqsim supports"),
        ("protected_jobs = -1", "`scheduler.protected_jobs` is -1; it must be between 0 and"),
        ("history_jobs = 33", "`scheduler.history_jobs` is 33; it must be between 1 and 32"),
        ("plan_steps = 0", "`scheduler.plan_steps` is 0; it must be between 1 and"),
        ("protect_fair_share = 1.5", "`scheduler.protect_fair_share` is 1.5; it must be between 0 and 1"),
        ("protect_oldest_share = -1", "`scheduler.protect_oldest_share` is -1; it must be between 0 and 1"),
        ("protect_any_after = 7200", "`scheduler.protect_any_after` must be text with a unit"),
        ("expected_without_history = 'never'", "`scheduler.expected_without_history`"),
        ("expected_without_history = 'unlimited'", "`scheduler.expected_without_history` `unlimited` is not finite"),
        ("protect_wide = '1h'", "`scheduler.protect_wide` is not a setting of [scheduler]"),
    ],
)
def test_a_wrong_setting_of_the_scheduler_is_refused_by_its_name(line: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_config(f"[scheduler]\n{line}\n", PATH)
    assert complaint in raised.value.message


def test_a_protected_start_may_be_given_to_nobody() -> None:
    config = parse_config('[scheduler]\nprotect_wide_after = "never"\nprotect_any_after = "unlimited"\n', PATH)
    assert (config.scheduler.protect_wide_after_s, config.scheduler.protect_any_after_s) == (None, None)


# ── [reservations] ────────────────────────────────────────────────────────────────────────────────────────────


def test_who_may_reserve_how_much_is_what_the_file_says() -> None:
    text = """
[reservations]
users = true
max_per_user = 2
max_gpu_hours = 500
max_ahead = "14d"
max_duration = "unlimited"
horizon = "7d"
clear_time = "2m"
no_show = "20m"
"""
    config = parse_config(text, PATH)

    assert config.reservations == Booking(
        users=True,
        max_per_user=2,
        max_gpu_hours=500.0,
        max_ahead_s=14 * 86400,
        max_duration_s=None,
        horizon_s=7 * 86400,
        clear_time_s=120,
        no_show_s=1200,
    )
    assert policy_of(config, owner_uid=7).booking == config.reservations
    assert parse_config("[reservations]\nmax_gpu_hours = 'unlimited'", PATH).reservations.max_gpu_hours is None
    assert parse_config("[reservations]\nno_show = 'never'", PATH).reservations == Booking()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("max_per_user = -1", "`reservations.max_per_user` is -1; it must be between 0 and"),
        ("max_gpu_hours = 'many'", "`reservations.max_gpu_hours` has the wrong type"),
        ("max_ahead = 14", "`reservations.max_ahead` must be text with a unit"),
        ("no_show = '0s'", "`reservations.no_show` is 0; it must be more than 0"),
        ("horizon = 'unlimited'", "`reservations.horizon` `unlimited` is not finite"),
        ("horizon = '367d'", "`reservations.horizon` is longer than 366 days"),
        ("clear_time = 'unlimited'", "`reservations.clear_time` `unlimited` is not finite"),
        ("user = true", "`reservations.user` is not a setting of [reservations]"),
    ],
)
def test_a_wrong_setting_of_reservations_is_refused_by_its_name(line: str, complaint: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_config(f"[reservations]\n{line}\n", PATH)
    assert complaint in raised.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[timers]\nheartbeat_s = 'x'", "`timers.heartbeat_s` has the wrong type: expected a number, got text"),
        ("[limits]\njobs = 'x'", "`limits.jobs` has the wrong type: expected a whole number, got text"),
        ("[[partition]]\nname = 'a'\nusers = 'b'", "`partition.a.users` has the wrong type: expected a list, got text"),
    ],
)
def test_a_value_of_the_wrong_type_is_described_in_words(text: str, words: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_config(text, PATH)

    assert raised.value.message.endswith(words)
