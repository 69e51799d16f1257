"""Read what a subject left in its box: hostile until proven a plain file.

Links, pipes and devices are never opened; sizes are bounded; nothing here follows a path out of the box.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copied", "copy_plain_files", "plain_bytes", "read_plain_file"]

_DEPTH = 64
_FILES = 100_000
_BLOCK = 512
_ENOUGH = 1 << 40


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
    """Bytes of the entries of a tree, links not followed; what vanishes meanwhile does not count. An entry counts at
    least a block: a million empty files are not nothing."""
    total = 0
    for entry in _entries(root):
        with contextlib.suppress(OSError):
            total += max(entry.stat(follow_symlinks=False).st_size, _BLOCK)
        if total > _ENOUGH:
            break
    return total


def copy_plain_files(source: Path, target: Path, *, limit_bytes: int) -> Copied:
    """Copy the regular files of a tree (links never followed), at most `limit_bytes` and 100,000 files; names are kept.

    `target` is made. What is left behind is named with the reason.
    """
    target.mkdir(parents=True, exist_ok=True)
    files = size = 0
    skipped: list[str] = []
    if source.is_symlink() or not source.is_dir():
        return Copied(0, 0, (f"{source.name}: not a directory",))
    for entry in _entries(source):
        inner = Path(entry.path).relative_to(source)
        if entry.is_dir(follow_symlinks=False):
            if len(inner.parts) >= _DEPTH:
                skipped.append(f"{inner.parts[0]}: deeper than {_DEPTH} directories")
            continue
        copied = None if files >= _FILES else _copy_one(Path(entry.path), target / inner, limit_bytes - size)
        if copied is None:
            skipped.append(f"{inner}: not a plain file, or over the limit")
        else:
            files, size = files + 1, size + copied
        if len(skipped) > _FILES:
            break
    return Copied(files, size, tuple(skipped))


def _entries(root: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry of a tree without recursion, directories before what is in them; deep ones are not entered."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as read:
                found = sorted(read, key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in found:
            yield entry
            if entry.is_dir(follow_symlinks=False) and depth + 1 < _DEPTH:
                waiting.append((Path(entry.path), depth + 1))


def _copy_one(source: Path, target: Path, budget: int) -> int | None:
    try:
        fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        facts = os.fstat(file.fileno())
        if not stat.S_ISREG(facts.st_mode) or facts.st_size > budget:
            return None
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(file, out)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            return None  # such as a path that is longer than the system takes
        return facts.st_size
