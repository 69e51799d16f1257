"""One bubblewrap sandbox: a launched process that outlives its supervisor, short commands that do not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

import msgspec

from windtunnel.domain.digest import to_line
from windtunnel.domain.outcome import Reason
from windtunnel.environments.bubblewrap import Bind, Bubblewrap
from windtunnel.environments.bubblewrap_run import (
    SYSTEM_PATH,
    child_of,
    end_namespace,
    joining,
    memory_file,
    read_status,
    run_attached,
)
from windtunnel.environments.cgroup import OwnCgroup
from windtunnel.environments.disk_sandbox import DiskSandbox
from windtunnel.environments.interface import Completed, Observed
from windtunnel.environments.rootdir import RESERVED
from windtunnel.errors import AttemptFault
from windtunnel.host.processes import ProcessId, identify, is_alive
from windtunnel.store.files import read_json, write_atomic

__all__ = ["LocalSandbox", "end_recorded"]

_SILENT = 'exec "$@" </dev/null >/dev/null 2>&1'
_START_S = 20.0
_END_S = 5.0


class _Launched(msgspec.Struct, frozen=True, kw_only=True):
    """`state/launched.json`: PID 1 of the launched process' namespace; when it dies, everything in there dies."""

    inner: ProcessId


def _group_name(id_: str) -> str:
    return f"windtunnel-{id_}"


class LocalSandbox(DiskSandbox):
    """See the port. Each exec has process namespaces of its own: what it leaves running ends with it."""

    _bubblewrap: Bubblewrap
    _etc: Path
    _group: OwnCgroup | None
    _last = Observed(None, None)

    def prepare(self, bubblewrap: Bubblewrap, etc: Path) -> None:
        """Lay out the directories and make the memory group where that is possible."""
        self._bubblewrap, self._etc = bubblewrap, etc
        self._prepare()
        self._group = OwnCgroup.make(_group_name(self.id), self.spec.limits)

    def _options(self, env: Mapping[str, str] | None, cwd: str | None, *, attached: bool) -> bytes:
        tops = [path for path in sorted(self._root.path.iterdir()) if path.is_dir() and not path.is_symlink()]
        binds = [Bind(path, f"/{path.name}", read_only=False) for path in tops if path.name not in RESERVED]
        binds += [Bind(mount.source, mount.target, mount.read_only) for mount in self.spec.mounts]
        own = str(PurePosixPath(sys.base_prefix) / "bin")
        path = SYSTEM_PATH if PurePosixPath(own).is_relative_to("/usr") else f"{own}:{SYSTEM_PATH}"
        return self._bubblewrap.options(
            binds=[Bind(bind.source.absolute(), bind.target, bind.read_only) for bind in binds],
            network=self.spec.network,
            env={"PATH": path, "USER": "windtunnel"} | self._env(env),
            cwd=cwd or self._workdir(),
            etc=self._etc,
            attached=attached,
        )

    async def put(self, source: Path, target: str) -> None:
        """See the port. The system's own directories are this machine's and cannot be written."""
        if PurePosixPath(target).parts[1:2] and PurePosixPath(target).parts[1] in RESERVED:
            raise AttemptFault(
                Reason.ENGINE_ERROR, f"environment local cannot place {target}: it is this machine's own"
            )
        await super().put(source, target)

    async def launch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, user: str | None) -> None:
        """See the port. `user` is ignored: everything runs as the sandbox user."""
        self._hand_over_mounts()
        status, stderr = self._state / "status", self._state / "launch.stderr"
        with memory_file(self._options(env, cwd, attached=False)) as args, status.open("wb") as out:
            silent = ["/bin/sh", "-c", _SILENT, "sh", *argv]
            command = self._bubblewrap.command(args.fileno(), out.fileno(), silent)
            with stderr.open("wb") as err:
                process = await asyncio.create_subprocess_exec(
                    *["setsid", "-f", *joining(self._join_files(), command)],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=err,
                    env={"PATH": SYSTEM_PATH},
                    pass_fds=(args.fileno(), out.fileno()),
                )
                await process.wait()
        await self._note_inner(status, stderr)

    async def _note_inner(self, status: Path, stderr: Path) -> None:
        """Keep the identity of the new PID 1; it is the only handle on the sandbox after a crash."""
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            found = read_status(status.read_bytes())
            if "child-pid" in found:
                inner = identify(int(found["child-pid"]))
                if inner is not None:
                    write_atomic(self._state / "launched.json", to_line(_Launched(inner=inner)))
                if inner is not None or "exit-code" in found:
                    return
            await asyncio.sleep(0.01)
        said = stderr.read_bytes()[-300:].decode("utf-8", "replace").strip()
        raise AttemptFault(Reason.ENGINE_ERROR, f"bubblewrap did not start: {said}")

    async def launched_exit(self) -> int | None:
        """See the port."""
        try:
            found = read_status((self._state / "status").read_bytes())
        except FileNotFoundError as error:
            raise AttemptFault(Reason.CONTAINER_LOST, f"sandbox {self.spec.name}: its directory is gone") from error
        if "exit-code" in found:
            return int(found["exit-code"])
        inner = _inner(self._state)
        if inner is not None and is_alive(inner):
            return None
        await asyncio.sleep(0.2)  # bubblewrap writes the code after its child is gone
        return int(read_status((self._state / "status").read_bytes()).get("exit-code", -1))

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
        """See the port."""
        options = self._options(env, cwd, attached=True)
        return await run_attached(
            self._bubblewrap, options, argv, self._join_files(), timeout_s=timeout_s, output_limit=output_limit
        )

    def _join_files(self) -> list[str]:
        return self._group.join_files() if self._group else []

    async def end_processes(self) -> None:
        """See the port."""
        await self.observed()
        await asyncio.to_thread(_end, self._state, self._group)

    async def observed(self) -> Observed:
        """See the port."""
        if self._group:
            self._last = self._group.memory.sample(self._last)
        return self._last

    def _forget(self) -> None:
        if self._group:
            self._group.remove()
        super()._forget()


def _inner(state: Path) -> ProcessId | None:
    """PID 1 of the launched process' namespace, also when the supervisor died before it could note it."""
    try:
        return read_json(state / "launched.json", _Launched).inner
    except FileNotFoundError:
        pass
    try:
        return child_of(read_status((state / "status").read_bytes()))
    except FileNotFoundError:
        return None


def _end(state: Path, group: OwnCgroup | None) -> None:
    """End the namespace and whatever else is in the group. Raises AttemptFault(engine_error) when something stays."""
    end_namespace(_inner(state))
    deadline = time.monotonic() + _END_S
    while group and (members := group.members()):
        if time.monotonic() > deadline:
            detail = f"processes of the sandbox cannot be ended: {', '.join(map(str, members[:10]))}"
            raise AttemptFault(Reason.ENGINE_ERROR, detail)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def end_recorded(state: Path, id_: str) -> None:
    """End what a sandbox of an earlier supervisor still runs and remove its memory group."""
    group = OwnCgroup(_group_name(id_))
    _end(state, group)
    group.remove()
