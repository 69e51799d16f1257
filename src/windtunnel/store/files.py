"""Files that survive a crash: atomic replacement, whole-line appends, strict reads."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from windtunnel.domain.digest import decode
from windtunnel.errors import FileDamaged

__all__ = [
    "append_line",
    "read_json",
    "read_lines",
    "repair_tail",
    "sha256_file",
    "sync_directory",
    "write_atomic",
]

T = TypeVar("T")


def sha256_file(path: Path) -> str:
    """`sha256:<hex>` of a file's bytes, read in chunks."""
    with path.open("rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def sync_directory(path: Path) -> None:
    """Make a create or rename in this directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_atomic(path: Path, data: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Replace a file as a whole: a reader sees the old bytes or the new ones, never a part. Raises OSError."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(temporary).unlink()
        raise
    if durable:
        sync_directory(path.parent)


def append_line(fd: int, line: bytes, *, durable: bool) -> None:
    """Append one whole line with one write. Raises OSError, and then the line is not there: a short write (full disk)
    or a failed sync is cut back first."""
    start = os.lseek(fd, 0, os.SEEK_END)
    try:
        if os.write(fd, line) != len(line):
            raise OSError(errno.ENOSPC, "short write: the disk is full")
        if durable:
            os.fdatasync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, start)
        raise


def repair_tail(path: Path) -> int:
    """Cut a torn last line off an append-only log; returns how many bytes were cut (0: it was whole)."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return 0
    whole = data.rfind(b"\n") + 1
    torn = len(data) - whole
    if torn:
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return torn


def read_lines(path: Path) -> Iterator[bytes]:
    """The whole lines of a log, split on `\\n` only; a torn tail is not given out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line


@cache
def _newest_schema(type_: type) -> object:
    fields = msgspec.structs.fields(type_) if issubclass(type_, msgspec.Struct) else ()
    return next((f.default for f in fields if f.name == "schemaVersion"), None)


def _refuse_newer(path: Path, value: Any, type_: type) -> None:
    """A file of a newer schema is refused by its number: what its fields mean is not known here."""
    newest = _newest_schema(type_)
    found = value.get("schemaVersion") if isinstance(value, dict) else None
    if isinstance(newest, int) and isinstance(found, int) and found > newest:
        raise FileDamaged(
            path, f"schema {found} is newer than {newest}", "Use the windtunnel that wrote it, or a newer one"
        )


def read_json(path: Path, type_: type[T]) -> T:
    """Read a JSON file of ours. Raises FileDamaged naming the file (empty, torn, not strict JSON, of a newer schema),
    FileNotFoundError when it is not there."""
    data = path.read_bytes()
    if not data.strip():
        raise FileDamaged(path, "empty", "Move it away to go on")
    try:
        value: Any = decode(data, object)
        _refuse_newer(path, value, type_)
        return msgspec.convert(value, type_)
    except (ValueError, msgspec.MsgspecError, RecursionError) as error:
        raise FileDamaged(path, f"not a valid {type_.__name__}: {error}", "Move it away to go on") from error
