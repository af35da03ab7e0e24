"""The seccomp filter of jobs: system calls that no training job needs, and through which kernels were broken.

The list denies and the rest is allowed, so that a new kernel, libc or driver keeps working.  The filter is installed in
the child, after `no_new_privs`, and the kernel passes it on to every process that comes of the job.
"""

from __future__ import annotations

import ctypes
import errno
import os

from gqnode.shepherd.launch_failure import CannotLaunch, LaunchFailure

ARCHITECTURES = {"x86_64": (0xC000003E, 317), "aarch64": (0xC00000B7, 277)}
"""For each machine type: the kernel's AUDIT_ARCH, and the number of seccomp(2)."""
DENIED = {
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "setns": (308, 268),
}
"""System call → its number on each of `ARCHITECTURES`; answered with EPERM."""
CLONE = (56, 220)
UNSHARE = (272, 97)
"""Two system calls that with CLONE_NEWUSER make a user namespace, where a user has every capability: EPERM."""
CLONE3 = (435, 435)
"""A filter cannot read its flags, which lie in memory: ENOSYS, upon which libc uses clone."""

_CLONE_NEWUSER = 0x10000000
_X32_BIT = 0x40000000
_SET_MODE_FILTER, _SPEC_ALLOW = 1, 4
_LOAD, _RETURN, _IS_EQUAL, _IS_AT_LEAST, _HAS_BIT = 0x20, 0x06, 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; both machines are little-endian
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_LIBC = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def why_not() -> str:
    """Why this machine cannot filter the system calls of jobs; empty: it can."""
    machine = os.uname().machine
    if machine not in ARCHITECTURES:
        return f"gq has no seccomp filter for {machine}, only for {' and '.join(ARCHITECTURES)}"
    code = _install(None)  # a kernel with filters looks for the program first, at an address where there is none
    return "" if code == errno.EFAULT else f"this kernel has no seccomp filters ({os.strerror(code)})"


def install() -> None:
    """Filter the system calls of this process and of all that it starts, for good; requires no_new_privs."""
    instructions = program(os.uname().machine)
    array = (ctypes.c_uint64 * len(instructions))(*instructions)
    code = _install(_Program(len(instructions), ctypes.addressof(array)))
    if code:
        raise CannotLaunch(LaunchFailure(f"cannot install the seccomp filter: {os.strerror(code)}", code))


def _install(filter: _Program | None) -> int:
    """The error number of seccomp(2), or 0.  SPEC_ALLOW: older kernels would slow the job down otherwise."""
    number = ARCHITECTURES[os.uname().machine][1]
    address = None if filter is None else ctypes.byref(filter)
    return ctypes.get_errno() if _LIBC.syscall(number, _SET_MODE_FILTER, _SPEC_ALLOW, address) else 0


def program(machine: str) -> list[int]:
    """Classic BPF, each instruction as the 64 bits of a ``struct sock_filter``.

    System calls of another architecture (32-bit programs) have other numbers and are refused altogether.
    """
    column = list(ARCHITECTURES).index(machine)
    refuse, unknown = _instruction(_RETURN, _ERRNO | errno.EPERM), _instruction(_RETURN, _ERRNO | errno.ENOSYS)
    instructions = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_IS_EQUAL, ARCHITECTURES[machine][0], if_true=1),
        refuse,
        _instruction(_LOAD, _NUMBER),
        _instruction(_IS_AT_LEAST, _X32_BIT, if_false=1),
        unknown,
    ]
    for numbers in DENIED.values():
        instructions += [_instruction(_IS_EQUAL, numbers[column], if_false=1), refuse]
    return [
        *instructions,
        _instruction(_IS_EQUAL, CLONE3[column], if_false=1),
        unknown,
        _instruction(_IS_EQUAL, CLONE[column], if_true=1),
        _instruction(_IS_EQUAL, UNSHARE[column], if_false=3),
        _instruction(_LOAD, _FIRST_ARGUMENT),
        _instruction(_HAS_BIT, _CLONE_NEWUSER, if_false=1),
        refuse,
        _instruction(_RETURN, _ALLOW),
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> int:
    """`if_true`, `if_false`: how many instructions a comparison skips."""
    return code | if_true << 16 | if_false << 24 | value << 32
