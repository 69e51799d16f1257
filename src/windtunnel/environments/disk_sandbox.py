"""What `local` and `plain` have in common: a sandbox whose file system is a directory tree on the host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import msgspec

from windtunnel.domain.outcome import Reason
from windtunnel.environments.disk_images import DiskImages
from windtunnel.environments.intake import Intake
from windtunnel.environments.interface import Fetched, Image, SandboxSpec
from windtunnel.environments.rootdir import Owner, Root, copy_tree, give, parts_of, remove_tree, tree_bytes
from windtunnel.errors import AttemptFault

__all__ = ["DiskSandbox", "SandboxRecord"]


class SandboxRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`sandboxes/<id>.json` below the work root: enough to find and end a sandbox after a crash."""

    schemaVersion: int = 1
    id: str
    name: str
    labels: dict[str, str]
    scratch: str


class DiskSandbox:
    """One sandbox: `root/` is its file system, `state/` what its processes are known by; both below the scratch.

    Directories named in `fresh` lie in the root like any other, are emptied at the start and in every snapshot.
    """

    def __init__(self, id_: str, spec: SandboxSpec, images: DiskImages, register: Path, owner: Owner | None) -> None:
        self.id = id_
        self.spec = spec
        self._images = images
        self._register = register
        self._owner = owner
        self._image_record = images.record(spec.image)
        self._root = Root(spec.scratch / "root", owner)
        self._state = spec.scratch / "state"

    def inside(self, path: str) -> str:
        """See the port."""
        return path

    def _prepare(self) -> None:
        """Copy the image and make the directories of the contract."""
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._root.path.mkdir(exist_ok=True)
        copy_tree(Path(self.spec.image.reference) / "root", self._root.path)
        for path in (self._workdir(), "/tmp", "/home", "/logs", "/tests"):
            self._root.make(path)
        for path in self.spec.fresh:
            self._root.empty(path)
        self._hand_over_mounts()

    def _hand_over_mounts(self) -> None:
        """Writable mounts belong to the sandbox's own user while it runs."""
        if self._owner:
            for mount in self.spec.mounts:
                if not mount.read_only:
                    give(mount.source, self._owner)

    def _workdir(self) -> str:
        return self.spec.workdir or self._image_record.workdir or "/"

    def _env(self, env: Mapping[str, str] | None) -> dict[str, str]:
        """The whole environment of a process, weakest first."""
        return (
            {"LANG": "C.UTF-8", "HOME": self.inside("/home"), "TMPDIR": self.inside("/tmp")}
            | self._image_record.env
            | dict(self.spec.env)
            | dict(env or {})
            | {
                "WINDTUNNEL_WORKDIR": self.inside(self._workdir()),
                "WINDTUNNEL_LOGS": self.inside("/logs"),
                "WINDTUNNEL_TESTS": self.inside("/tests"),
            }
        )

    def _place(self, path: str) -> tuple[Root, tuple[str, ...]]:
        """Where a contract path lies on the host: below the deepest mount that holds it, else below the root."""
        parts = parts_of(path)
        best: tuple[Root, tuple[str, ...]] = (self._root, parts)
        depth = 0
        for mount in self.spec.mounts:
            above = parts_of(mount.target)
            if len(above) > depth and parts[: len(above)] == above:
                owner = None if mount.read_only else self._owner
                best, depth = (Root(mount.source, owner), parts[len(above) :]), len(above)
        return best

    async def put(self, source: Path, target: str) -> None:
        """See the port."""
        root, parts = self._place(target)
        try:
            await asyncio.to_thread(root.put, source, str(PurePosixPath("/", *parts)))
        except OSError as error:
            raise AttemptFault(Reason.ENGINE_ERROR, f"cannot place {source} at {target}: {error}") from error

    async def fetch(self, source: str, target: Path, *, limit_bytes: int) -> Fetched:
        """See the port."""
        root, parts = self._place(source)
        intake = Intake(target, limit_bytes=limit_bytes)
        await asyncio.to_thread(root.take, parts, intake)
        return intake.result()

    async def reclaim(self, path: str) -> None:
        """See the port."""
        root, _ = self._place(path)
        if self._owner and root is not self._root:
            await asyncio.to_thread(give, root.path, Owner(os.geteuid(), os.getegid()))

    async def snapshot(self, name: str, labels: Mapping[str, str]) -> Image:
        """See the port."""
        await self.end_processes()
        record = msgspec.structs.replace(self._image_record, workdir=self._workdir())
        emptied = [
            *self.spec.fresh,
            *(mount.target for mount in self.spec.mounts if self._was_mounted_on(mount.target)),
        ]
        return await asyncio.to_thread(
            self._images.freeze, self._root.path, emptied=emptied, record=record, name=name, labels=labels
        )

    def _was_mounted_on(self, target: str) -> bool:
        return self._root.path.joinpath(*parts_of(target)).is_dir()

    async def disk_bytes(self) -> int | None:
        """See the port."""
        return await asyncio.to_thread(tree_bytes, self._root.path)

    async def end_processes(self) -> None:
        """See the port."""
        raise NotImplementedError

    async def remove(self) -> None:
        """See the port."""
        await self.end_processes()
        await asyncio.to_thread(self._forget)

    def _forget(self) -> None:
        remove_tree(self.spec.scratch)
        self._register.unlink(missing_ok=True)
