"""What `local` and `plain` have in common as environments: images on disk, a register of sandboxes, the sweep."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from pathlib import Path

from windtunnel.domain.digest import to_json
from windtunnel.domain.task import ImageSource
from windtunnel.environments.disk_images import DiskImages
from windtunnel.environments.disk_sandbox import SandboxRecord
from windtunnel.environments.interface import Image, SandboxSpec
from windtunnel.environments.rootdir import Owner, remove_tree
from windtunnel.errors import EngineAbsent
from windtunnel.store.files import read_json, write_atomic

__all__ = ["DiskEnvironment"]


class DiskEnvironment:
    """Images and sandboxes below one work root."""

    name = "disk"

    def __init__(self, *, work_root: Path, owner: Owner | None = None) -> None:
        self._work_root = work_root.absolute()
        self._owner = owner
        self._images = DiskImages(self._work_root, owner)
        self._registers = self._work_root / "sandboxes"
        self._laying_out = asyncio.Lock()

    async def image(self, source: ImageSource, *, task_dir: Path, build_timeout_s: float, tests: bool = False) -> Image:
        """See the port."""
        async with self._laying_out:
            return await asyncio.to_thread(self._images.prepare, source, task_dir, tests=tests)

    async def remove_image(self, image: Image) -> None:
        """See the port."""
        await asyncio.to_thread(self._images.remove, image)

    def _make_work_root(self) -> None:
        try:
            self._registers.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            found = f"cannot make its work directory {self._work_root}: {error.strerror}"
            raise EngineAbsent(self.name, found, "Give a directory that this user can write") from error

    def _register(self, spec: SandboxSpec) -> tuple[str, Path]:
        """Note a sandbox before anything of it exists, so that a crash leaves nothing unknown."""
        self._make_work_root()
        id_ = uuid.uuid4().hex
        record = SandboxRecord(id=id_, name=spec.name, labels=dict(spec.labels), scratch=str(spec.scratch.absolute()))
        path = self._registers / f"{id_}.json"
        write_atomic(path, to_json(record))
        return id_, path

    def _registered(self, labels: Mapping[str, str]) -> list[SandboxRecord]:
        if not labels:
            raise ValueError("a sweep without labels would take everything")
        files = sorted(self._registers.glob("*.json"))
        records = [read_json(path, SandboxRecord) for path in files]
        return [record for record in records if labels.items() <= record.labels.items()]

    async def sweep(self, labels: Mapping[str, str]) -> list[str]:
        """See the port."""
        removed = []
        for record in self._registered(labels):
            await asyncio.to_thread(self._take_away, record)
            removed.append(record.name)
        for image in self._images.temporary(labels):
            await asyncio.to_thread(self._images.remove, image)
            removed.append(Path(image.reference).name)
        return removed

    def clear(self) -> list[str]:
        """End every sandbox below this work root, whatever its labels; for an owner that will remove the root next."""
        records = [read_json(path, SandboxRecord) for path in sorted(self._registers.glob("*.json"))]
        for record in records:
            self._take_away(record)
        return [record.name for record in records]

    def _take_away(self, record: SandboxRecord) -> None:
        self._end_recorded(record)
        remove_tree(Path(record.scratch))
        (self._registers / f"{record.id}.json").unlink(missing_ok=True)

    async def left(self, labels: Mapping[str, str]) -> list[str]:
        """See the port."""
        names = [record.name for record in self._registered(labels)]
        return names + [Path(image.reference).name for image in self._images.temporary(labels)]

    def _end_recorded(self, record: SandboxRecord) -> None:
        """End what a sandbox of an earlier supervisor still runs."""
        raise NotImplementedError

    async def close(self) -> None:
        """See the port."""
