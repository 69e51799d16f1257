"""Start bubblewrap with its options in an anonymous file, and read the status it writes about its child."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from windtunnel.domain.outcome import Reason
from windtunnel.environments.bubblewrap import Bubblewrap
from windtunnel.environments.interface import Completed
from windtunnel.environments.output import Bounded, drain
from windtunnel.errors import AttemptFault
from windtunnel.host.processes import ProcessId, identify, is_alive

__all__ = ["SYSTEM_PATH", "child_of", "end_namespace", "joining", "memory_file", "read_status", "run_attached"]

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_JOIN = 'while [ "$1" != -- ]; do echo 0 > "$1"; shift; done; shift; exec "$@"'
_END_S = 20.0


@contextlib.contextmanager
def memory_file(content: bytes = b"") -> Iterator[BinaryIO]:
    """A file that exists in memory only and is inherited by number."""
    with os.fdopen(os.memfd_create("windtunnel", 0), "w+b") as file:
        file.write(content)
        file.seek(0)
        yield file


def joining(join_files: Sequence[str], argv: Sequence[str]) -> list[str]:
    """Put a command into a control group before it starts anything."""
    return ["/bin/sh", "-c", _JOIN, "sh", *join_files, "--", *argv] if join_files else [*argv]


def read_status(data: bytes) -> dict[str, int]:
    """bubblewrap's status documents merged: `child-pid`, `pid-namespace`, and at the end `exit-code`."""
    merged: dict[str, int] = {}
    for line in data.splitlines(keepends=True):
        if line.endswith(b"\n"):
            with contextlib.suppress(ValueError):
                merged |= json.loads(line)
    return merged


def child_of(status: dict[str, int]) -> ProcessId | None:
    """The identity of a sandbox's PID 1, by pid and process namespace; None when it is gone."""
    pid = status.get("child-pid")
    if pid is None:
        return None
    found = identify(pid)
    try:
        same = Path(f"/proc/{pid}/ns/pid").stat().st_ino == status.get("pid-namespace")
    except OSError:
        return None
    return found if same else None


def end_namespace(inner: ProcessId | None) -> None:
    """KILL a namespace's PID 1, which takes everything in there with it. Raises AttemptFault when it stays."""
    deadline = time.monotonic() + _END_S
    while inner is not None and is_alive(inner):
        with contextlib.suppress(ProcessLookupError):
            os.kill(inner.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise AttemptFault(Reason.ENGINE_ERROR, f"the sandbox's process {inner.pid} cannot be ended")
        time.sleep(0.01)


async def run_attached(
    bubblewrap: Bubblewrap,
    options: bytes,
    argv: Sequence[str],
    join_files: Sequence[str],
    *,
    timeout_s: float,
    output_limit: int,
) -> Completed:
    """Run a short command in a sandbox of its own. Raises AttemptFault(engine_error) when it never started."""
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    with memory_file(options) as args, memory_file() as status:
        command = joining(join_files, bubblewrap.command(args.fileno(), status.fileno(), argv))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=null,
            stdout=pipe,
            stderr=pipe,
            env={"PATH": SYSTEM_PATH},
            start_new_session=True,
            pass_fds=(args.fileno(), status.fileno()),
        )
        out, err = Bounded(output_limit), Bounded(output_limit)
        try:
            timed_out = await _wait(process, out, err, timeout_s)
        finally:
            await _end_attached(process, status)
        started = "child-pid" in read_status(_content(status))
    if not started and not timed_out:
        raise AttemptFault(
            Reason.ENGINE_ERROR, f"bubblewrap did not start: {err.data[-300:].decode('utf-8', 'replace')}"
        )
    code = None if timed_out else process.returncode
    return Completed(code, bytes(out.data), bytes(err.data), timed_out, out.truncated or err.truncated)


async def _wait(process: asyncio.subprocess.Process, out: Bounded, err: Bounded, timeout_s: float) -> bool:
    """Collect the output until the end; True when the time ran out first."""
    assert process.stdout is not None and process.stderr is not None
    try:
        async with asyncio.timeout(timeout_s):
            await asyncio.gather(drain(process.stdout, out), drain(process.stderr, err), process.wait())
    except TimeoutError:
        return True
    return False


async def _end_attached(process: asyncio.subprocess.Process, status: BinaryIO) -> None:
    """End bubblewrap and, through it, its whole namespace, whether or not it told us about it."""
    if process.returncode is None:
        inner = child_of(read_status(_content(status)))
        process.kill()
        await process.wait()
        await asyncio.to_thread(end_namespace, inner)


def _content(file: BinaryIO) -> bytes:
    return os.pread(file.fileno(), 65536, 0)
