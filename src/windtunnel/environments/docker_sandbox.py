"""One container as a sandbox, from its start to its removal."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.domain.outcome import Reason
from windtunnel.environments.cgroup import MemoryFiles, memory_files_of
from windtunnel.environments.docker_archive import fetch_archive, pack
from windtunnel.environments.docker_engine import Engine
from windtunnel.environments.docker_exec import Executor
from windtunnel.environments.docker_images import TEMPORARY
from windtunnel.environments.intake import Intake
from windtunnel.environments.interface import Completed, Fetched, Image, Observed, SandboxSpec
from windtunnel.environments.rootdir import Owner, give, open_up, remove_tree
from windtunnel.errors import AttemptFault

__all__ = ["DockerSandbox", "remove_container"]

_PASSED_OVER_BYTES = 2 * 1024**3  # how much of a stream may be headers and files over the limit
_KEPT_BYTES = 20 * 1024**3  # how large a snapshot may become, unless the task allows more
_SIZE_S = 60.0
_PAUSES = (0.5, 2.0, 5.0)  # seconds before an engine that gave no answer is asked again
_KILLED = 137


class DockerSandbox:
    """See the port. `started_at`: the engine's own text; another value means that the container was restarted."""

    def __init__(self, engine: Engine, spec: SandboxSpec, shown: Mapping[str, Any], user: str) -> None:
        self.id = str(shown["Id"])
        self.spec = spec
        self._engine = engine
        self._container = engine.docker.containers.container(self.id)
        self._executor = Executor(engine, self.id, self._stop)
        self._image_user = user
        self._workdir = str(shown["Config"].get("WorkingDir") or "/")
        self._started_at = str(shown["State"]["StartedAt"])
        self._memory: MemoryFiles | None = memory_files_of(int(shown["State"]["Pid"]))
        self._last = Observed(None, None)
        self._launched: str | None = None
        self._stopped = False

    def inside(self, path: str) -> str:
        """See the port."""
        return path

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        contract = {"WINDTUNNEL_WORKDIR": self._workdir, "WINDTUNNEL_LOGS": "/logs", "WINDTUNNEL_TESTS": "/tests"}
        return {**self.spec.env, **(env or {}), **contract}

    def _user(self, user: str | None) -> str:
        return user or self.spec.user or self._image_user or "0"

    async def put(self, source: Path, target: str) -> None:
        """See the port."""
        with tempfile.TemporaryFile() as archive:
            try:
                await asyncio.to_thread(pack, source, target, archive)
            except OSError as error:
                raise AttemptFault(Reason.ENGINE_ERROR, f"cannot read {source}: {error}") from error
            archive.seek(0)
            await self._engine.put_archive(self.id, archive)

    async def launch(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: str | None, user: str | None) -> None:
        """See the port."""
        self._launched = await self._executor.create(
            argv, env=self._env(env), cwd=cwd or self._workdir, user=self._user(user), attached=False
        )
        await self._executor.start_detached(self._launched)

    async def launched_exit(self) -> int | None:
        """See the port. An engine that is busy for a minute does not cost the attempt: it is asked again."""
        for pause in _PAUSES:
            try:
                return await self._exit_now()
            except AttemptFault as fault:
                if fault.reason != Reason.ENGINE_ERROR:
                    raise
            await asyncio.sleep(pause)
        return await self._exit_now()

    async def _exit_now(self) -> int | None:
        if self._launched is None:
            return -1
        code = await self._executor.code(self._launched)
        if self._stopped:
            return -1 if code is None else code
        await self._require_same()
        return code

    async def _require_same(self) -> None:
        async with self._engine.bounded("inspect", 60):
            state = (await self._container.show())["State"]
        if not state["Running"]:
            raise AttemptFault(Reason.CONTAINER_LOST, f"container {self.spec.name} was stopped from outside")
        if state["StartedAt"] != self._started_at:
            raise AttemptFault(Reason.CONTAINER_LOST, f"container {self.spec.name} was restarted")

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
        async with self._engine.bounded("exec", timeout_s + 120):
            done = await self._executor.run(
                argv,
                env=self._env(env),
                cwd=cwd or self._workdir,
                user=self._user(user),
                timeout_s=timeout_s,
                output_limit=output_limit,
            )
        if done.exit in {_KILLED, -1}:
            await self._require_same()
        return done

    async def disk_bytes(self) -> int | None:
        """See the port. A lost container is for `launched_exit` to report."""
        try:
            return await self._engine.written_bytes(self.id, seconds=_SIZE_S)
        except AttemptFault:
            return None

    async def end_processes(self) -> None:
        """See the port. The container ends with them: an agent that is root inside can make anything that stays look
        like ours, so nothing may stay."""
        if await self._is_running():
            await self._stop()
        self._stopped = True

    async def _is_running(self) -> bool:
        async with self._engine.bounded("inspect", 60):
            return bool((await self._container.show())["State"]["Running"])

    async def _stop(self) -> None:
        """KILL the container's PID 1, which ends everything in it, and wait until the engine knows."""
        await self.observed()
        self._stopped = True
        try:
            async with self._engine.bounded("kill", 60):
                await self._container.kill(signal="SIGKILL")
        except AttemptFault as fault:
            if fault.reason != Reason.CONTAINER_LOST or await self._is_running():
                raise
        async with self._engine.bounded("wait", 60):
            await self._container.wait()

    async def fetch(self, source: str, target: Path, *, limit_bytes: int) -> Fetched:
        """See the port. Works on a stopped container too."""
        intake = Intake(target, limit_bytes=limit_bytes)
        found = await fetch_archive(self._engine, self.id, source, intake, raw_limit=limit_bytes + _PASSED_OVER_BYTES)
        return intake.result() if found else Fetched(found=False, files=0, bytes=0)

    async def reclaim(self, path: str) -> None:
        """See the port. Root does it itself; another user asks a container of the sandbox's own image to."""
        mount = next((mount for mount in self.spec.mounts if mount.target == path and not mount.read_only), None)
        if mount is None:
            return
        owner = Owner(os.geteuid(), os.getegid())
        if owner.uid == 0:
            await asyncio.to_thread(give, mount.source, owner)
        else:
            await self._chown_in_container(mount.source, owner)
        await asyncio.to_thread(open_up, mount.source)

    async def _chown_in_container(self, source: Path, owner: Owner) -> None:
        place = "/windtunnel/reclaim"
        bind = {"Type": "bind", "Source": str(source.absolute()), "Target": place}
        config: dict[str, Any] = {
            "Image": self.spec.image.id,
            "Entrypoint": ["chown", "-hR", f"{owner.uid}:{owner.gid}", place],
            "Cmd": [],
            "User": "0",
            "Labels": dict(self.spec.labels),
            "HostConfig": {"NetworkMode": "none", "Mounts": [bind]},
        }
        async with self._engine.bounded("reclaim", 120):
            container = await self._engine.docker.containers.create(config)
            try:
                await container.start()
                ended = await container.wait()
            finally:
                await remove_container(self._engine, container.id)
        if ended["StatusCode"] != 0:
            raise AttemptFault(
                Reason.ENGINE_ERROR, f"cannot take back {source}: chown ended with {ended['StatusCode']}"
            )

    async def snapshot(self, name: str, labels: Mapping[str, str]) -> Image:
        """See the port. The container is stopped first: nothing can write into what is frozen."""
        if not self._stopped or await self._is_running():
            await self._stop()
        await self._refuse_too_big()
        config = {"Labels": {**labels, TEMPORARY: "1", "windtunnel.name": name}, "User": self._image_user or "0"}
        async with self._engine.bounded("commit", 600):
            made = await self._container.commit(config=config, pause=False)
        return Image(reference=str(made["Id"]), id=str(made["Id"]), workdir=self._workdir)

    async def _refuse_too_big(self) -> None:
        """A commit writes every hole of a sparse file out; the engine's size counts those too."""
        storage = self.spec.limits.storage_mb
        # An agent over its storage is graded on what it wrote; only what could fill the host's disk is not kept.
        most = max(_KEPT_BYTES, (storage or 0) * 1024 * 1024)
        written = await self._engine.written_bytes(self.id)
        if written is not None and written > most:
            detail = f"sandbox {self.spec.name} wrote {written} bytes, more than the {most} that can be kept"
            raise AttemptFault(Reason.PATCH_TOO_BIG, detail)

    async def observed(self) -> Observed:
        """See the port. From the kernel's files where they are readable."""
        if self._memory is not None:
            self._last = self._memory.sample(self._last)
        return self._last

    async def remove(self) -> None:
        """See the port."""
        await remove_container(self._engine, self.id)
        await asyncio.to_thread(remove_tree, self.spec.scratch)


async def remove_container(engine: Engine, id_: str) -> None:
    """Kill and remove a container with its anonymous volumes; nothing happens when it is gone."""
    for _ in range(50):
        try:
            async with engine.bounded("rm", 60):
                await engine.docker.containers.container(id_).delete(force=True, v=True)
            return
        except AttemptFault as fault:
            if fault.reason == Reason.CONTAINER_LOST:
                return
            if "already in progress" not in fault.detail:
                raise
        await asyncio.sleep(0.1)
