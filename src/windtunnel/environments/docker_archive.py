"""Tar streams in and out of a container: ours are made plain, theirs are unpacked by the intake's rules."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import IO

from windtunnel.environments.context import context_files
from windtunnel.environments.docker_engine import Engine
from windtunnel.environments.intake import OVER, Intake
from windtunnel.environments.rootdir import parts_of

__all__ = ["fetch_archive", "pack", "pack_context", "unpack"]

_CHUNK = 1024 * 1024


def pack(source: Path, target: str, into: IO[bytes]) -> None:
    """Write `source` as it shall lie at the absolute path `target`, owned by root. Directories above it are not
    named, so they keep their owner and mode; the engine makes missing ones. Raises OSError."""
    name = "/".join(parts_of(target))
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
        if not source.is_dir():
            _add(archive, source.resolve(), name)
            return
        if name:
            _add(archive, source, name)  # also replaces a link that was planted there
        for path in sorted(source.rglob("*")):
            _add(archive, path, str(PurePosixPath(name) / path.relative_to(source).as_posix()))


def pack_context(context: Path, into: IO[bytes]) -> None:
    """Write a build context, the same bytes for the same content. Raises OSError."""
    with tarfile.open(fileobj=into, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, path in context_files(context):
            _add(archive, path, name)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    entry = archive.gettarinfo(path, name)
    if not (entry.isreg() or entry.isdir() or entry.issym() or entry.islnk()):
        return
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    if entry.islnk():  # a second name of a file that is already in the archive
        entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
    if entry.issym():
        entry.mode = 0o777
    else:
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o111 else 0o644
    if entry.isreg():
        with path.open("rb") as data:
            archive.addfile(entry, data)
    else:
        archive.addfile(entry)


class _Content:
    """A member's bytes; a torn archive is an OSError like any other unreadable file."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def read(self, size: int, /) -> bytes:
        try:
            return self._source.read(size)
        except tarfile.TarError as error:
            raise OSError(errno.EIO, f"{OVER}: cut off") from error


def unpack(source: IO[bytes], intake: Intake) -> None:
    """Hand every entry of an engine's archive to the intake. The first component of a name is the fetched thing.

    A second name of a file (hard link) becomes a file of its own when the first name came out; all other links,
    devices and pipes stay behind.
    """
    known: dict[str, Path] = {}
    try:
        with tarfile.open(fileobj=source, mode="r|") as archive:
            for entry in archive:
                if not intake.admit(_parts(entry.name)):
                    break
                _take(archive, entry, intake, known)
    except tarfile.TarError:
        intake.skip((), f"{OVER}: the rest was not read")


async def fetch_archive(engine: Engine, container: str, path: str, intake: Intake, *, raw_limit: int) -> bool:
    """Unpack a path of a container while it streams in; False when there is no such path. A thread of its own reads:
    the shared ones must stay free for the writes that it waits for."""
    reading, writing = os.pipe()
    with ThreadPoolExecutor(1) as pool:
        unpacked = asyncio.get_running_loop().run_in_executor(pool, _unpack_pipe, reading, intake)
        try:
            with os.fdopen(writing, "wb") as into:
                return await engine.archive(container, path, into, limit_bytes=raw_limit)
        finally:
            await unpacked


def _unpack_pipe(reading: int, intake: Intake) -> None:
    """Unpack, then read to the end, so that the writer never waits for a reader that has given up."""
    with os.fdopen(reading, "rb") as source:
        try:
            if source.peek(1):
                unpack(source, intake)
        finally:
            while source.read(_CHUNK):
                pass


def _take(archive: tarfile.TarFile, entry: tarfile.TarInfo, intake: Intake, known: dict[str, Path]) -> None:
    parts = _parts(entry.name)
    if entry.isdir():
        intake.directory(parts)
    elif entry.isreg():
        content = archive.extractfile(entry) or io.BytesIO()
        path = intake.file(parts, _Content(content), entry.size, executable=bool(entry.mode & 0o111))
        if path is not None:
            known[entry.name] = path
    elif entry.islnk() and entry.linkname in known:
        first = known[entry.linkname]
        with first.open("rb") as content:
            intake.file(parts, content, first.stat().st_size, executable=bool(first.stat().st_mode & 0o111))
    else:
        intake.skip(parts, "a link" if entry.issym() or entry.islnk() else "neither file nor directory")


def _parts(name: str) -> tuple[str, ...]:
    """Below the fetched thing itself; an absolute name keeps its empty first part, which the intake refuses."""
    first, *rest = name.rstrip("/").split("/")
    return ("", *rest) if first in {"", "..", "."} else tuple(rest)
