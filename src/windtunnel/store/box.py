"""Read what a subject left in its box: hostile until proven a plain file.

Links, pipes and devices are never opened; sizes are bounded; nothing here follows a path out of the box.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copied", "copy_plain_files", "plain_bytes", "read_plain_file"]


@dataclass(frozen=True)
class Copied:
    files: int
    bytes: int
    skipped: tuple[str, ...]


def read_plain_file(path: Path, limit: int) -> bytes | None:
    """Up to `limit` bytes of a regular file, None when there is no such file or it is anything else."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        return file.read(limit)


def plain_bytes(root: Path) -> int:
    """Bytes of the entries of a tree, links not followed; what vanishes meanwhile does not count."""
    total = 0
    for _, _, names, folder_fd in os.fwalk(root, follow_symlinks=False, onerror=None):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(name, dir_fd=folder_fd, follow_symlinks=False).st_size
    return total


def copy_plain_files(source: Path, target: Path, *, limit_bytes: int) -> Copied:
    """Copy the regular files of a tree (links never followed), at most `limit_bytes` in all; names are kept.

    `target` is made. What is left behind is named with the reason.
    """
    target.mkdir(parents=True, exist_ok=True)
    files = size = 0
    skipped: list[str] = []
    if source.is_symlink() or not source.is_dir():
        return Copied(0, 0, (f"{source.name}: not a directory",))
    for folder, folders, names, folder_fd in os.fwalk(source, follow_symlinks=False):
        inner = Path(folder).relative_to(source)
        skipped += _drop_links(folders, inner, folder_fd)
        (target / inner).mkdir(parents=True, exist_ok=True)
        for name in sorted(names):
            copied = _copy_one(name, folder_fd, target / inner / name, limit_bytes - size)
            if copied is None:
                skipped.append(f"{inner / name}: not a plain file, or over the limit")
            else:
                files, size = files + 1, size + copied
    return Copied(files, size, tuple(skipped))


def _drop_links(folders: list[str], inner: Path, folder_fd: int) -> list[str]:
    links = [n for n in folders if stat.S_ISLNK(os.stat(n, dir_fd=folder_fd, follow_symlinks=False).st_mode)]
    for name in links:
        folders.remove(name)
    return [f"{inner / name}: a link" for name in links]


def _copy_one(name: str, folder_fd: int, target: Path, budget: int) -> int | None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder_fd)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > budget:
            return None
        with contextlib.suppress(FileNotFoundError), target.open("wb") as out:
            shutil.copyfileobj(file, out)
            return facts.st_size
    return None
