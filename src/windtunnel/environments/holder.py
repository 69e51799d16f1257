"""The parent that `plain` gives its processes: whatever they leave behind is adopted by it and can be found and ended.

Run as a file of its own (`python -I -S holder.py launch|run`), standard library only, so that it starts in some 20 ms.
It reads one JSON line from stdin ({"argv", "env", "cwd", "exit_file"}), so that no value reaches a command line.

`launch`: detaches, prints its pid, waits for the line `go` (by then its identity is on disk), starts the process and
writes its exit code to `exit_file`. It stays as long as any descendant lives.
`run`: starts the process on its own stdout and stderr, waits for it, ends what it left behind and exits with its code;
the same when the supervisor dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["EXEC_MARK", "MARK", "end_family", "family_of"]

MARK = "WINDTUNNEL_SANDBOX"
EXEC_MARK = "WINDTUNNEL_EXEC"
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_NOT_FOUND = 127


def _stat(pid: int) -> tuple[int, str, str] | None:
    """(parent, state, start time in ticks) of a process, None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return int(fields[1]), fields[0].decode(), fields[19].decode()


def _has_mark(pid: int, mark: str) -> bool:
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return mark.encode() in environ.split(b"\0")


def family_of(root: int | None, mark: str | None = None) -> dict[int, str]:
    """Living descendants of a process, and every process with the mark (`KEY=value`): pid -> start time in ticks."""
    table = {int(name): _stat(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    known = {pid: found for pid, found in table.items() if found is not None}
    members: set[int] = {pid for pid in known if mark and pid not in {root, os.getpid()} and _has_mark(pid, mark)}
    frontier = members | ({root} if root else set())
    while frontier:
        frontier = {pid for pid, (parent, _, _) in known.items() if parent in frontier} - members
        members |= frontier
    return {pid: known[pid][2] for pid in members if known[pid][1] not in "ZX"}


def _signal(pid: int, started: str, number: int) -> None:
    """Signal exactly this process: a pid that was reused in the meantime is left alone."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            found = _stat(pid)
            if found is not None and found[2] == started:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def end_family(root: int | None, mark: str | None = None, *, rounds: int = 100) -> bool:
    """KILL all descendants and marked processes, stopped first so that they cannot outrun it; False: some stayed."""
    for _ in range(rounds):
        family: dict[int, str] = {}
        for _ in range(3):
            fresh = {pid: started for pid, started in family_of(root, mark).items() if pid not in family}
            for pid, started in fresh.items():
                _signal(pid, started, signal.SIGSTOP)
            family |= fresh
        for pid, started in family.items():
            _signal(pid, started, signal.SIGKILL)
        if root == os.getpid():
            _reap()
        if not family:
            return True
        time.sleep(0.01)
    return False


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


_started: list[subprocess.Popen[bytes]] = []  # kept: a forgotten Popen reaps its child behind our back


def _start(order: dict[str, Any]) -> int | None:
    """Start the process in a session of its own; None when there is no such program."""
    try:
        child = subprocess.Popen(
            order["argv"], env=order["env"], cwd=order["cwd"], stdin=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        print(f"cannot start {order['argv'][0]}: {error.strerror}", file=sys.stderr, flush=True)  # noqa: T201
        return None
    _started.append(child)
    return child.pid


def _wait_for(child: int) -> int:
    """Reap until the process itself has ended; its exit code as a shell gives it."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _run(order: dict[str, Any]) -> int:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    supervisor = os.getppid()

    def end(number: int, frame: object) -> None:
        end_family(os.getpid())
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != supervisor:
        return 128 + signal.SIGTERM
    child = _start(order)
    code = _NOT_FOUND if child is None else _wait_for(child)
    end_family(os.getpid())
    return code


def _launch(order: dict[str, Any]) -> int:
    if os.fork():
        return 0
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    os.write(1, f"{os.getpid()}\n".encode())
    if sys.stdin.readline() != "go\n":
        return 1
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    child = _start(order)
    _write_exit(order["exit_file"], _NOT_FOUND if child is None else _wait_for(child))
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    return 0


def _write_exit(path: str, code: int) -> None:
    draft = Path(f"{path}.new")
    draft.write_text(str(code))
    draft.replace(path)


def main() -> int:
    """`launch` or `run`."""
    order = json.loads(sys.stdin.readline())
    return _launch(order) if sys.argv[1] == "launch" else _run(order)


if __name__ == "__main__":
    os._exit(main())
