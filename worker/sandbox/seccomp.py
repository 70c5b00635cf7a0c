"""The system calls a sandboxed command may not make, as a classic BPF program built by hand.

There is no well kept Python library for this that comes without a system library, and the program is short: a list of
denied calls, some only for certain arguments. Everything else is allowed: the namespaces or Landlock hold the rest.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct
from dataclasses import dataclass
from enum import Enum, auto

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_X32 = 0x40000000
_NEW_NAMESPACES = 0x7E020000  # CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET


class Test(Enum):
    """When a rule denies its call."""

    ALWAYS = auto()
    HAS_BIT = auto()
    """the argument has one of the bits"""
    IS = auto()
    """the argument is one of the values"""
    IS_NOT = auto()
    """the argument is none of the values"""


@dataclass(frozen=True, slots=True)
class Rule:
    """Deny a system call with an error number; 0 makes it do nothing and report success."""

    call: str
    error: int = errno.EPERM
    test: Test = Test.ALWAYS
    argument: int = 0
    values: tuple[int, ...] = ()


# Numbers on (x86_64, aarch64); None where the architecture has no such call.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    "acct": (163, 89), "add_key": (248, 217), "adjtimex": (159, 171), "bpf": (321, 280), "chmod": (90, None),
    "chown": (92, None), "chroot": (161, 51), "clock_adjtime": (305, 266), "clock_settime": (227, 112),
    "clone": (56, 220), "clone3": (435, 435), "delete_module": (176, 106), "fanotify_init": (300, 262),
    "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "fchown": (93, 55), "fchownat": (260, 54),
    "file_setattr": (469, 469), "finit_module": (313, 273), "fremovexattr": (199, 16), "fsconfig": (431, 431),
    "fsetxattr": (190, 7), "fsmount": (432, 432), "fsopen": (430, 430), "fspick": (433, 433),
    "futimesat": (261, None), "init_module": (175, 105), "inotify_add_watch": (254, 27), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "io_uring_setup": (425, 425), "ioctl": (16, 29), "ioperm": (173, None),
    "iopl": (172, None), "ioprio_set": (251, 30), "kcmp": (312, 272), "kexec_file_load": (320, 294),
    "kexec_load": (246, 104), "keyctl": (250, 219), "kill": (62, 129), "lchown": (94, None),
    "lremovexattr": (198, 15), "lsetxattr": (189, 6), "migrate_pages": (256, 238), "modify_ldt": (154, None),
    "mount": (165, 40), "mount_setattr": (442, 442), "move_mount": (429, 429), "move_pages": (279, 239),
    "mq_open": (240, 180), "mq_unlink": (241, 181), "msgctl": (71, 187), "msgget": (68, 186), "msgrcv": (70, 188),
    "msgsnd": (69, 189), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "open_tree_attr": (467, 467), "perf_event_open": (298, 241), "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424), "pivot_root": (155, 41), "prlimit64": (302, 261), "process_madvise": (440, 440),
    "process_mrelease": (448, 448), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "ptrace": (101, 117), "quotactl": (179, 60), "quotactl_fd": (443, 443), "reboot": (169, 142),
    "removexattr": (197, 14), "removexattrat": (466, 466), "request_key": (249, 218), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "sched_setaffinity": (203, 122), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "semctl": (66, 191), "semget": (64, 190),
    "semop": (65, 193), "semtimedop": (220, 192), "setns": (308, 268), "setpriority": (141, 140),
    "settimeofday": (164, 170), "setxattr": (188, 5), "setxattrat": (463, 463), "shmat": (30, 196),
    "shmctl": (31, 195), "shmget": (29, 194), "socket": (41, 198), "swapoff": (168, 225), "swapon": (167, 224),
    "syslog": (103, 116), "tgkill": (234, 131), "tkill": (200, 130), "umount2": (166, 39), "unshare": (272, 97),
    "userfaultfd": (323, 282), "utime": (132, None), "utimensat": (280, 88), "utimes": (235, None),
    "vhangup": (153, 58),
}  # fmt: skip
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR = 0x40086602, 0x401C5820

_KERNEL = [
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "ioperm",
    "iopl",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "modify_ldt",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "syslog",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
]

_COMMON = (
    *(Rule(call) for call in _KERNEL),
    Rule("clone", test=Test.HAS_BIT, values=(_NEW_NAMESPACES,)),
    Rule(
        "clone3", error=errno.ENOSYS
    ),  # its flags lie in memory, out of reach; the C library falls back to clone
)

BWRAP = (
    *_COMMON,
    Rule("ioctl", test=Test.IS, argument=1, values=(_TIOCSTI, _TIOCLINUX)),
    # The network namespace holds these four families; vsock and others would pass it by.
    Rule(
        "socket",
        error=errno.EAFNOSUPPORT,
        test=Test.IS_NOT,
        values=(
            socket.AF_UNIX,
            socket.AF_INET,
            socket.AF_INET6,
            16,
        ),  # 16: netlink, asked for local addresses
    ),
)
"""Beside namespaces: what no namespace confines."""

_METADATA = [
    "chmod",
    "chown",
    "fchmod",
    "fchmodat",
    "fchmodat2",
    "fchown",
    "fchownat",
    "futimesat",
    "lchown",
    "utime",
    "utimensat",
    "utimes",
]
_ATTRIBUTES = [
    "fremovexattr",
    "fsetxattr",
    "lremovexattr",
    "lsetxattr",
    "removexattr",
    "removexattrat",
    "setxattr",
    "setxattrat",
]
_SHARED = [
    "mq_open",
    "mq_unlink",
    "msgctl",
    "msgget",
    "msgrcv",
    "msgsnd",
    "semctl",
    "semget",
    "semop",
    "semtimedop",
    "shmat",
    "shmctl",
    "shmget",
]
_OTHER_PROCESSES = [
    "ioprio_set",
    "migrate_pages",
    "move_pages",
    "process_madvise",
    "process_mrelease",
    "setpriority",
]
_BY_PID = ["prlimit64", "sched_setaffinity", "sched_setattr", "sched_setparam", "sched_setscheduler"]

LANDLOCK = (
    *_COMMON,
    Rule(
        "ioctl",
        test=Test.IS,
        argument=1,
        values=(_TIOCSTI, _TIOCLINUX, _FS_IOC_SETFLAGS, _FS_IOC_FSSETXATTR),
    ),
    Rule("socket", error=errno.EACCES),  # Landlock lets UDP, MPTCP and named Unix sockets through
    # Landlock does not look at these, and they could lock the worker out of its own database. Failing them breaks tar,
    # git, cp -p and sed -i, which do not care for the effect: so they do nothing and say so in docs/tools.md.
    *(Rule(call, error=0) for call in _METADATA),
    Rule("file_setattr", error=errno.EOPNOTSUPP),
    *(Rule(call, error=errno.EOPNOTSUPP) for call in _ATTRIBUTES),
    # The user's other processes, the worker among them, are in reach without a pid or ipc namespace.
    Rule("inotify_add_watch"),
    *(Rule(call) for call in (*_SHARED, *_OTHER_PROCESSES)),
    *(Rule(call, test=Test.IS_NOT, values=(0,)) for call in _BY_PID),
)
"""Beside Landlock: what namespaces would have confined."""

SIGNALS = tuple(
    Rule(call)
    for call in ["kill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "tgkill", "tkill"]
)
"""For kernels whose Landlock cannot yet scope signals: a command then sends none at all."""


def supported() -> bool:
    """True if there is a table for this machine's architecture."""
    return platform.machine() in _ARCHITECTURES


def program(rules: tuple[Rule, ...]) -> bytes:
    """The filter as an array of `struct sock_filter`; a call of a foreign architecture is answered ENOSYS."""
    column, architecture = _ARCHITECTURES[platform.machine()]
    code = [
        _op(_LOAD, _ARCHITECTURE),
        _op(_JUMP_EQUAL, architecture, 1, 0),
        _op(_RETURN, _ERRNO | errno.ENOSYS),
        _op(_LOAD, _NUMBER),
    ]
    if column == 0:
        code += [_op(_JUMP_GREATER_EQUAL, _X32, 0, 1), _op(_RETURN, _ERRNO | errno.ENOSYS)]
    for rule in rules:
        number = _NUMBERS[rule.call][column]
        if number is not None:
            block = _denial(rule)
            code += [_op(_JUMP_EQUAL, number, 0, len(block)), *block]
    return b"".join([*code, _op(_RETURN, _ALLOW)])


def _denial(rule: Rule) -> list[bytes]:
    """What happens once the number fits; it always returns, so the number need not be loaded again."""
    deny, allow = _op(_RETURN, _ERRNO | rule.error), _op(_RETURN, _ALLOW)
    if rule.test is Test.ALWAYS:
        return [deny]
    # The lower half of the argument: what the tested calls take are ints.
    load = _op(_LOAD, _ARGUMENTS + 8 * rule.argument)
    jump = _JUMP_ANY_BIT if rule.test is Test.HAS_BIT else _JUMP_EQUAL
    tests = [_op(jump, value, len(rule.values) - at, 0) for at, value in enumerate(rule.values)]
    otherwise, fits = (deny, allow) if rule.test is Test.IS_NOT else (allow, deny)
    return [load, *tests, otherwise, fits]


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
