"""The system calls that the container of agents may make: `python deploy/seccomp.py > deploy/seccomp.json`.

A container engine's own profile refuses the namespaces that bubblewrap makes for each command. This one is a list of what
is allowed, too: every call that Linux has for 64-bit x86 and ARM, less the groups below, each left out for its reason. What
bubblewrap needs, and nothing but that, is in BUBBLEWRAP; tests/deploy applies the file to a real process, with each of these
taken away in turn. What no list names is refused with EPERM.
"""

from __future__ import annotations

import json
import sys
from typing import Any

# Linux 6.1, and what later kernels added that C libraries ask for.
KNOWN = """
_sysctl accept accept4 access acct add_key adjtimex afs_syscall alarm arch_prctl arm_fadvise64_64 bind bpf brk
cachestat capget capset chdir chmod chown chroot clock_adjtime clock_getres clock_gettime clock_nanosleep
clock_settime clone clone3 close close_range connect copy_file_range creat create_module delete_module dup dup2
dup3 epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
eventfd eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fanotify_init
fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr file_getattr
file_setattr finit_module flistxattr flock fork fremovexattr fsconfig fsetxattr fsmount fsopen fspick fstat
fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake futimesat get_kernel_syms
get_mempolicy get_robust_list get_thread_area getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
getitimer getpeername getpgid getpgrp getpid getpmsg getppid getpriority getrandom getresgid getresuid getrlimit
getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr getxattrat init_module
inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents io_pgetevents
io_setup io_submit io_uring_enter io_uring_register io_uring_setup ioctl ioperm iopl ioprio_get ioprio_set kcmp
kexec_file_load kexec_load keyctl kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lchown
lgetxattr link linkat listen listmount listxattr listxattrat llistxattr lookup_dcookie lremovexattr lseek
lsetxattr lsm_get_self_attr lsm_list_modules lsm_set_self_attr lstat madvise map_shadow_stack mbind membarrier
memfd_create memfd_secret migrate_pages mincore mkdir mkdirat mknod mknodat mlock mlock2 mlockall mmap
modify_ldt mount mount_setattr move_mount move_pages mprotect mq_getsetattr mq_notify mq_open mq_timedreceive
mq_timedsend mq_unlink mremap mseal msgctl msgget msgrcv msgsnd msync munlock munlockall munmap
name_to_handle_at nanosleep newfstatat nfsservctl open open_by_handle_at open_tree open_tree_attr openat openat2
pause perf_event_open personality pidfd_getfd pidfd_open pidfd_send_signal pipe pipe2 pivot_root pkey_alloc
pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 process_madvise process_mrelease
process_vm_readv process_vm_writev pselect6 ptrace putpmsg pwrite64 pwritev pwritev2 query_module quotactl
quotactl_fd read readahead readlink readlinkat readv reboot recvfrom recvmmsg recvmsg remap_file_pages
removexattr removexattrat rename renameat renameat2 request_key restart_syscall rmdir rseq rt_sigaction
rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam sched_getscheduler
sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam sched_setscheduler sched_yield seccomp
security select semctl semget semop semtimedop sendfile sendmmsg sendmsg sendto set_mempolicy
set_mempolicy_home_node set_robust_list set_thread_area set_tid_address setdomainname setfsgid setfsuid setgid
setgroups sethostname setitimer setns setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid
setsockopt settimeofday setuid setxattr setxattrat shmat shmctl shmdt shmget shutdown sigaltstack signalfd
signalfd4 socket socketpair splice stat statfs statmount statx swapoff swapon symlink symlinkat sync
sync_file_range sync_file_range2 syncfs sysfs sysinfo syslog tee tgkill time timer_create timer_delete
timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times tkill truncate
tuxcall umask umount2 uname unlink unlinkat unshare uselib userfaultfd ustat utime utimensat utimes vfork
vhangup vmsplice vserver wait4 waitid write writev
"""

BUBBLEWRAP = {
    "unshare": "new user, mount, pid, network, ipc, uts and cgroup namespaces",
    "mount": "the command's own root, in its own mount namespace",
    "umount2": "the machine's root leaves it",
    "pivot_root": "its root becomes the root",
    "sethostname": "of its own uts namespace",
}

LEFT_OUT = {
    "the kernel itself: modules, another kernel, clocks, swap, accounting, quotas, its log": """
        acct adjtimex clock_adjtime clock_settime create_module delete_module finit_module get_kernel_syms init_module
        kexec_file_load kexec_load nfsservctl query_module quotactl quotactl_fd reboot settimeofday swapoff swapon syslog
        uselib vhangup lookup_dcookie""",
    "large and often attacked: programs in the kernel, counters, rings, faults handled outside": """
        bpf fanotify_init fanotify_mark io_uring_enter io_uring_register io_uring_setup perf_event_open userfaultfd""",
    "other processes: their memory, descriptors, namespaces": """
        kcmp pidfd_getfd process_madvise process_mrelease process_vm_readv process_vm_writev ptrace setns""",
    "files by number, past every folder's rights": "name_to_handle_at open_by_handle_at",
    "keys, which no namespace separates": "add_key keyctl request_key",
    "hardware, and where memory lies": """
        get_mempolicy ioperm iopl mbind migrate_pages modify_ldt move_pages set_mempolicy set_mempolicy_home_node""",
    "mounts by other ways than the one that bubblewrap takes, and other roots": """
        chroot fsconfig fsmount fsopen fspick listmount mount_setattr move_mount open_tree open_tree_attr statmount
        setdomainname""",
    "obsolete, or never there": """
        _sysctl afs_syscall epoll_ctl_old epoll_wait_old get_thread_area getpmsg personality putpmsg security
        set_thread_area sysfs tuxcall ustat vserver lsm_set_self_attr""",
}

SOCKETS = {
    "AF_UNIX": 1,
    "AF_INET": 2,
    "AF_INET6": 10,
    "AF_NETLINK": 16,
}  # not vsock, which leads to the host, and others
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)  # Linux's own, and the question which it is


def allowed() -> list[str]:
    """The names without conditions."""
    left_out = {name for names in LEFT_OUT.values() for name in names.split()}
    known = set(KNOWN.split())
    if unknown := (left_out | BUBBLEWRAP.keys()) - known:
        raise ValueError(f"there is no system call {', '.join(sorted(unknown))}")
    return sorted(known - left_out - {"socket"})


def profile() -> dict[str, Any]:
    """The file, as container engines read it."""

    def only(name: str, values: tuple[int, ...]) -> list[dict[str, Any]]:
        return [
            {
                "names": [name],
                "action": "SCMP_ACT_ALLOW",
                "args": [{"index": 0, "value": value, "op": "SCMP_CMP_EQ"}],
            }
            for value in values
        ]

    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": 1,
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"],
        "syscalls": [
            {"names": allowed(), "action": "SCMP_ACT_ALLOW"},
            *only("socket", tuple(SOCKETS.values())),
            *only("personality", PERSONALITIES),
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(profile(), indent=2) + "\n")
