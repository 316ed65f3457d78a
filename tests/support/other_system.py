"""Runs zmtpsniff as if this were another system: what that one has not is gone before zmtpsniff is imported.

    python -m tests.support.other_system win32|darwin|linux FOLDER

On standard input is a list of command lines, as JSON. Their exit statuses are printed, as JSON; what they write is in
0.out, 0.err, 1.out and so on, in FOLDER.

Python's own modules and those of others are imported before, since they have chosen by then what they use; zmtpsniff
chooses afterwards. It is less than a real system: names, files and terminals stay those of this one.
"""

import importlib
import json
import os
import signal
import socket
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Modules that zmtpsniff or its packages import late, and that look at the system.
EARLY = (
    "asyncio", "cbor2", "click", "concurrent.futures", "ctypes", "importlib.metadata", "lark", "lzma", "mmap",
    "msgspec", "multiprocessing", "platform", "re2", "rich.console", "rich.progress", "rich.table", "rich.text",
    "select", "shutil", "subprocess", "tempfile", "threading",
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd",
)  # fmt: skip
POSIX_MODULES = {"curses", "fcntl", "grp", "pty", "pwd", "readline", "resource", "syslog", "termios", "tty"}
LINUX_NAMES: dict[str, set[str]] = {
    "os": {
        "O_TMPFILE", "copy_file_range", "eventfd", "getresgid", "getresuid", "memfd_create", "pidfd_open", "pipe2",
        "posix_fadvise", "posix_fallocate", "sched_getaffinity", "sched_setaffinity", "setns", "setresgid", "setresuid",
        "splice", "unshare",
    },
    "select": {"epoll"},
    "socket": {"AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_BINDTODEVICE"},
    "signal": {"SIGPWR", "SIGRTMAX", "SIGRTMIN", "SIGSTKFLT", "sigtimedwait", "sigwaitinfo"},
    "time": {"CLOCK_BOOTTIME"},
}  # fmt: skip
POSIX_NAMES: dict[str, set[str]] = {
    "os": {
        "O_CLOEXEC", "O_DIRECTORY", "O_NOCTTY", "O_NOFOLLOW", "O_NONBLOCK", "chown", "fchmod", "fchown", "fork",
        "getegid", "geteuid", "getgid", "getgroups", "getpgid", "getpgrp", "getuid", "initgroups", "killpg", "lchown",
        "mkfifo", "nice", "openpty", "pread", "preadv", "pwrite", "sendfile", "setegid", "seteuid", "setgid", "setpgid",
        "setsid", "setuid", "statvfs", "sysconf", "tcgetpgrp", "uname", "wait3", "wait4", "writev",
    },
    "select": {"poll"},
    "socket": {"AF_UNIX", "socketpair"},
    "signal": {
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP", "SIGTSTP", "SIGUSR1",
        "SIGUSR2", "SIGWINCH", "alarm", "pause", "pthread_kill", "pthread_sigmask", "setitimer", "sigpending",
        "sigwait",
    },
    "time": {"tzset"},
}  # fmt: skip
MODULES: dict[str, ModuleType] = {"os": os, "signal": signal, "socket": socket, "time": time}


class MissingModules(MetaPathFinder):
    """Finds no module of those that a system has not."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname.partition(".")[0] in self._names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def pretend(system: str) -> None:
    """Make this process one on ``system``: win32 or darwin."""
    for name in EARLY:
        importlib.import_module(name)
    MODULES["select"] = importlib.import_module("select")
    gone = [LINUX_NAMES, POSIX_NAMES] if system == "win32" else [LINUX_NAMES]
    for names in gone:
        for module, attributes in names.items():
            for attribute in attributes:
                vars(MODULES[module]).pop(attribute, None)
    if system == "win32":
        for name in POSIX_MODULES:
            sys.modules.pop(name, None)
        sys.meta_path.insert(0, MissingModules(POSIX_MODULES))
    opened = os.open

    def checked_open(path: Any, *arguments: Any, **more: Any) -> int:
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return opened(path, *arguments, **more)

    os.open = checked_open
    sys.platform = system


def main() -> None:
    """Run each of the command lines on standard input."""
    system, folder = sys.argv[1], sys.argv[2]
    fork = os.fork
    if system != "linux":
        pretend(system)
    from zmtpsniff.cli.main import main as run

    statuses = []
    for number, arguments in enumerate(json.load(sys.stdin)):
        child = fork()
        if not child:
            for descriptor, name in ((1, "out"), (2, "err")):
                os.dup2(os.open(f"{folder}/{number}.{name}", os.O_WRONLY | os.O_CREAT), descriptor)
            sys.argv = ["zmtpsniff", *arguments]
            run()
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    print(json.dumps(statuses))


if __name__ == "__main__":
    main()
