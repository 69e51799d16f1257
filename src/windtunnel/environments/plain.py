"""Environment `plain`: a directory and ordinary processes. No isolation at all; for bundled tasks and `loop` only."""

from __future__ import annotations

import asyncio
import getpass
import os
import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from windtunnel.domain.digest import to_line
from windtunnel.domain.outcome import Reason
from windtunnel.environments import holder
from windtunnel.environments.disk_environment import DiskEnvironment
from windtunnel.environments.disk_sandbox import DiskSandbox, SandboxRecord
from windtunnel.environments.interface import Completed, EnvironmentFacts, Observed, Sandbox, SandboxSpec
from windtunnel.environments.output import Bounded, drain
from windtunnel.errors import AttemptFault
from windtunnel.host.processes import ProcessId, identify, is_alive, kill_tree
from windtunnel.store.files import read_json, write_atomic

__all__ = ["PlainEnvironment"]

_HOLDER = Path(holder.__file__)
_HANDSHAKE_S = 30.0
_LOOK_S = 0.25
_CLOSE_S = 2.0


class _Launched(msgspec.Struct, frozen=True, kw_only=True):
    """`state/launched.json`: the holder of the launched process."""

    holder: ProcessId


class PlainSandbox(DiskSandbox):
    """`inside` gives real host paths; nothing keeps a process from looking elsewhere."""

    def inside(self, path: str) -> str:
        """See the port."""
        root, parts = self._place(path)
        return str(root.path.absolute().joinpath(*parts))

    def _order(self, argv: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> bytes:
        whole = {"PATH": _path()} | self._env(env) | {holder.MARK: self.id}
        where = cwd or self.inside(self._workdir())
        order = {"argv": list(argv), "env": whole, "cwd": where, "exit_file": str(self._exit_file.absolute())}
        return to_line(order)

    @property
    def _exit_file(self) -> Path:
        return self._state / "exit"

    async def launch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, user: str | None) -> None:
        """See the port. `user` is ignored: everything runs as the caller."""
        process = await _start_holder("launch", stderr=asyncio.subprocess.DEVNULL)
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(_HANDSHAKE_S):
                process.stdin.write(self._order(argv, env, cwd))
                identity = identify(int(await process.stdout.readline()))
                if identity is None:
                    raise ValueError("it died at once")
                write_atomic(self._state / "launched.json", to_line(_Launched(holder=identity)))
                process.stdin.write(b"go\n")
                process.stdin.close()
                await process.wait()
        except (TimeoutError, ValueError, OSError) as error:
            raise AttemptFault(Reason.ENGINE_ERROR, f"cannot start the holder process: {error}") from error

    async def launched_exit(self) -> int | None:
        """See the port."""
        try:
            return int(self._exit_file.read_text())
        except FileNotFoundError:
            pass
        except ValueError:
            return -1
        launched = _read_launched(self._state)
        if not self._root.path.is_dir() or launched is None:
            raise AttemptFault(Reason.CONTAINER_LOST, f"sandbox {self.spec.name}: its directory is gone")
        return None if is_alive(launched.holder) else -1

    async def exec(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        timeout_s: float = 60.0,
        output_limit: int = 1_000_000,
    ) -> Completed:
        """See the port. What the command leaves running is ended with it."""
        mark = secrets.token_hex(16)
        process = await _start_holder("run", stderr=asyncio.subprocess.PIPE)
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        out, err = Bounded(output_limit), Bounded(output_limit)
        readers = asyncio.gather(drain(process.stdout, out), drain(process.stderr, err))
        timed_out = False
        try:
            process.stdin.write(self._order(argv, {**(env or {}), holder.EXEC_MARK: mark}, cwd))
            async with asyncio.timeout(timeout_s):
                await _ended(process)
        except TimeoutError:
            timed_out = True
        finally:
            await _end_exec(process, f"{holder.EXEC_MARK}={mark}", readers)
        code = None if timed_out else process.returncode
        return Completed(code, bytes(out.data), bytes(err.data), timed_out, out.truncated or err.truncated)

    async def end_processes(self) -> None:
        """See the port."""
        await asyncio.to_thread(_end, self._state, self.id)

    async def observed(self) -> Observed:
        """Nothing watches memory here."""
        return Observed(peak_memory=None, oom_events=None)


async def _start_holder(mode: str, *, stderr: int) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    argv = [sys.executable, "-I", "-S", str(_HOLDER), mode]
    return await asyncio.create_subprocess_exec(
        *argv, stdin=pipe, stdout=pipe, stderr=stderr, env={"PATH": _path()}, start_new_session=True
    )


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for the process alone: its own `wait` also waits for everybody who holds its output open."""
    waiting = asyncio.ensure_future(process.wait())
    try:
        while process.returncode is None:
            await asyncio.wait({waiting}, timeout=_LOOK_S)
    finally:
        waiting.cancel()


async def _end_exec(process: asyncio.subprocess.Process, mark: str, readers: asyncio.Future[Any]) -> None:
    """End a command with everything below it, its holder last, and close its output. Without a holder (the command
    may have killed it) the mark finds what is left; who has no mark any more keeps nothing of ours open."""
    if process.returncode is None:
        await asyncio.to_thread(holder.end_family, process.pid)
        if process.returncode is None:
            process.kill()
        await _ended(process)
    killed = process.returncode is not None and process.returncode < 0
    await asyncio.wait({readers}, timeout=0 if killed else _CLOSE_S)
    if killed or not readers.done():
        await asyncio.to_thread(holder.end_family, None, mark)
        await asyncio.wait({readers}, timeout=_CLOSE_S)
    if not readers.done():
        process._transport.close()  # type: ignore[attr-defined]  # there is no public way to stop reading
    await readers


def _read_launched(state: Path) -> _Launched | None:
    try:
        return read_json(state / "launched.json", _Launched)
    except FileNotFoundError:
        return None


def _end(state: Path, mark: str) -> None:
    launched = _read_launched(state)
    root = launched.holder if launched and is_alive(launched.holder) else None
    if not holder.end_family(root.pid if root else None, f"{holder.MARK}={mark}"):
        raise AttemptFault(Reason.ENGINE_ERROR, "processes of the sandbox cannot be ended")
    if root:
        kill_tree(root)


def _path() -> str:
    """The caller's PATH, and this Python's own directory behind it, so that there is a `python3`."""
    own = str(PurePosixPath(sys.base_prefix) / "bin")
    return os.pathsep.join([os.environ.get("PATH", os.defpath), own])


class PlainEnvironment(DiskEnvironment):
    """See the port."""

    name = "plain"

    async def facts(self) -> EnvironmentFacts:
        """See the port."""
        self._make_work_root()
        return EnvironmentFacts(
            name=self.name,
            version=f"Linux {platform.release()}",
            isolation=f"none: ordinary processes of user {_user()} that can read and change whatever that user can",
            memory_enforced_by="nothing",
        )

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """See the port."""
        id_, register = self._register(spec)
        sandbox = PlainSandbox(id_, spec, self._images, register, None)
        await asyncio.to_thread(sandbox._prepare)
        return sandbox

    def _end_recorded(self, record: SandboxRecord) -> None:
        _end(Path(record.scratch) / "state", record.id)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.geteuid())
