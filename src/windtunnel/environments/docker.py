"""Environment `docker`: containers of a local Docker engine, through its HTTP API."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.domain.outcome import Reason
from windtunnel.domain.task import ImageSource
from windtunnel.environments.docker_container import HOLDERS, container_config, has_bundle
from windtunnel.environments.docker_engine import Engine
from windtunnel.environments.docker_images import DockerImages
from windtunnel.environments.docker_sandbox import DockerSandbox, remove_container
from windtunnel.environments.interface import EnvironmentFacts, Image, Sandbox, SandboxSpec
from windtunnel.errors import AttemptFault

__all__ = ["DockerEnvironment"]


class DockerEnvironment:
    """See the port. `environ` says which engine; starts are capped near the core count, which is what they cost."""

    name = "docker"

    def __init__(self, *, environ: Mapping[str, str] | None = None, pull_waits: Sequence[float] = (1.0, 4.0)) -> None:
        self._engine = Engine(environ)
        self._images = DockerImages(self._engine, pull_waits=pull_waits)
        self._starts = asyncio.Semaphore(max(2, os.cpu_count() or 2))

    async def facts(self) -> EnvironmentFacts:
        """See the port."""
        info = await self._engine.probe()
        rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or [])
        return EnvironmentFacts(
            name=self.name,
            version=f"Docker Engine {info['ServerVersion']} (API {info['ApiVersion']}, {info.get('Driver')}, "
            f"cgroup v{info.get('CgroupVersion', '1')})",
            isolation=f"containers with namespaces of their own and the engine's default seccomp profile"
            f"{' (rootless engine)' if rootless else ''}; the agent may be root inside",
            memory_enforced_by="engine" if info.get("MemoryLimit") else "nothing",
        )

    async def image(self, source: ImageSource, *, task_dir: Path, build_timeout_s: float, tests: bool = False) -> Image:
        """See the port."""
        return await self._images.image(source, task_dir, build_timeout_s, tests=tests)

    async def open(self, spec: SandboxSpec) -> Sandbox:
        """See the port."""
        async with self._engine.bounded("image inspect", 60, missing=Reason.IMAGE_MISSING):
            config = (await self._engine.docker.images.inspect(spec.image.id)).get("Config") or {}
        workdir = spec.workdir or spec.image.workdir or config.get("WorkingDir") or "/"
        async with self._starts:
            try:
                shown = await self._started(spec, workdir, HOLDERS[0])
            except AttemptFault as fault:
                if "/bin/sh" not in fault.detail or not has_bundle(spec):
                    raise
                shown = await self._started(spec, workdir, HOLDERS[1])
        return DockerSandbox(self._engine, spec, shown, str(config.get("User") or ""))

    async def _started(self, spec: SandboxSpec, workdir: str, holder: tuple[str, ...]) -> dict[str, Any]:
        """Create and start; what was created is removed again when that does not work out."""
        async with self._engine.bounded("create", 120, missing=Reason.IMAGE_MISSING):
            made = await self._engine.docker.containers.create(container_config(spec, workdir, holder), name=spec.name)
        try:
            async with self._engine.bounded("start", 120):
                await made.start()
                shown = await made.show()
            if not shown["State"]["Running"]:
                raise AttemptFault(Reason.ENGINE_ERROR, f"container {spec.name} ended at once: {shown['State']}")
            return dict(shown)
        except BaseException:
            await asyncio.shield(remove_container(self._engine, made.id))
            raise

    async def remove_image(self, image: Image) -> None:
        """See the port."""
        await self._images.remove(image.id)

    async def _containers(self, labels: Mapping[str, str]) -> list[tuple[str, str]]:
        """(id, name) of every container, stopped ones too, that carries all the labels."""
        if not labels:
            raise ValueError("a sweep without labels would take everything")
        wanted = [f"{key}={value}" for key, value in labels.items()]
        async with self._engine.bounded("ps", 60):
            found = await self._engine.docker.containers.list(all=1, filters=json.dumps({"label": wanted}))
        return [(container.id, str(container["Names"][0]).lstrip("/")) for container in found]

    async def sweep(self, labels: Mapping[str, str]) -> list[str]:
        """See the port."""
        removed = []
        for id_, name in await self._containers(labels):
            await remove_container(self._engine, id_)
            removed.append(name)
        for image in await self._images.temporary(labels):
            await self._images.remove(image)
            removed.append(image)
        return removed

    async def left(self, labels: Mapping[str, str]) -> list[str]:
        """See the port."""
        return [name for _, name in await self._containers(labels)] + await self._images.temporary(labels)

    async def close(self) -> None:
        """See the port."""
        await self._engine.close()
