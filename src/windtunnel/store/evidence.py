"""A cell's files as evidence for a smoke contract: found by glob, read within bounds, never outside the cell.

What a subject wrote is among them, so that a link that leads out of the cell, a pipe or a device is not evidence.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from windtunnel.domain.contract_checks import Format, Malformed
from windtunnel.domain.digest import decode
from windtunnel.domain.patch_reading import FileChange, read_patch
from windtunnel.store.layout import AttemptDir, CellDir

__all__ = ["READ_LIMIT_BYTES", "StoredEvidence", "find_files"]

READ_LIMIT_BYTES = 64 * 1024 * 1024
_CHUNK = 1024 * 1024
_OVERLAP = 64 * 1024  # longer than any text a contract would search for
_WILD = re.compile(r"[*?\[]")


def find_files(root: Path, globs: Iterable[str]) -> list[str]:
    """Names (relative to `root`) of the regular files that match, each file once, in order.

    `*` and `?` stay inside one path segment, `**` is any depth and enters no link. A file whose links lead out of
    `root` does not match."""
    inside = Path(os.path.realpath(root))
    found: dict[Path, str] = {}
    for glob in globs:
        segments = [part for part in glob.split("/") if part not in ("", ".")]
        for path in sorted(_expand(root, segments)):
            real = Path(os.path.realpath(path))
            if real.is_relative_to(inside) and real not in found and _is_plain(real):
                found[real] = path.relative_to(root).as_posix()
    return list(found.values())


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _expand(folder: Path, segments: list[str]) -> Iterator[Path]:
    if not segments:
        yield folder
        return
    head, rest = segments[0], segments[1:]
    if head == "**":
        yield from _expand(folder, rest or ["*"])
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                yield from _expand(Path(entry.path), segments)
    elif _WILD.search(head):
        for entry in _entries(folder):
            if fnmatch.fnmatchcase(entry.name, head):
                yield from _expand(Path(entry.path), rest)
    elif os.path.lexists(folder / head):
        yield from _expand(folder / head, rest)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


class StoredEvidence:
    """The evidence port of a contract for one cell. `extensions`: the config's files below its `extensions/`."""

    def __init__(self, cell: CellDir, extensions: tuple[str, ...] = ()) -> None:
        self._root = cell.root
        self._cell = cell
        self._extensions = extensions

    def result(self) -> Any:
        """result.json as a JSON value, None when it is not there or not JSON."""
        try:
            return decode(_read(self._cell.result), dict)
        except (OSError, ValueError, RecursionError):
            return None

    def attempt(self) -> AttemptDir | None:
        """The attempt that `current` names."""
        real = Path(os.path.realpath(self._cell.current))
        inside = real.parent == Path(os.path.realpath(self._cell.attempts))
        return AttemptDir(real) if inside and real.is_dir() else None

    def files(self, globs: Iterable[str]) -> list[str]:
        return find_files(self._root, globs)

    def records(self, name: str, form: Format) -> Iterator[Any]:
        """Raises Malformed for what is not strict JSON (a torn last line is not) and for a file above the limit."""
        with self._open(name) as file:
            if os.fstat(file.fileno()).st_size > READ_LIMIT_BYTES:
                raise Malformed(f"larger than {READ_LIMIT_BYTES} bytes")
            if form == "jsonl":
                yield from _json_lines(file)
                return
            value = _json(file.read(READ_LIMIT_BYTES), "the file")
            yield from value if isinstance(value, list) else [value]

    def holds(self, name: str, pattern: re.Pattern[bytes]) -> bool | None:
        """Search the first 64 MiB; None when nothing was found there and more follows."""
        with self._open(name) as file:
            tail, read = b"", 0
            while read < READ_LIMIT_BYTES and (chunk := file.read(_CHUNK)):
                read += len(chunk)
                if pattern.search(tail + chunk):
                    return True
                tail = (tail + chunk)[-_OVERLAP:]
            return None if file.read(1) else False

    def patch(self) -> Mapping[str, FileChange] | None:
        names = self.files(["artifacts/model.patch"])
        return read_patch(_read(self._root / names[0])) if names else None

    def extensions(self) -> tuple[str, ...]:
        return self._extensions

    def _open(self, name: str) -> BinaryIO:
        fd = os.open(os.path.realpath(self._root / name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        return os.fdopen(fd, "rb")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(READ_LIMIT_BYTES)


def _json_lines(file: BinaryIO) -> Iterator[Any]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield _json(line, f"line {number}")


def _json(data: bytes, where: str) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{where} is not JSON: {error}") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not allowed")
