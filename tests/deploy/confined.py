"""`python -m tests.deploy.confined PROFILE COMMAND…`: COMMAND under a container engine's seccomp profile, loaded by the same library."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EQUAL = 4  # SCMP_CMP_EQ
_NO_SUCH_CALL = -1  # __NR_SCMP_ERROR; calls of other architectures have other negative numbers


class _Argument(ctypes.Structure):
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def load(profile: dict[str, Any]) -> None:
    """From here on this process may make only the profile's calls. Raises OSError where the library refuses it."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_ERRNO | profile["defaultErrnoRet"])))
    for rule in profile["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW"
        arguments = [_Argument(found["index"], _EQUAL, found["value"], 0) for found in rule.get("args", [])]
        given = (_Argument * len(arguments))(*arguments)
        for name in rule["names"]:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number == _NO_SUCH_CALL:  # newer than this library: engines leave it out as well
                continue
            failed = library.seccomp_rule_add_array(
                context, ctypes.c_uint32(_ALLOW), number, len(arguments), given
            )
            if failed:
                raise OSError(-failed, f"{name}: {os.strerror(-failed)}")
    if failed := library.seccomp_load(context):
        raise OSError(-failed, os.strerror(-failed))


if __name__ == "__main__":
    load(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - no shell is meant
