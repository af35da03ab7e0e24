"""A real GPU: what NVML says of it, and that a job without it cannot open it.  Skipped on machines without one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gqnode.accel.find import control_devices, guarded_devices
from gqnode.accel.nvml import NvmlAccelerators
from gqnode.isolation.choose import choose_isolation
from gqnode.isolation.protocol import CellLimits
from tests.requires import needs_gpu
from tests.system.cell_processes import ended, run

pytestmark = needs_gpu

OPEN = """
import os, sys
try:
    os.open(sys.argv[1], os.O_RDWR)
except PermissionError:
    sys.exit(13)
"""


@pytest.fixture
def nvml() -> Iterator[NvmlAccelerators]:
    accelerators = NvmlAccelerators()
    yield accelerators
    accelerators.close()


def test_the_gpus_of_the_machine_are_found(nvml: NvmlAccelerators) -> None:
    gpus = nvml.discover()

    assert gpus, nvml.notes
    for gpu in gpus:
        assert gpu.uuid.startswith("GPU-") and gpu.memory_mib > 1000 and gpu.driver and gpu.type.isalnum()
        assert Path(gpu.device).is_char_device() and not gpu.is_fake
    assert {gpu.device for gpu in gpus} <= set(guarded_devices(()))


def test_the_drivers_own_tool_says_the_same(nvml: NvmlAccelerators) -> None:
    if shutil.which("nvidia-smi") is None:
        pytest.skip("needs `nvidia-smi`")
    query = ["nvidia-smi", "--query-gpu=index,uuid,driver_version", "--format=csv,noheader"]
    lines = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines()
    said = {tuple(word.strip() for word in line.split(",")) for line in lines}

    assert {(str(gpu.index), gpu.uuid, gpu.driver) for gpu in nvml.discover()} <= said


def test_a_sample_is_within_what_the_gpu_has(nvml: NvmlAccelerators) -> None:
    gpus = nvml.discover()
    samples = nvml.sample()

    assert [sample.index for sample in samples] == [gpu.index for gpu in gpus]
    for gpu, sample in zip(gpus, samples, strict=True):
        assert sample.does_answer and sample.memory_used_mib is not None
        assert 0 <= sample.memory_used_mib <= gpu.memory_mib
        assert sample.utilisation_percent is None or 0 <= sample.utilisation_percent <= 100


def test_a_job_opens_its_gpu_and_no_job_another_ones(nvml: NvmlAccelerators, tmp_path: Path) -> None:
    device = nvml.discover()[0].device
    guarded, control = guarded_devices(nvml.discover()), control_devices()
    os.close(os.open(device, os.O_RDWR))  # we ourselves may
    chosen = choose_isolation(cluster="test", node="n1", state_dir=str(tmp_path), guarded=guarded, control=control)
    if chosen.levels.devices == "environment":
        pytest.skip(f"no device filter here: {chosen.notes}")
    with ended(chosen) as isolation:
        owner = isolation.make("1.1", CellLimits(cpus=(0,), devices=(device,)))
        other = isolation.make("2.1", CellLimits(cpus=(0,)))

        assert run(owner, sys.executable, "-c", OPEN, device)[0] == 0
        assert run(other, sys.executable, "-c", OPEN, device)[0] == 13
        for path in control:
            assert run(owner, sys.executable, "-c", OPEN, path)[0] == 0, path
            assert run(other, sys.executable, "-c", OPEN, path)[0] == 13, path
