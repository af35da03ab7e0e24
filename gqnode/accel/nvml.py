"""NVIDIA GPUs, through NVIDIA's management library.

The library is loaded at `discover`, so that a machine without it costs nothing.  What one GPU or one driver does not
tell is left empty; a GPU that does not answer is left out, with a note.  GPUs in MIG mode are left out: they cannot be
used whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from gq.model.node import Gpu
from gqnode.accel.gpu_type import gpu_type
from gqnode.accel.protocol import GpuProcess, GpuSample

T = TypeVar("T")
_MIB = 1024**2
_MAX_XIDS = 256
"""Per sample: a broken GPU can report without end."""


@dataclass(frozen=True, slots=True)
class _Device:
    index: int
    handle: Any
    """NVML's opaque pointer."""
    uuid: str
    bus_id: str
    """PCI address, as sysfs writes it."""


class NvmlAccelerators:
    """``wanted``: indices of the GPUs that are this node's; None: all."""

    def __init__(self, wanted: tuple[int, ...] | None = None, sysfs: str = "/sys") -> None:
        self._wanted = wanted
        self._sysfs = sysfs
        self._notes: list[str] = []
        self._nvml: ModuleType | None = None
        self._refusal: type[Exception] = Exception
        """NVML's base of all errors, known once it is loaded."""
        self._devices: tuple[_Device, ...] = ()
        self._xid_events: Any = None

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._notes)

    @property
    def attributes(self) -> dict[str, str]:
        nvml = self._nvml
        if nvml is None or not self._devices:
            return {}
        driver = _text(self._ask(nvml.nvmlSystemGetDriverVersion) or "")
        cuda = self._ask(nvml.nvmlSystemGetCudaDriverVersion)
        version = "" if cuda is None else f"{int(cuda) // 1000}.{int(cuda) % 1000 // 10}"
        return {name: value for name, value in (("driver", driver), ("cuda", version)) if value}

    def discover(self) -> tuple[Gpu, ...]:
        self.close()
        self._notes.clear()
        if self._wanted == ():
            return ()
        nvml = self._load()
        if nvml is None:
            return ()
        opened = (self._open(nvml, index) for index in self._indices(nvml))
        self._devices = tuple(device for device in opened if device is not None)
        gpus = tuple(self._gpu(nvml, device) for device in self._devices)
        if not gpus and not self._notes:
            self._notes.append("the NVIDIA driver is installed, but it reports no GPU")
        self._watch_xids(nvml)
        return gpus

    def sample(self) -> tuple[GpuSample, ...]:
        nvml = self._nvml
        if nvml is None:
            return ()
        xids = self._new_xids(nvml)
        return tuple(self._sample(nvml, device, tuple(xids.get(device.index, ()))) for device in self._devices)

    def close(self) -> None:
        nvml, self._nvml = self._nvml, None
        self._devices = ()
        if nvml is None:
            return
        if self._xid_events is not None:
            self._ask(nvml.nvmlEventSetFree, self._xid_events)
            self._xid_events = None
        self._ask(nvml.nvmlShutdown)

    # ── finding ───────────────────────────────────────────────────────────────────────────────────────────────

    def _load(self) -> ModuleType | None:
        try:
            import pynvml
        except ImportError as error:
            self._notes.append(f"no NVIDIA GPUs: the Python module of NVML cannot be loaded: {error}")
            return None
        nvml: ModuleType = pynvml
        self._refusal = nvml.NVMLError
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            self._notes.append(f"no NVIDIA GPUs: {error}")
            return None
        self._nvml = nvml
        return nvml

    def _indices(self, nvml: ModuleType) -> list[int]:
        count = self._ask(nvml.nvmlDeviceGetCount) or 0
        if self._wanted is None:
            return list(range(count))
        self._notes += [f"GPU {index} is configured, but does not exist" for index in self._wanted if index >= count]
        return sorted(index for index in self._wanted if index < count)

    def _open(self, nvml: ModuleType, index: int) -> _Device | None:
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        except nvml.NVMLError as error:
            self._notes.append(f"GPU {index} is left out: {error}")
            return None
        mig = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        if mig is not None and mig[0] == nvml.NVML_DEVICE_MIG_ENABLE:
            self._notes.append(f"GPU {index} is left out: it is in MIG mode")
            return None
        return _Device(index, handle, uuid, self._bus_id(nvml.nvmlDeviceGetPciInfo, handle))

    def _gpu(self, nvml: ModuleType, device: _Device) -> Gpu:
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, device.handle)
        minor = self._ask(nvml.nvmlDeviceGetMinorNumber, device.handle)
        return Gpu(
            index=device.index,
            uuid=device.uuid,
            type=gpu_type(_text(self._ask(nvml.nvmlDeviceGetName, device.handle) or "")),
            memory_mib=int(memory.total) // _MIB if memory else 0,
            device="" if minor is None else f"/dev/nvidia{minor}",
            numa=self._numa_node(device.bus_id),
            driver=_text(self._ask(nvml.nvmlSystemGetDriverVersion) or ""),
            nvlink=self._nvlink(nvml, device),
            pcie=self._pcie(nvml, device),
        )

    def _numa_node(self, bus_id: str) -> int | None:
        """From the kernel: what every driver release has, unlike NVML's own call."""
        try:
            node = int(Path(self._sysfs, "bus/pci/devices", bus_id, "numa_node").read_text())
        except (OSError, ValueError):
            return None
        return node if node >= 0 else None

    def _nvlink(self, nvml: ModuleType, device: _Device) -> tuple[tuple[int, int], ...]:
        far_ends = [
            self._bus_id(nvml.nvmlDeviceGetNvLinkRemotePciInfo, device.handle, link)
            for link in range(nvml.NVML_NVLINK_MAX_LINKS)
            if self._ask(nvml.nvmlDeviceGetNvLinkState, device.handle, link) == 1
        ]
        if not far_ends:
            return ()
        peers = (peer for peer in self._devices if peer is not device and self._are_joined(nvml, device, peer))
        # A far end that is no GPU is a switch, and all links lead to every GPU behind it.
        return tuple((peer.index, far_ends.count(peer.bus_id) or len(far_ends)) for peer in peers)

    def _pcie(self, nvml: ModuleType, device: _Device) -> tuple[tuple[int, int], ...]:
        """How near the others are: the level of what both hang on, from one board to opposite CPUs."""
        peers = [peer for peer in self._devices if peer is not device]
        levels = [self._ask(nvml.nvmlDeviceGetTopologyCommonAncestor, device.handle, peer.handle) for peer in peers]
        return tuple((peer.index, int(level)) for peer, level in zip(peers, levels, strict=True) if level is not None)

    def _are_joined(self, nvml: ModuleType, device: _Device, peer: _Device) -> bool:
        kind = nvml.NVML_P2P_CAPS_INDEX_NVLINK
        status: int | None = self._ask(nvml.nvmlDeviceGetP2PStatus, device.handle, peer.handle, kind)
        return status is not None and status == int(nvml.NVML_P2P_STATUS_OK)

    def _bus_id(self, call: Callable[..., Any], *arguments: object) -> str:
        """NVML gives the PCI domain eight digits, the kernel four."""
        info = self._ask(call, *arguments)
        return _text(info.busId).lower()[-12:] if info is not None else ""

    # ── sampling ──────────────────────────────────────────────────────────────────────────────────────────────

    def _sample(self, nvml: ModuleType, device: _Device, xids: tuple[int, ...]) -> GpuSample:
        memory = self._ask(nvml.nvmlDeviceGetMemoryInfo, device.handle)
        if memory is None:
            return GpuSample(index=device.index, does_answer=False, xids=xids)
        rates = self._ask(nvml.nvmlDeviceGetUtilizationRates, device.handle)
        return GpuSample(
            index=device.index,
            utilisation_percent=None if rates is None else int(rates.gpu),
            memory_used_mib=int(memory.used) // _MIB,
            processes=self._processes(nvml, device),
            xids=xids,
        )

    def _processes(self, nvml: ModuleType, device: _Device) -> tuple[GpuProcess, ...]:
        """Return the processes on the GPU; one that computes and draws is in both of NVML's lists."""
        found: dict[int, GpuProcess] = {}
        for call in (nvml.nvmlDeviceGetComputeRunningProcesses, nvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in self._ask(call, device.handle) or ():
                used = process.usedGpuMemory
                found[process.pid] = GpuProcess(int(process.pid), None if used is None else int(used) // _MIB)
        return tuple(found[pid] for pid in sorted(found))

    def _watch_xids(self, nvml: ModuleType) -> None:
        self._xid_events = self._ask(nvml.nvmlEventSetCreate)
        if self._xid_events is None:
            return
        kind = nvml.nvmlEventTypeXidCriticalError
        for device in self._devices:
            try:
                nvml.nvmlDeviceRegisterEvents(device.handle, kind, self._xid_events)
            except nvml.NVMLError as error:
                self._notes.append(f"GPU {device.index}: Xid errors cannot be monitored: {error}")

    def _new_xids(self, nvml: ModuleType) -> dict[int, list[int]]:
        """Return new Xid errors by GPU index, found by the device pointer: a broken GPU may give no name."""
        xids: dict[int, list[int]] = {}
        if self._xid_events is None:
            return xids
        index_of = {_address(device.handle): device.index for device in self._devices}
        for _ in range(_MAX_XIDS):
            event = self._ask(nvml.nvmlEventSetWait_v2, self._xid_events, 0)
            if event is None:  # no more: the wait of 0 ms ended in a timeout
                break
            if (index := index_of.get(_address(event.device))) is not None:
                xids.setdefault(index, []).append(int(event.eventData))
        return xids

    def _ask(self, call: Callable[..., T], *arguments: object) -> T | None:
        """None where this driver or this GPU does not tell."""
        try:
            return call(*arguments)
        except self._refusal:
            return None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _text(value: str | bytes) -> str:
    """Releases before 12 gave bytes."""
    return value.decode() if isinstance(value, bytes) else value
