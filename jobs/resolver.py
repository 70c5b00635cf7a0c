"""Opening files of a workspace so that nothing in it can lead outside: the one way for tools and for routes.

A workspace belongs to an agent that may be hostile: it may plant symbolic links, FIFOs and hard links, and swap a folder
for a link between two of our system calls. So a path is never checked first and opened later. The kernel resolves it
*beneath* an open folder (`openat2` with RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS), and what was opened is then looked at
through its descriptor. Where openat2 is missing (an old kernel, another system) each component is opened with
O_NOFOLLOW from its parent's descriptor, which also refuses links that stay inside.

Refused, without blocking: absolute paths, `..`, NUL, links and `..` that lead outside, dangling links, FIFOs, sockets,
devices, and regular files with more than one hard link: the other name may lie outside, and nothing can tell cheaply.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from jobs.errors import FileInTheWay, FileRejected, NotFound

_SYS_OPENAT2 = 437  # the same on every architecture
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_BENEATH = 0x08
_NO_OPENAT2 = {errno.ENOSYS, errno.EPERM, errno.EINVAL, errno.E2BIG}  # EPERM: older container filters
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_PARTS = 64
TEMPORARY_PREFIX = ".sostenuto-"


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_syscall = ctypes.CDLL(None, use_errno=True).syscall if sys.platform == "linux" else None


def split_path(path: str) -> list[str]:
    """The components of a relative path, `.` and empty ones dropped; [] for the workspace itself.

    Raises FileRejected for an absolute path, `..`, NUL, a name over 255 bytes, undecodable or absurdly deep ones.
    """
    shown = shorten(path)
    if "\0" in path:
        raise FileRejected(f"{shown}: a path cannot contain NUL")
    if path.startswith("/"):
        raise FileRejected(f"{shown} is absolute", hint="give a path relative to the workspace")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if ".." in parts:
        raise FileRejected(f"{shown} contains '..'", hint="give a path inside the workspace")
    if len(parts) > _MOST_PARTS:
        raise FileRejected(f"{shown} has more than {_MOST_PARTS} components")
    for part in parts:
        try:
            size = len(part.encode())
        except UnicodeEncodeError:
            raise FileRejected(f"{shown} is not valid text") from None
        if size > 255:
            raise FileRejected(f"{shown}: a name may have 255 bytes, this one has {size}")
    return parts


def shorten(path: str) -> str:
    """A path for a message: quoted, escaped, at most 120 characters."""
    return repr(path if len(path) <= 120 else path[:117] + "...")


def open_workspace(root: Path) -> int:
    """A descriptor of the workspace folder itself, which must be a real folder. The caller closes it."""
    try:
        return os.open(root, _FOLDER | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise NotFound(f"the workspace {root.name} is gone") from None
    except OSError as error:
        raise FileRejected(
            f"the workspace {root.name} cannot be opened: {os.strerror(error.errno or 0)}"
        ) from None


def open_beneath(root_fd: int, path: str, flags: int, mode: int = 0o666) -> int:
    """Open `path` below the folder `root_fd`, whatever links lie on the way; the result never lies outside.

    Raises FileRejected or NotFound. It does not look at what kind of thing was opened (see `open_regular`).
    """
    relative = "/".join(split_path(path)) or "."
    flags |= os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        fd = _openat2(root_fd, relative, flags, mode)
        return fd if fd is not None else _open_by_parts(root_fd, relative, flags, mode)
    except OSError as error:
        raise _refusal(path, error) from None


def _openat2(root_fd: int, relative: str, flags: int, mode: int) -> int | None:
    """None where the kernel has no openat2."""
    if _syscall is None:
        return None
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS)
    name = ctypes.c_char_p(os.fsencode(relative))
    for _ in range(32):
        fd = int(_syscall(_SYS_OPENAT2, root_fd, name, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        # EAGAIN: a rename somewhere raced with the resolution of '..'; the kernel asks to try again.
        if code in {errno.EAGAIN, errno.EINTR}:
            continue
        if code in _NO_OPENAT2:
            return None
        raise OSError(code, os.strerror(code))
    raise OSError(errno.EAGAIN, "the path keeps changing")


def _open_by_parts(root_fd: int, relative: str, flags: int, mode: int) -> int:
    *folders, name = relative.split("/")
    current = os.dup(root_fd)
    try:
        for folder in folders:
            following = os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = following
        return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=current)
    finally:
        os.close(current)


def _refusal(path: str, error: OSError) -> FileRejected | NotFound:
    shown = shorten(path)
    match error.errno:
        case errno.ENOENT:
            return NotFound(f"{shown} does not exist")
        case errno.EXDEV | errno.ELOOP:
            return FileRejected(
                f"{shown} passes through a symbolic link that is not allowed",
                hint="links may not leave the workspace; name the real file",
            )
        case errno.ENOTDIR:
            return FileInTheWay(f"{shown}: a part of the path is not a folder")
        case errno.EISDIR:
            return FileInTheWay(f"{shown} is a folder")
        case errno.ENXIO:
            return FileRejected(f"{shown} is not a regular file")
        case _:
            return FileRejected(f"{shown}: {os.strerror(error.errno or 0)}")


def open_regular(root_fd: int, path: str, *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading. Raises FileRejected for anything else, without blocking on a FIFO.

    Not `follow`: also for a link to one.
    """
    fd = open_beneath(root_fd, path, os.O_RDONLY | (0 if follow else os.O_NOFOLLOW))
    try:
        require_regular(os.fstat(fd), path)
    except BaseException:
        os.close(fd)
        raise
    return os.fdopen(fd, "rb")


def require_regular(status: os.stat_result, path: str) -> None:
    """Raise FileRejected unless `status` is that of a regular file with a single name."""
    shown = shorten(path)
    if stat.S_ISDIR(status.st_mode):
        raise FileInTheWay(f"{shown} is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise FileRejected(f"{shown} is not a regular file")
    if status.st_nlink > 1:
        raise FileRejected(
            f"{shown} has {status.st_nlink} hard links, so it may be a file outside the workspace",
            hint="make a copy and use that",
        )


def open_folder(root_fd: int, path: str, *, create: bool = False) -> int:
    """Open a folder; with `create`, make it and its missing parents first (0777 less the umask)."""
    if not create:
        return open_beneath(root_fd, path, _FOLDER)
    current = os.dup(root_fd)
    try:
        for part in split_path(path):
            with contextlib.suppress(FileExistsError):
                os.mkdir(part, dir_fd=current)
            # Each folder is opened beneath its parent: a link planted in its place leads nowhere else.
            following = open_beneath(current, part, _FOLDER | os.O_NOFOLLOW)
            os.close(current)
            current = following
    except OSError as error:
        os.close(current)
        raise _refusal(path, error) from None
    except BaseException:
        os.close(current)
        raise
    return current


@contextlib.contextmanager
def replacing(root_fd: int, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
    """Write a new version of a file beside it and put it in place atomically when the block ends without an exception.

    Missing parent folders are made. The new file keeps the permission bits of the one it replaces. `durable`: it is
    fsynced before the rename and its folder after it; without, a power cut may take it. Raises FileRejected when the name is taken by something other than a plain
    file: a folder, a link, a FIFO, a file with other names.
    """
    parts = split_path(path)
    if not parts:
        raise FileRejected("the workspace itself is not a file")
    *folders, name = parts
    if name.startswith(TEMPORARY_PREFIX):
        raise FileRejected(f"{shorten(path)}: names beginning with {TEMPORARY_PREFIX} are reserved")
    folder_fd = open_folder(root_fd, "/".join(folders), create=True)
    temporary = TEMPORARY_PREFIX + secrets.token_hex(8)
    try:
        bits = _replaceable(folder_fd, name, path)
        fd = os.open(
            temporary,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o666,
            dir_fd=folder_fd,
        )
        with os.fdopen(fd, "wb") as file:
            if bits is not None:
                os.fchmod(fd, bits)
            yield file
            if durable:
                file.flush()
                os.fsync(fd)
        os.rename(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        if durable:
            os.fsync(folder_fd)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder_fd)
        if isinstance(error, OSError):
            raise _refusal(path, error) from None
        raise
    finally:
        os.close(folder_fd)


def _replaceable(folder_fd: int, name: str, path: str) -> int | None:
    """The permission bits of the file to be replaced, None when there is none; raises FileRejected."""
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise FileRejected(f"{shorten(path)} is a symbolic link", hint="write to the file it names")
    require_regular(status, path)
    return stat.S_IMODE(status.st_mode) & 0o777
