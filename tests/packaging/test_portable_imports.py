"""warren can be imported on systems that lack facilities of Linux."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

#: Run in a child process: it imports each module of warren twice, the second time without what other systems lack. By
#: then the standard library and other packages have taken what they need.
CODE = """
import importlib, os, pkgutil, select, selectors, signal, socket, sys
import warren

def names():
    for module in pkgutil.walk_packages(warren.__path__, "warren."):
        if module.name.split(".")[1] not in ("tests", "bench", "__main__", "build", "dist", "docs"):
            yield module.name

everything = list(names())
for name in everything:
    importlib.import_module(name)
for name in [name for name in sys.modules if name == "warren" or name.startswith("warren.")]:
    del sys.modules[name]

for module in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[module] = None
LACKING = {
    os: (
        "eventfd", "eventfd_read", "eventfd_write", "EFD_CLOEXEC", "EFD_NONBLOCK",
        "pwritev", "preadv", "RWF_DSYNC", "posix_fallocate", "posix_fadvise", "fdatasync", "writev", "readv", "pread",
        "pwrite", "statvfs", "fstatvfs", "sysconf", "getuid", "geteuid", "fork", "uname", "getloadavg",
        "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_DSYNC", "O_SYNC", "O_NONBLOCK", "sched_getaffinity",
        "copy_file_range", "sendfile", "memfd_create", "fchmod", "chown",
    ),
    select: ("epoll", "poll", *(name for name in dir(select) if name.startswith(("EPOLL", "POLL")))),
    selectors: ("EpollSelector", "PollSelector"),
    signal: ("SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGPIPE", "SIGCHLD", "SIGALRM", "pthread_kill"),
    socket: (
        "SO_REUSEPORT", "AF_UNIX", "TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT", "MSG_NOSIGNAL",
    ),
}
for module, attributes in LACKING.items():
    for attribute in attributes:
        if hasattr(module, attribute):
            delattr(module, attribute)

failed = []
for name in ["warren", *everything]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {error}")
print(len(everything), "modules")
print("\\n".join(failed), file=sys.stderr)
sys.exit(bool(failed))
"""


def test_no_module_needs_at_import_what_only_linux_has(tmp_path):
    """No import fails for a name that only Linux has: on macOS and Windows, where a broker may be embedded, a missing
    facility may cost a feature only.
    """
    ran = subprocess.run(
        [sys.executable, "-c", CODE],
        env={**os.environ, "WARREN_PORTABLE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[0]) > 100, "the modules were not found"


#: The folders and files with one module for each facility of Linux and its portable twin.
FACILITIES = ("runtime/machine/", "runtime/loop/poller.py", "runtime/loop/waker.py", "store/disk/system/", "heap.py")

#: Text by which a use of such a facility is recognised: a path, or an attribute of a module.
OF_LINUX = re.compile(
    r"/proc/|/sys/fs/|epoll|eventfd|pwritev|RWF_|fallocate|mallopt|malloc_trim|sched_|copy_file_range"
)


def test_each_facility_of_linux_stands_in_one_place():
    """Each facility of Linux is used in one place, because elsewhere it would have no twin, or a second one."""
    found = {}
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name.startswith((".", "tests/", "bench/", "build/", "docs/")):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        docs = {ast.get_docstring(node, clean=False) for node in ast.walk(tree) if isinstance(node, DOCUMENTED)}
        used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        used |= {
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        found[name] = sorted(each for each in used - docs if OF_LINUX.search(each))
    assert found["store/disk/system/synced_write.py"], "the names were not looked for"
    assert {name: each for name, each in found.items() if each and not name.startswith(FACILITIES)} == {}
