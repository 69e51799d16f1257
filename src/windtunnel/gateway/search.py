"""Search a directory for the run's credentials. The finding tells where and in which form, never the value."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windtunnel.gateway.interface import SecretSearch
from windtunnel.gateway.secrets import SHORTEST, Secrets, forms_of

__all__ = ["search"]

_CHUNK = 1024 * 1024
_BYTES = 8 * 1024**3
_ENTRIES = 500_000
_DEPTH = 200

Needles = list[tuple[str, str, bytes]]


def search(root: Path, secrets: Secrets) -> SecretSearch:
    """Read every regular file below `root` (links are not followed, their text and all names are looked at too).

    Blocking; compressed files are searched as they are, holes of sparse files are passed over. A value that is too
    short to search for, a file that cannot be read and whatever lies beyond the bounds make the search not clean.
    """
    needles, unread = _needles(secrets)
    files = size = 0
    hits: list[str] = []
    for path in _walk(root, unread):
        name = path.relative_to(root).as_posix()
        shown = secrets.redact(name).encode("utf-8", "replace").decode()
        try:
            length, found = _look(path, name, needles, _BYTES - size)
        except OSError as error:
            unread.append(f"{shown}: {error.strerror or type(error).__name__}")
            continue
        files += length is not None
        size += length or 0
        hits += [f"{shown}: {route}, {form}" for route, form in sorted(found)]
        if size >= _BYTES:
            unread.append(f"{shown} and what comes after it: more than {_BYTES} bytes to read")
            break
    return SecretSearch(
        routes=tuple(route for route, _ in secrets.items()),
        files=files,
        bytes=size,
        hits=tuple(hits),
        unread=tuple(unread),
        clean=not hits and not unread,
    )


def _needles(secrets: Secrets) -> tuple[Needles, list[str]]:
    needles: Needles = []
    unread = []
    for route, value in secrets.items():
        if len(value) < SHORTEST:
            unread.append(f"route {route}: its value is shorter than {SHORTEST} characters and cannot be searched for")
            continue
        needles += [(route, form, needle) for form, group in forms_of(value).items() for needle in sorted(group)]
    return needles, unread


def _walk(root: Path, unread: list[str]) -> Iterator[Path]:
    """Every entry but the directories themselves, without recursion: a tree may be deeper than a stack."""
    waiting, seen = [(root, 0)], 0
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            unread.append(f"{folder.name}: {error.strerror}")
            continue
        for entry in entries:
            seen += 1
            if not entry.is_dir(follow_symlinks=False):
                yield Path(entry.path)
            elif depth >= _DEPTH:
                unread.append(f"{folder.name}: deeper than {_DEPTH} directories")
            else:
                waiting.append((Path(entry.path), depth + 1))
        if seen > _ENTRIES:
            unread.append(f"more than {_ENTRIES} entries")
            return


def _look(path: Path, name: str, needles: Needles, budget: int) -> tuple[int | None, set[tuple[str, str]]]:
    """Bytes read (None: not a regular file) and what was found in content, name or link text."""
    mode = path.lstat().st_mode
    told = os.fsencode(name)
    if stat.S_ISLNK(mode):
        told += b"\n" + os.fsencode(path.readlink())
    found = _matches(told, needles)
    if not stat.S_ISREG(mode):
        return None, found
    # O_NONBLOCK and O_NOFOLLOW: the entry may have been replaced by a pipe or a link since lstat.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    length, overlap, kept = 0, max((len(needle) for _, _, needle in needles), default=1), b""
    with os.fdopen(fd, "rb", buffering=0) as file:
        for chunk in _data(file.fileno(), budget):
            length += len(chunk)
            window = kept + chunk
            found |= _matches(window, needles)
            kept = window[-overlap:]
    return length, found


def _data(fd: int, budget: int) -> Iterator[bytes]:
    """The written parts of a file, at most `budget` bytes; its holes hold nothing."""
    at = 0
    while budget > 0:
        try:
            at = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # only a hole is left
            if error.errno != errno.EINVAL:
                raise
        chunk = os.pread(fd, min(_CHUNK, budget), at)
        if not chunk:
            return
        yield chunk
        at += len(chunk)
        budget -= len(chunk)


def _matches(data: bytes, needles: Needles) -> set[tuple[str, str]]:
    return {(route, form) for route, form, needle in needles if needle in data}
