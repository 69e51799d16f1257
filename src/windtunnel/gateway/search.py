"""Search a directory for the run's credentials. The finding tells where and in which form, never the value."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windtunnel.gateway.interface import SecretSearch
from windtunnel.gateway.secrets import SHORTEST, Secrets, forms_of

__all__ = ["search"]

_CHUNK = 1024 * 1024

Needles = list[tuple[str, str, bytes]]


def search(root: Path, secrets: Secrets) -> SecretSearch:
    """Read every regular file below `root` (links are not followed, their text and all names are looked at too).

    Blocking; compressed files are searched as they are. A value that is too short to search for and a file that
    cannot be read make the search not clean.
    """
    needles, unread = _needles(secrets)
    files = size = 0
    hits: list[str] = []
    for path in _walk(root, unread):
        name = path.relative_to(root).as_posix()
        shown = secrets.redact(name).encode("utf-8", "replace").decode()
        try:
            length, found = _look(path, name, needles)
        except OSError as error:
            unread.append(f"{shown}: {error.strerror or type(error).__name__}")
            continue
        files += length is not None
        size += length or 0
        hits += [f"{shown}: {route}, {form}" for route, form in sorted(found)]
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
    def refused(error: OSError) -> None:
        unread.append(f"{Path(str(error.filename)).name}: {error.strerror}")

    for directory, folders, names in os.walk(root, onerror=refused):
        folders.sort()
        links = [name for name in folders if (Path(directory) / name).is_symlink()]
        for name in sorted([*names, *links]):
            yield Path(directory) / name


def _look(path: Path, name: str, needles: Needles) -> tuple[int | None, set[tuple[str, str]]]:
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
    with os.fdopen(fd, "rb") as file:
        while chunk := file.read(_CHUNK):
            length += len(chunk)
            window = kept + chunk
            found |= _matches(window, needles)
            kept = window[-overlap:]
    return length, found


def _matches(data: bytes, needles: Needles) -> set[tuple[str, str]]:
    return {(route, form) for route, form, needle in needles if needle in data}
