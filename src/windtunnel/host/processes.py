"""Processes by identity (pid, start time, boot id), never by name or command line."""

from __future__ import annotations

import contextlib
import os

import msgspec
import psutil

from windtunnel.host.clock import boot_id

__all__ = ["ProcessId", "current", "identify", "is_alive", "kill_tree"]


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """`start_time`: seconds since the epoch as the kernel tells it; a reused pid has another one."""

    pid: int
    start_time: float
    boot_id: str


def identify(pid: int) -> ProcessId | None:
    """The identity of a living process, None when there is none."""
    try:
        return ProcessId(pid=pid, start_time=psutil.Process(pid).create_time(), boot_id=boot_id())
    except psutil.Error:
        return None


def current() -> ProcessId:
    """This process."""
    found = identify(os.getpid())
    assert found is not None, "a running process can read its own start time"
    return found


def is_alive(process: ProcessId) -> bool:
    """Whether exactly this process still runs (zombies do not)."""
    if process.boot_id != boot_id():
        return False
    try:
        found = psutil.Process(process.pid)
        same = abs(found.create_time() - process.start_time) < 0.05
        return same and found.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def kill_tree(process: ProcessId, *, timeout_s: float = 10.0) -> list[int]:
    """KILL a process and all its descendants; returns pids still there after the time-out."""
    if not is_alive(process):
        return []
    root = psutil.Process(process.pid)
    root.suspend()
    family = [*_descendants(root), root]
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.kill()
    _, alive = psutil.wait_procs(family, timeout=timeout_s)
    return [member.pid for member in alive]


def _descendants(root: psutil.Process) -> list[psutil.Process]:
    try:
        return root.children(recursive=True)
    except psutil.Error:
        return []
