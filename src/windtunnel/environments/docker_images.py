"""Images of the Docker engine: found, pulled one at a time, or built once per content hash."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.domain.outcome import Reason
from windtunnel.domain.task import ImageSource
from windtunnel.environments.context import context_hash
from windtunnel.environments.docker_archive import pack_context
from windtunnel.environments.docker_engine import Engine
from windtunnel.environments.interface import Image
from windtunnel.errors import AttemptFault

__all__ = ["TEMPORARY", "DockerImages"]

TEMPORARY = "windtunnel.temporary"
_PULL_S = 3600.0
_LINES_KEPT = 8


class DockerImages:
    """`pull_waits`: seconds before the second, third ... try of a pull."""

    def __init__(self, engine: Engine, *, pull_waits: Sequence[float] = (1.0, 4.0)) -> None:
        self._engine = engine
        self._pull_waits = pull_waits
        self._pulling = asyncio.Lock()
        self._building = asyncio.Lock()

    async def image(self, source: ImageSource, task_dir: Path, build_timeout_s: float, *, tests: bool) -> Image:
        """See the port."""
        if source.reference is not None:
            return await self._pulled(source.reference)
        context = task_dir / (source.context or ("tests" if tests else "environment"))
        if not (context / "Dockerfile").is_file():
            raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{context}: no Dockerfile")
        tag = f"windtunnel-task:{await self._content_key(source, context)}"
        async with self._building:
            return await self.find(tag) or await self._built(context, tag, build_timeout_s)

    async def find(self, reference: str) -> Image | None:
        """A local image by reference or id."""
        try:
            async with self._engine.bounded("image inspect", 30, missing=Reason.IMAGE_MISSING):
                found: Mapping[str, Any] = await self._engine.docker.images.inspect(reference)
        except AttemptFault as fault:
            if fault.reason == Reason.IMAGE_MISSING:
                return None
            raise
        workdir = (found.get("Config") or {}).get("WorkingDir") or None
        return Image(reference=reference, id=str(found["Id"]), workdir=workdir)

    async def _content_key(self, source: ImageSource, context: Path) -> str:
        """The context's bytes and the base image's identity: a base that moved means another image."""
        digest = await asyncio.to_thread(context_hash, context)
        base = source.base
        base_id = base
        if base and base != "scratch":
            base_id = (await self._pulled(base)).id
        return hashlib.sha256(f"{digest}\0{base}\0{base_id}".encode()).hexdigest()[:40]

    async def _pulled(self, reference: str) -> Image:
        async with self._pulling:
            found = await self.find(reference)
            if found is not None:
                return found
            for wait in (*self._pull_waits, None):
                fault = await self._pull(reference)
                if fault is None or fault.reason == Reason.IMAGE_MISSING or wait is None:
                    break
                await asyncio.sleep(wait)
            found = await self.find(reference) if fault is None else None
        if found is None:
            detail = "pulled, but not there" if fault is None else fault.detail
            raise AttemptFault(Reason.IMAGE_MISSING, f"image {reference}: {detail}")
        return found

    async def _pull(self, reference: str) -> AttemptFault | None:
        try:
            async with self._engine.bounded("pull", _PULL_S, missing=Reason.IMAGE_MISSING):
                await self._engine.docker.images.pull(reference, timeout=None)
        except AttemptFault as fault:
            return fault
        return None

    async def _built(self, context: Path, tag: str, timeout_s: float) -> Image:
        said: deque[str] = deque(maxlen=_LINES_KEPT)
        try:
            async with self._engine.bounded("build", timeout_s):
                await self._build(context, tag, said)
        except AttemptFault as fault:
            if fault.reason == Reason.DISK_FULL:
                raise
            lines = " | ".join([*said, fault.detail])
            raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{context}: {lines}"[:2000]) from fault
        found = await self.find(tag)
        if found is None:
            raise AttemptFault(Reason.IMAGE_BUILD_FAILED, f"{context}: the engine built nothing: {' | '.join(said)}")
        return found

    async def _build(self, context: Path, tag: str, said: deque[str]) -> None:
        with tempfile.TemporaryFile() as archive:
            await asyncio.to_thread(pack_context, context, archive)
            archive.seek(0)
            steps = self._engine.docker.images.build(
                fileobj=archive,
                encoding="identity",
                tag=tag,
                rm=True,
                forcerm=True,
                labels={"windtunnel.image": "task"},
                stream=True,
                timeout=None,
            )
            async for step in steps:
                if text := str(step.get("stream", "")).strip():
                    said.append(text)

    async def remove(self, id_: str) -> None:
        """Remove an image; nothing happens when it is gone."""
        try:
            async with self._engine.bounded("image rm", 120, missing=Reason.IMAGE_MISSING):
                await self._engine.docker.images.delete(id_, force=True)
        except AttemptFault as fault:
            if fault.reason != Reason.IMAGE_MISSING:
                raise

    async def temporary(self, labels: Mapping[str, str]) -> list[str]:
        """Ids of the snapshots that carry all these labels."""
        wanted = [f"{key}={value}" for key, value in (dict(labels) | {TEMPORARY: "1"}).items()]
        async with self._engine.bounded("images", 60):
            found = await self._engine.docker.images.list(filters={"label": wanted})
        return [str(image["Id"]) for image in found]
