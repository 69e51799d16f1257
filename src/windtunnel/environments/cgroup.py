"""Memory accounting from the kernel's control groups, version 1 and 2: read a container's, make one of our own as root.

Files: v1 `memory.max_usage_in_bytes`, `memory.oom_control` (oom_kill); v2 `memory.peak` (kernel 5.19), `memory.events`
(oom_kill). The directory disappears with its last process, so readers keep the last sample.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass
from pathlib import Path

from windtunnel.domain.task import Limits
from windtunnel.environments.interface import Observed

__all__ = ["MemoryFiles", "OwnCgroup", "memory_files_of"]

_MOUNT = Path("/sys/fs/cgroup")
_MIB = 1024 * 1024


def _is_v2() -> bool:
    return (_MOUNT / "cgroup.controllers").exists()


@dataclass(frozen=True)
class MemoryFiles:
    """The memory files of one group."""

    directory: Path

    def sample(self, former: Observed | None = None) -> Observed:
        """Peak and kills now; values that cannot be read any more keep their former value, else None."""
        peak = _number(self.directory / ("memory.peak" if _is_v2() else "memory.max_usage_in_bytes"))
        kills = _kills(self.directory / ("memory.events" if _is_v2() else "memory.oom_control"))
        former = former or Observed(None, None)
        return Observed(
            peak_memory=former.peak_memory if peak is None else peak,
            oom_events=former.oom_events if kills is None else kills,
        )


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _kills(path: Path) -> int | None:
    try:
        found = re.search(r"^oom_kill (\d+)$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def memory_files_of(pid: int) -> MemoryFiles | None:
    """The memory group of a process, None where it cannot be read on this machine."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if _is_v2() and not controllers:
            directory = _MOUNT / path.lstrip("/")
        elif "memory" in controllers.split(","):
            directory = _MOUNT / "memory" / path.lstrip("/")
        else:
            continue
        return MemoryFiles(directory) if directory.is_dir() else None
    return None


class OwnCgroup:
    """A group of ours with a memory and pids ceiling, directly below the hierarchy's root as the engine makes its own.

    Only root can make one; `make` returns None where that does not work.
    """

    def __init__(self, name: str) -> None:
        folders = [_MOUNT / name] if _is_v2() else [_MOUNT / "memory" / name, _MOUNT / "pids" / name]
        self._folders = folders
        self.memory = MemoryFiles(folders[0])

    @classmethod
    def make(cls, name: str, limits: Limits) -> OwnCgroup | None:
        """Create the group with its limits."""
        if os.geteuid() != 0:
            return None
        group = cls(name)
        try:
            if _is_v2():
                (_MOUNT / "cgroup.subtree_control").write_text("+memory +pids")
            for folder in group._folders:
                folder.mkdir(exist_ok=True)
            group._limit(limits)
        except OSError:
            group.remove()
            return None
        return group

    def _limit(self, limits: Limits) -> None:
        (self._folders[-1] / "pids.max").write_text(str(limits.pids))
        if limits.memory_mb is None:
            return
        size = str(limits.memory_mb * _MIB)
        memory = self._folders[0]
        (memory / ("memory.max" if _is_v2() else "memory.limit_in_bytes")).write_text(size)
        swap = memory / ("memory.swap.max" if _is_v2() else "memory.memsw.limit_in_bytes")
        if swap.exists():
            swap.write_text("0" if _is_v2() else size)

    def join_files(self) -> list[str]:
        """Files into which a process writes 0 to join."""
        return [str(folder / "cgroup.procs") for folder in self._folders]

    def members(self) -> list[int]:
        """Pids in the group."""
        found: set[int] = set()
        for folder in self._folders:
            with contextlib.suppress(OSError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text().split()}
        return sorted(found)

    def remove(self) -> None:
        """Remove the group; the kernel needs a moment after the last process."""
        for folder in self._folders:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    folder.rmdir()
                if not folder.exists():
                    break
                time.sleep(0.05)
