"""Who may write a run: the holder of the kernel's lock on `owner.lock`, freed when that process ends, however it ends.

What is written inside the file is for messages and for the reader's liveness; it decides nothing.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import msgspec

from windtunnel.domain.digest import decode, to_json
from windtunnel.errors import InputWrong
from windtunnel.host.clock import utc_now
from windtunnel.host.processes import ProcessId, current
from windtunnel.store.layout import RunDir

__all__ = ["Owner", "OwnerLock", "read_owner"]


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """The content of owner.lock: who took it last."""

    schemaVersion: int = 1
    run_id: str
    host: str
    process: ProcessId
    taken_at: str


class OwnerLock:
    """Hold this for as long as the run may be written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @classmethod
    def take(cls, run_dir: RunDir, *, announce: bool = True) -> OwnerLock:
        """Own the run. Raises InputWrong when a living process does, OSError when the file cannot be made.

        `announce` false: hold the lock for a moment without becoming the owner that readers are told of."""
        run_dir.root.mkdir(parents=True, exist_ok=True)
        fd = _locked(run_dir.owner_lock)
        if fd is None:
            owner = read_owner(run_dir)
            pid = "unknown" if owner is None else owner.process.pid
            raise InputWrong(f"run {run_dir.root.name} is already running: pid {pid}")
        if announce:
            owner = Owner(run_id=run_dir.root.name, host=socket.gethostname(), process=current(), taken_at=utc_now())
            os.ftruncate(fd, 0)
            os.pwrite(fd, to_json(owner), 0)
        return cls(fd)

    def close(self) -> None:
        """Let go; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> OwnerLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _locked(path: Path) -> int | None:
    """A descriptor that holds the lock on the file of this name, None when somebody else holds it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if _is_named(fd, path):
            return fd
        os.close(fd)  # the file was removed between open and lock: the lock would be on nothing


def _is_named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False


def read_owner(run_dir: RunDir) -> Owner | None:
    """Who took the lock last; None when nobody did or the note cannot be read."""
    try:
        return decode(run_dir.owner_lock.read_bytes(), Owner)
    except (OSError, ValueError, RecursionError):
        return None
