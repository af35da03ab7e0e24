"""What is asked of nodes beside numbers: constraints, resources by name, licences, and the roles of a gang."""

from __future__ import annotations

import pytest

from gq.errors import UsageError
from gq.model.resource import Amount, ResourceRequest, Role, RoleRequest
from gq.request.getopt import parse
from gq.request.layers import job_arguments
from gq.request.options import SUB, options_of
from gq.request.resources import resource_request
from tests.cli.test_jobspec import spec


def asked(*words: str) -> ResourceRequest:
    return spec(*words).resources


def refusal(*words: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        asked(*words)
    return caught.value


@pytest.mark.parametrize(
    ("words", "request_"),
    [
        (["-C", "nvlink&cuda>=12.4"], ResourceRequest(constraint="nvlink&cuda>=12.4")),
        (["--prefer=fast"], ResourceRequest(prefer="fast")),
        (["--switches=2"], ResourceRequest(switches=2)),
        (["--switches=1@10m"], ResourceRequest(switches=1, switches_wait_s=600)),
        (["--switches=1@unlimited"], ResourceRequest(switches=1, switches_wait_s=2**31 - 1)),
        (["-G2", "--min-gpu-mem=40G"], ResourceRequest(gpus=2, min_gpu_mem_mib=40960)),
        (["--tmp=10G"], ResourceRequest(resources=(Amount("tmp", 10240),))),
        (["--gres=gpu:a100:2,fpga:1,port"], ResourceRequest(
            gpus_per_node=2, gpu_type="a100", resources=(Amount("fpga", 1), Amount("port", 1)))),
        (["--gres=fpga:1", "--gpus-per-node=2", "--tmp=1G"], ResourceRequest(
            gpus_per_node=2, resources=(Amount("fpga", 1), Amount("tmp", 1024)))),
        (["-L", "matlab:2,ansys"], ResourceRequest(licenses=(Amount("matlab", 2), Amount("ansys", 1)))),
        (["--data=imagenet", "--data", "c4,pile"], ResourceRequest(data=("imagenet", "c4", "pile"))),
        (["-G12", "--fill-nodes"], ResourceRequest(gpus=12, is_dense=True)),
        (["-n8", "--ntasks-per-gpu=2"], ResourceRequest(ntasks=8, gpus=4, ntasks_per_gpu=2)),
        (["-G4", "--ntasks-per-gpu=2"], ResourceRequest(gpus=4, ntasks_per_gpu=2)),
        (["-G4", "-n6", "--ntasks-per-gpu=2"], ResourceRequest(gpus=4, ntasks=6, ntasks_per_gpu=2)),
        (["--gres=gpu:2", "--ntasks-per-gpu=2"], ResourceRequest(gpus_per_node=2, ntasks_per_gpu=2)),
    ],
)  # fmt: skip
def test_what_is_said_of_nodes_is_in_the_request(words: list[str], request_: ResourceRequest) -> None:
    assert asked(*words) == request_


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-C", "a&"], "`-C`: at position 3"),
        (["--switches=0"], "`--switches`: 0 is too small"),
        (["--switches=1@soon"], "`--switches`: `soon` is not a duration"),
        (["--min-gpu-mem=1G"], "`--min-gpu-mem`: the job requests no GPUs"),
        (["--fill-nodes"], "`--fill-nodes`: it applies only to GPUs distributed over nodes"),
        (["--gres=tmp:1"], "`--gres`: `tmp` is scratch space"),
        (["--gres=fpga:intel:1"], "`--gres`: `fpga:intel:1` is not NAME[:COUNT]"),
        (["--gres=gpu:1,gpu:2"], "`--gres`: `gpu:1,gpu:2` requests GPUs twice"),
        (["--licenses=a b"], "`--licenses`: `a b` is not NAME[:COUNT]"),
        (["--gres=gpu:1,fpga:1", "--gpus-per-node=1"], "`--gpus-per-node` and `--gres` exclude each other"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_place(words: list[str], message: str) -> None:
    assert refusal(*words).message.startswith(message)


def test_an_update_of_the_tasks_also_changes_the_gpus_that_they_share() -> None:
    base = ResourceRequest(ntasks=8, gpus=4, ntasks_per_gpu=2)

    def updated(*words: str) -> ResourceRequest:
        return resource_request(job_arguments(SUB, parse(words, options_of(SUB))[0], {}), base)

    assert updated("-n12") == ResourceRequest(ntasks=12, gpus=6, ntasks_per_gpu=2)
    assert updated("--ntasks-per-gpu=4") == ResourceRequest(ntasks=8, gpus=2, ntasks_per_gpu=4)
    assert updated("-C", "ib") == ResourceRequest(ntasks=8, gpus=4, ntasks_per_gpu=2, constraint="ib")
    assert updated("--ntasks-per-node=4").ntasks_per_gpu is None


def test_gpus_on_the_command_line_leave_the_other_resources_of_the_script() -> None:
    header = parse(["--gres=gpu:1,fpga:2"], options_of(SUB))[0]
    options = job_arguments(SUB, parse(["--gpus-per-node=4"], options_of(SUB))[0], {}, header)

    assert resource_request(options) == ResourceRequest(gpus_per_node=4, resources=(Amount("fpga", 2),))


def test_an_update_of_scratch_space_leaves_the_other_resources() -> None:
    base = ResourceRequest(resources=(Amount("fpga", 1), Amount("tmp", 5)), constraint="a", licenses=(Amount("x", 1),))
    changes = job_arguments(SUB, parse(["--tmp=7", "--constraint="], options_of(SUB))[0], {})

    assert resource_request(changes, base) == ResourceRequest(
        resources=(Amount("fpga", 1), Amount("tmp", 7)), licenses=(Amount("x", 1),)
    )


# ── roles ─────────────────────────────────────────────────────────────────────────────────────────────────────


def role(name: str, **fields: object) -> Role:
    return Role(name=name, resources=RoleRequest(**fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("ps:2", {"ntasks": 2}),
        ("ps:2,cpus=4", {"ntasks": 2, "cpus_per_task": 4}),
        ("ps:4,gpus=a100:2,nodes=2", {"ntasks": 4, "gpus_per_task": 2, "gpu_type": "a100", "nodes_min": 2}),
        ("ps:1,cpus=4,mem=10G", {"ntasks": 1, "cpus_per_task": 4, "mem_per_cpu_mib": 2560}),
        ("ps:1,mem=1G", {"ntasks": 1, "cpus_per_task": 1, "mem_per_cpu_mib": 1024}),
        ("ps:1,constraint=a&b,prefer=c,tmp=1G", {
            "ntasks": 1, "constraint": "a&b", "prefer": "c", "resources": (Amount("tmp", 1024),)}),
        ("ps:1,gpus=1,min-gpu-mem=40G", {"ntasks": 1, "gpus_per_task": 1, "min_gpu_mem_mib": 40960}),
    ],
)  # fmt: skip
def test_a_role_says_what_each_of_its_tasks_has(text: str, fields: dict[str, object]) -> None:
    assert asked("--role", text) == ResourceRequest(roles=(role("ps", **fields),))


def test_roles_keep_their_order_and_share_what_is_said_beside_them() -> None:
    found = asked("--role=ps:1", "--role=worker:2,constraint=b", "-C", "a", "-x", "n9", "-L", "lic:3")

    assert found == ResourceRequest(
        licenses=(Amount("lic", 3),),
        roles=(
            role("ps", ntasks=1, constraint="a", exclude=("n9",)),
            role("worker", ntasks=2, constraint="b", exclude=("n9",)),
        ),
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--role=ps"], "`--role`: `ps` does not give a number of tasks"),
        (["--role=ps:0"], "`--role`: 0 is too small"),
        (["--role=1st:2"], "`--role`: `1st` cannot be a role's name"),
        (["--role=ps:1,speed=9"], "`--role`: `speed=9` is not a setting of a role"),
        (["--role=ps:1,cpus=1,cpus=2"], "`--role`: `cpus` is given twice for role `ps`"),
        (["--role=ps:1,mem=0"], "`--role`: mem=0 is not allowed for a task"),
        (["--role=a-b:1", "--role=A_B:1"], "two roles are named `A_B`"),
        ([f"--role=r{number}:1" for number in range(65)], "there are 65 roles"),
        (["--role=ps:1", "--nodes=2"], "`--nodes` and `--role` exclude each other"),
        (["--role=ps:1", "--gpus=2"], "`--gpus` and `--role` exclude each other"),
    ],
)
def test_a_role_that_makes_no_sense_is_refused(words: list[str], message: str) -> None:
    assert refusal(*words).message.startswith(message)
