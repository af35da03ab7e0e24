"""The accelerator libraries: one contract for all, NVML with GPUs that are made up, scripts of pretended ones."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gq.config.config import FakeGpuSettings, NodeSettings
from gq.errors import UsageError
from gq.model.node import Gpu
from gqnode.accel.fake import FakeAccelerators
from gqnode.accel.find import ACCELERATORS, control_devices, guarded_devices, open_accelerators
from gqnode.accel.gpu_type import gpu_type
from gqnode.accel.nvml import NvmlAccelerators
from gqnode.accel.protocol import Accelerators, GpuProcess, GpuSample

GIB = 1024**3


class NvmlError(Exception):
    pass


class PretendedNvml(ModuleType):
    """A `pynvml` with two GPUs that are joined by four links; a test changes what it says."""

    NVMLError = NvmlError
    NVML_DEVICE_MIG_ENABLE = 1
    NVML_NVLINK_MAX_LINKS = 18
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0
    nvmlEventTypeXidCriticalError = 8

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.names = ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"]
        self.mig = {0: 0, 1: 0}
        self.lost: set[int] = set()
        self.events: list[tuple[int, int]] = []
        self.initialised = 0
        self.init_error = ""

    def index(self, handle: Any) -> int:
        index = int(handle.value) - 0x1000
        if index in self.lost:
            raise NvmlError("GPU is lost")
        return index

    def nvmlInit(self) -> None:
        if self.init_error:
            raise NvmlError(self.init_error)
        self.initialised += 1

    def nvmlShutdown(self) -> None:
        self.initialised -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.65"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12040

    def nvmlDeviceGetTopologyCommonAncestor(self, one: Any, other: Any) -> int:
        return 40 if {self.index(one), self.index(other)} == {0, 1} else 50

    def nvmlDeviceGetCount(self) -> int:
        return len(self.names)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return ctypes.c_void_p(0x1000 + index)

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return f"GPU-{self.index(handle)}"

    def nvmlDeviceGetName(self, handle: Any) -> bytes:
        return self.names[self.index(handle)].encode()

    def nvmlDeviceGetMemoryInfo(self, handle: Any) -> SimpleNamespace:
        self.index(handle)
        return SimpleNamespace(total=80 * GIB, used=3 * GIB)

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return 1 - self.index(handle)  # the kernel's number need not be NVML's index

    def nvmlDeviceGetPciInfo(self, handle: Any) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{0x3B + self.index(handle):02X}:00.0")

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        if self.index(handle) not in self.mig:
            raise NvmlError("Not Supported")
        return [self.mig[self.index(handle)], 0]

    def nvmlDeviceGetNvLinkState(self, handle: Any, link: int) -> int:
        return 1 if link < 4 else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: Any, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:{0x3C - self.index(handle):02X}:00.0")

    def nvmlDeviceGetP2PStatus(self, one: Any, other: Any, kind: int) -> int:
        return 0

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> SimpleNamespace:
        if self.index(handle) == 1:
            raise NvmlError("Not Supported")
        return SimpleNamespace(gpu=97)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=12, usedGpuMemory=2 * GIB), SimpleNamespace(pid=11, usedGpuMemory=None)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: Any) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=12, usedGpuMemory=2 * GIB)]

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        return

    def nvmlDeviceRegisterEvents(self, handle: Any, kind: int, events: object) -> None:
        self.index(handle)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> SimpleNamespace:
        if not self.events:
            raise NvmlError("Timeout")
        index, xid = self.events.pop(0)
        return SimpleNamespace(device=ctypes.c_void_p(0x1000 + index), eventData=xid)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> PretendedNvml:
    pretended = PretendedNvml()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", pretended)
    return pretended


# ── the contract ──────────────────────────────────────────────────────────────────────────────────────────────


NODES = {
    "nvml": NodeSettings(name="n1"),
    "fake": NodeSettings(name="n1", fake_gpus=(FakeGpuSettings(), FakeGpuSettings(type="h100"))),
}


@pytest.fixture(params=sorted(ACCELERATORS))
def accelerators(request: pytest.FixtureRequest, nvml: PretendedNvml) -> Accelerators:
    return open_accelerators(NODES[request.param])


def test_gpus_have_an_index_an_identity_a_type_and_memory(accelerators: Accelerators) -> None:
    gpus = accelerators.discover()

    assert [gpu.index for gpu in gpus] == [0, 1]
    assert len({gpu.uuid for gpu in gpus}) == 2
    assert all(gpu.uuid.startswith("GPU-") and gpu.type and gpu.memory_mib > 0 for gpu in gpus)


def test_discovering_again_finds_the_same(accelerators: Accelerators) -> None:
    assert accelerators.discover() == accelerators.discover()


def test_every_discovered_gpu_has_a_sample(accelerators: Accelerators) -> None:
    gpus = accelerators.discover()

    assert [sample.index for sample in accelerators.sample()] == [gpu.index for gpu in gpus]


def test_closing_twice_is_fine(accelerators: Accelerators) -> None:
    gpus = accelerators.discover()
    accelerators.close()
    accelerators.close()

    assert accelerators.discover() == gpus, "as before: closing forgets nothing but the connection"


# ── NVML ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nvml_says_what_a_gpu_is(nvml: PretendedNvml, tmp_path: Path) -> None:
    place = tmp_path / "bus/pci/devices/0000:3b:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")

    gpus = NvmlAccelerators(sysfs=str(tmp_path)).discover()

    assert gpus[0] == Gpu(
        index=0, uuid="GPU-0", type="a100", memory_mib=81920, device="/dev/nvidia1", numa=1, driver="580.65",
        nvlink=((1, 4),), pcie=((1, 40),),
    )  # fmt: skip
    assert gpus[1].device == "/dev/nvidia0" and gpus[1].numa is None


def test_nvlinks_through_a_switch_all_lead_to_each_gpu(nvml: PretendedNvml) -> None:
    nvml.nvmlDeviceGetNvLinkRemotePciInfo = lambda handle, link: SimpleNamespace(busId="00000000:C0:00.0")  # type: ignore[method-assign]

    assert NvmlAccelerators().discover()[0].nvlink == ((1, 4),)


def test_a_driver_that_does_not_tell_how_near_gpus_are_leaves_it_empty(nvml: PretendedNvml) -> None:
    def refuses(one: Any, other: Any) -> int:
        raise NvmlError("Not Supported")

    nvml.nvmlDeviceGetTopologyCommonAncestor = refuses  # type: ignore[method-assign]

    assert [gpu.pcie for gpu in NvmlAccelerators().discover()] == [(), ()]


def test_the_versions_of_driver_and_cuda_are_attributes_of_a_node_with_gpus(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators()
    assert accelerators.attributes == {}, "nothing is known before it was looked"

    accelerators.discover()
    assert accelerators.attributes == {"driver": "580.65", "cuda": "12.4"}

    without = NvmlAccelerators(wanted=())
    without.discover()
    assert without.attributes == {}


def test_nvml_says_what_a_gpu_does(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators()
    accelerators.discover()

    first, second = accelerators.sample()

    processes = (GpuProcess(11, None), GpuProcess(12, 2048))
    assert first == GpuSample(index=0, utilisation_percent=97, memory_used_mib=3072, processes=processes)
    assert second.utilisation_percent is None and second.memory_used_mib == 3072


def test_a_machine_without_a_driver_has_no_gpus_and_says_why(nvml: PretendedNvml) -> None:
    nvml.init_error = "Driver Not Loaded"
    accelerators = NvmlAccelerators()

    assert accelerators.discover() == () and accelerators.sample() == ()
    assert accelerators.notes == ("no NVIDIA GPUs: Driver Not Loaded",)


def test_a_machine_without_the_python_module_has_no_gpus_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    accelerators = NvmlAccelerators()

    assert accelerators.discover() == ()
    assert "cannot be loaded" in accelerators.notes[0]


def test_a_gpu_in_mig_mode_is_left_out_with_a_note(nvml: PretendedNvml) -> None:
    nvml.mig = {0: 1}  # the other GPU does not know MIG at all
    accelerators = NvmlAccelerators()

    assert [gpu.index for gpu in accelerators.discover()] == [1]
    assert accelerators.notes == ("GPU 0 is left out: it is in MIG mode",)


def test_a_gpu_that_does_not_answer_is_left_out_with_a_note(nvml: PretendedNvml) -> None:
    nvml.lost = {0}
    accelerators = NvmlAccelerators()

    assert [gpu.index for gpu in accelerators.discover()] == [1]
    assert accelerators.notes == ("GPU 0 is left out: GPU is lost",)


def test_a_gpu_that_is_lost_later_says_so_and_why(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators()
    accelerators.discover()
    nvml.lost = {1}
    nvml.events = [(1, 79), (0, 31), (1, 48)]

    first, second = accelerators.sample()

    assert first.does_answer and first.xids == (31,)
    assert second == GpuSample(index=1, does_answer=False, xids=(79, 48))
    assert accelerators.sample()[1].xids == ()


def test_a_gpu_that_reports_xids_without_end_does_not_stop_the_sampling(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators()
    accelerators.discover()
    nvml.events = [(0, 13)] * 1000

    assert 0 < len(accelerators.sample()[0].xids) < 1000


def test_only_the_configured_gpus_are_this_nodes(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators(wanted=(1, 5))

    assert [gpu.index for gpu in accelerators.discover()] == [1]
    assert accelerators.notes == ("GPU 5 is configured, but does not exist",)


def test_a_node_that_wants_no_gpus_does_not_load_the_library(nvml: PretendedNvml) -> None:
    assert NvmlAccelerators(wanted=()).discover() == ()
    assert nvml.initialised == 0


def test_what_was_opened_is_closed(nvml: PretendedNvml) -> None:
    accelerators = NvmlAccelerators()
    accelerators.discover()
    accelerators.discover()
    assert nvml.initialised == 1

    accelerators.close()
    assert nvml.initialised == 0 and accelerators.sample() == ()


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("A100-PCIE-40GB", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 NVL", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", "rtx4090"),
        ("NVIDIA GeForce RTX 3080 Ti", "rtx3080ti"),
        ("NVIDIA GeForce RTX 4070 SUPER", "rtx4070super"),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "rtx4060"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA TITAN RTX", "titanrtx"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("GRID A100X-40C", "a100x"),
        ("NVIDIA", "gpu"),
        ("", "gpu"),
    ],
)
def test_a_type_is_the_model_alone(product: str, expected: str) -> None:
    assert gpu_type(product) == expected


# ── pretended ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pretended_gpu_is_what_the_configuration_says() -> None:
    settings = FakeGpuSettings(
        type="h100", memory_mib=81920, uuid="GPU-x", device="/dev/zero", numa=1, nvlink=((1, 18),), pcie=((1, 10),)
    )

    assert FakeAccelerators("n1", [settings]).discover() == (
        Gpu(
            index=0, uuid="GPU-x", type="h100", memory_mib=81920, device="/dev/zero", numa=1, is_fake=True,
            nvlink=((1, 18),),
            pcie=((1, 10),),
        ),
    )  # fmt: skip


def test_pretended_gpus_keep_their_identity_and_differ_between_nodes() -> None:
    first, again, other = (FakeAccelerators(node, [FakeGpuSettings()]).discover()[0] for node in ("n1", "n1", "n2"))

    assert first.uuid == again.uuid != other.uuid


def write_script(path: Path, *points: dict[str, object]) -> str:
    path.write_text("".join(f"{json.dumps(point)}\n" for point in points))
    return str(path)


def scripted(path: str, clock: Callable[[], float]) -> FakeAccelerators:
    return FakeAccelerators("n1", [FakeGpuSettings(script=path)], clock)


def test_a_script_says_what_a_pretended_gpu_does_over_time(tmp_path: Path) -> None:
    clock = [100.0]
    script = write_script(
        tmp_path / "busy",
        {"at_s": 1, "utilisation_percent": 97, "memory_used_mib": 4000, "processes": [{"pid": 7, "memory_mib": 4000}]},
        {"at_s": 5, "xids": [79]},
    )
    gpu = scripted(script, lambda: clock[0])

    assert gpu.sample() == (GpuSample(index=0, utilisation_percent=0, memory_used_mib=0),)
    clock[0] = 103.0
    busy = GpuSample(index=0, utilisation_percent=97, memory_used_mib=4000, processes=(GpuProcess(7, 4000),))
    assert gpu.sample() == (busy,)
    clock[0] = 110.0
    assert gpu.sample() == (GpuSample(index=0, utilisation_percent=0, memory_used_mib=0, xids=(79,)),)
    assert gpu.sample()[0].xids == ()


def test_an_xid_at_the_very_start_is_reported_once(tmp_path: Path) -> None:
    gpu = scripted(write_script(tmp_path / "xid", {"at_s": 0, "xids": [48]}), lambda: 5.0)

    assert [gpu.sample()[0].xids for _ in range(2)] == [(48,), ()]


@pytest.mark.parametrize(
    "points",
    [({"at_s": 0, "utilization": 3},), ({"utilisation_percent": 3},), ({"at_s": 2}, {"at_s": 1})],
    ids=["unknown key", "no instant", "out of order"],
)
def test_a_script_that_is_wrong_is_refused(tmp_path: Path, points: tuple[dict[str, object], ...]) -> None:
    with pytest.raises(UsageError, match="wrong"):
        scripted(write_script(tmp_path / "wrong", *points), lambda: 0.0)


def test_a_script_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        scripted(str(tmp_path / "nowhere"), lambda: 0.0)


# ── choosing ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_pretended_gpus_stand_in_for_real_ones() -> None:
    assert isinstance(open_accelerators(NODES["fake"]), FakeAccelerators)
    assert isinstance(open_accelerators(NODES["nvml"]), NvmlAccelerators)


def test_the_gpus_of_other_nodes_of_the_machine_are_guarded_too(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    own = Gpu(index=0, uuid="GPU-0", type="a100", memory_mib=1, device=f"{tmp_path}/nvidia0")
    pretended = Gpu(index=1, uuid="GPU-1", type="fake", memory_mib=1)

    assert guarded_devices([own, pretended], dev=str(tmp_path)) == (f"{tmp_path}/nvidia0", f"{tmp_path}/nvidia3")


def test_parts_of_gpus_are_guarded_and_what_comes_with_any_gpu_is_told_apart(tmp_path: Path) -> None:
    for name in (
        "nvidia0",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia-modeset",
        "nvidia-nvswitch0",
        "null",
    ):
        (tmp_path / name).touch()
    (tmp_path / "nvidia-caps").mkdir()
    for name in ("nvidia-cap1", "nvidia-cap21"):
        (tmp_path / "nvidia-caps" / name).touch()

    assert [path.removeprefix(f"{tmp_path}/") for path in guarded_devices([], dev=str(tmp_path))] == [
        "nvidia0", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap21"
    ]  # fmt: skip
    assert [path.removeprefix(f"{tmp_path}/") for path in control_devices(str(tmp_path))] == [
        "nvidia-modeset", "nvidia-nvswitch0", "nvidia-uvm", "nvidia-uvm-tools", "nvidiactl"
    ]  # fmt: skip
