"""Which device nodes a v2 cgroup may open: a BPF_PROG_TYPE_CGROUP_DEVICE program, made by hand through bpf(2).

The program denies the listed devices and allows all others.  A cgroup keeps its program until it is removed; those
of the groups above it (systemd's, a container's) go on deciding too, and one "no" is enough.  See bpf(2) and the
kernel's ``include/uapi/linux/bpf.h``, from which the numbers and layouts below are taken.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import stat
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from gqnode.isolation.protocol import IsolationError

_SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280}
"""Little-endian machines: `_instruction` packs the two registers of an instruction in their order."""
_PROG_LOAD, _PROG_ATTACH, _PROG_DETACH, _PROG_GET_FD_BY_ID, _PROG_QUERY = 5, 8, 9, 13, 16
_TYPE_CGROUP_DEVICE = 15
_ATTACH_CGROUP_DEVICE = 6
_ALLOW_MULTI = 2
_MAX_PROGRAMS = 64
_CHARACTER, _BLOCK = 2, 1
_NVIDIA_MAJOR = 195
_NVIDIA_NODE = re.compile(r"/dev/nvidia(\d+)")


class DeviceNumber(NamedTuple):
    """``kind`` is ``c`` or ``b``."""

    kind: str
    major: int
    minor: int


def device_number(path: str) -> DeviceNumber:
    """The kernel's number of a device node.  Raises `IsolationError`.

    A node of NVIDIA's may not be there yet: the driver makes it when it is first used, under a number that is known.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        if nvidia := _NVIDIA_NODE.fullmatch(path):
            return DeviceNumber("c", _NVIDIA_MAJOR, int(nvidia[1]))
        raise IsolationError(
            f"the device {path} cannot be examined: {error.strerror}", path, error.errno or 0
        ) from error
    if not (stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)):
        raise IsolationError(f"{path} is not a device node", path)
    kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
    return DeviceNumber(kind, os.major(status.st_rdev), os.minor(status.st_rdev))


def filter_program(denied: Iterable[DeviceNumber]) -> bytes:
    """The instructions.  The context in r1 is ``{u32 access << 16 | type, u32 major, u32 minor}``; r0 1 allows."""
    load_word, and_immediate, jump_if_not_equal, move_immediate, exit_ = 0x61, 0x57, 0x55, 0xB7, 0x95
    code = [
        _instruction(load_word, to=2, source=1, offset=0),
        _instruction(and_immediate, to=2, value=0xFFFF),
        _instruction(load_word, to=3, source=1, offset=4),
        _instruction(load_word, to=4, source=1, offset=8),
    ]
    for device in denied:
        code += [
            _instruction(jump_if_not_equal, to=2, offset=4, value=_CHARACTER if device.kind == "c" else _BLOCK),
            _instruction(jump_if_not_equal, to=3, offset=3, value=device.major),
            _instruction(jump_if_not_equal, to=4, offset=2, value=device.minor),
            _instruction(move_immediate, to=0, value=0),
            _instruction(exit_),
        ]
    return b"".join([*code, _instruction(move_immediate, to=0, value=1), _instruction(exit_)])


def attach_filter(directory: str, denied: Iterable[DeviceNumber]) -> None:
    """Make the program of this cgroup deny exactly these.  Raises `IsolationError`."""
    group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        earlier = _attached(group)
        program = _load(filter_program(denied))
        try:
            _bpf(_PROG_ATTACH, struct.pack("=IIII", group, program, _ATTACH_CGROUP_DEVICE, _ALLOW_MULTI))
        finally:
            os.close(program)
        for program_id in earlier:
            _detach(group, program_id)
    except OSError as error:
        number = error.errno or 0
        raise IsolationError(f"no device filter for {directory}: {os.strerror(number)}", directory, number) from error
    finally:
        os.close(group)


def _instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _load(program: bytes) -> int:
    """A file descriptor.  ``bpf_attr`` up to ``expected_attach_type``."""
    code = ctypes.create_string_buffer(program, len(program))
    license_ = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack(
        "=IIQQIIQII16sII",
        _TYPE_CGROUP_DEVICE, len(program) // 8, ctypes.addressof(code), ctypes.addressof(license_),
        0, 0, 0, 0, 0, b"gq_devices", 0, _ATTACH_CGROUP_DEVICE,
    )  # fmt: skip
    return _bpf(_PROG_LOAD, attributes)


def _attached(group: int) -> tuple[int, ...]:
    ids = (ctypes.c_uint32 * _MAX_PROGRAMS)()
    request = struct.pack("=IIIIQI4x", group, _ATTACH_CGROUP_DEVICE, 0, 0, ctypes.addressof(ids), _MAX_PROGRAMS)
    attributes = ctypes.create_string_buffer(request, len(request))
    _bpf_buffer(_PROG_QUERY, attributes)
    (count,) = struct.unpack_from("=I", attributes, 24)
    return tuple(ids[:count])


def _detach(group: int, program_id: int) -> None:
    program = _bpf(_PROG_GET_FD_BY_ID, struct.pack("=III", program_id, 0, 0))
    try:
        _bpf(_PROG_DETACH, struct.pack("=III", group, program, _ATTACH_CGROUP_DEVICE))
    finally:
        os.close(program)


def _bpf(command: int, attributes: bytes) -> int:
    return _bpf_buffer(command, ctypes.create_string_buffer(attributes, len(attributes)))


def _bpf_buffer(command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(38, f"bpf(2) is not known on {platform.machine()}")
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    result = syscall(ctypes.c_long(number), ctypes.c_int(command), attributes, ctypes.c_uint(len(attributes)))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)
