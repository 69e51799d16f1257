"""A root directory on the host that stands for a sandbox's file system, in which an agent may have planted anything.

Every walk goes by directory descriptors and follows no link, so that nothing in the tree can lead out of it.
Bulk work (copy, remove, change owner) is done by coreutils, which cope with trees deeper than Python can recurse.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from windtunnel.domain.outcome import Reason
from windtunnel.environments.intake import Intake
from windtunnel.errors import AttemptFault

__all__ = ["RESERVED", "Owner", "Root", "copy_tree", "give", "open_up", "parts_of", "remove_tree"]

# Top-level directories that stay the machine's own where there is no image with a system in it.
RESERVED = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "proc", "dev", "sys"}
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class Owner:
    """Who the sandbox's processes run as, where that is not the caller."""

    uid: int
    gid: int


def parts_of(path: str) -> tuple[str, ...]:
    """The components of an absolute contract path. Raises AttemptFault for anything else."""
    pure = PurePosixPath(path)
    if not pure.is_absolute() or ".." in pure.parts or "\0" in path:
        raise AttemptFault(Reason.ENGINE_ERROR, f"{path!r} is not an absolute path inside the sandbox")
    return pure.parts[1:]


@dataclass(frozen=True)
class Root:
    """One such directory. `owner`: who gets what is placed in it, None for the caller. Paths are contract paths."""

    path: Path
    owner: Owner | None = None

    def make(self, path: str) -> None:
        """Make a directory with its parents; whatever is no directory in the way is replaced by one."""
        with self._at(parts_of(path), self._made_below):
            pass

    def empty(self, path: str) -> None:
        """Make sure that a directory is there and holds nothing, whatever was there before. Nothing may run."""
        parts = parts_of(path)
        with self._at(parts[:-1], self._made_below):
            pass
        target = self.path.joinpath(*parts)
        if os.path.lexists(target):
            remove_tree(target)
        self.make(path)

    def put(self, source: Path, path: str) -> None:
        """Copy a host file or directory to a path. Links in the source stay links. Raises OSError."""
        parts = parts_of(path)
        if source.is_dir():
            with self._at(parts, self._made_below) as fd:
                self._put_entries(fd, source)
        else:
            with self._at(parts[:-1], self._made_below) as fd:
                self._put_entry(fd, source, parts[-1])

    def take(self, parts: Sequence[str], intake: Intake) -> None:
        """Hand what is at `parts` to the intake: directories walked, links and devices noted and left behind."""
        try:
            with self._at(parts[:-1], _existing) as fd:
                _take_entry(fd, parts[-1] if parts else ".", (), intake)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            intake.skip((), f"the way to it is closed: {error.strerror}")

    @contextlib.contextmanager
    def _at(self, parts: Sequence[str], step: Callable[[int, str], int]) -> Iterator[int]:
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in parts:
                child = step(fd, part)
                os.close(fd)
                fd = child
            yield fd
        finally:
            os.close(fd)

    def _made_below(self, parent: int, name: str) -> int:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
                os.unlink(name, dir_fd=parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=parent)
            self._own(name, parent)
        return os.open(name, _DIRECTORY, dir_fd=parent)

    def _own(self, name: str, parent: int) -> None:
        if self.owner:
            os.chown(name, self.owner.uid, self.owner.gid, dir_fd=parent, follow_symlinks=False)

    def _put_entries(self, directory: int, source: Path) -> None:
        for entry in sorted(source.iterdir()):
            self._put_entry(directory, entry, entry.name)

    def _put_entry(self, parent: int, source: Path, name: str) -> None:
        if source.is_symlink():
            _clear(parent, name)
            os.symlink(source.readlink(), name, dir_fd=parent)
        elif source.is_dir():
            fd = self._made_below(parent, name)
            try:
                self._put_entries(fd, source)
            finally:
                os.close(fd)
        elif source.is_file():
            _clear(parent, name)
            _put_file(parent, source, name)
        self._own(name, parent)


def _existing(parent: int, name: str) -> int:
    return os.open(name, _DIRECTORY, dir_fd=parent)


def _clear(parent: int, name: str) -> None:
    """Make way for a file or link; a directory there goes too, as the engine's own extraction does it."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            os.unlink(name, dir_fd=parent)
            return
        _quiet(["rm", "-rf", "--", name], cwd=f"/proc/self/fd/{parent}", keep=parent)


def _put_file(parent: int, source: Path, name: str) -> None:
    mode = 0o755 if source.stat().st_mode & 0o111 else 0o644
    fd = os.open(name, _NEW_FILE, mode, dir_fd=parent)
    with os.fdopen(fd, "wb") as target, source.open("rb") as data:
        os.fchmod(fd, mode)
        while chunk := data.read(_CHUNK):
            target.write(chunk)


def _take_entry(parent: int, name: str, parts: tuple[str, ...], intake: Intake) -> None:
    mode = os.lstat(name, dir_fd=parent).st_mode
    if stat.S_ISREG(mode):
        _take_file(parent, name, parts, intake)
    elif stat.S_ISDIR(mode):
        if intake.directory(parts):
            _take_directory(parent, name, parts, intake)
    else:
        intake.skip(parts, "a link" if stat.S_ISLNK(mode) else "neither file nor directory")


def _take_directory(parent: int, name: str, parts: tuple[str, ...], intake: Intake) -> None:
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        intake.skip(parts, error.strerror or "cannot be read")
        return
    try:
        for entry in sorted(os.listdir(fd)):  # noqa: PTH208 (pathlib cannot list a descriptor)
            if not intake.admit((*parts, entry)):
                return
            _take_entry(fd, entry, (*parts, entry), intake)
    finally:
        os.close(fd)


def _take_file(parent: int, name: str, parts: tuple[str, ...], intake: Intake) -> None:
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except OSError as error:
        intake.skip(parts, error.strerror or "cannot be read")
        return
    with os.fdopen(fd, "rb") as source:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            intake.file(parts, source, found.st_size, executable=bool(found.st_mode & 0o111))


def copy_tree(source: Path, target: Path) -> None:
    """Copy a whole tree with owners, modes and links. Raises AttemptFault(engine_error)."""
    target.mkdir(parents=True, exist_ok=True)
    argv = ["cp", "-a", "--reflink=auto", "--", f"{source}/.", str(target)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        open_up(source)
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        said = done.stderr[-300:].decode("utf-8", "replace").strip()
        reason = Reason.DISK_FULL if "No space left" in said else Reason.ENGINE_ERROR
        raise AttemptFault(reason, f"cannot copy {source}: {said}")


def give(path: Path, owner: Owner) -> None:
    """Change the owner of everything below a path, links themselves included, never what they point at."""
    _quiet(["chown", "-hRP", f"{owner.uid}:{owner.gid}", "--", str(path)])


def remove_tree(path: Path) -> None:
    """Remove a tree, read-only directories included. Raises AttemptFault when something stays."""
    _quiet(["rm", "-rf", "--one-file-system", "--", str(path)])
    if os.path.lexists(path):
        open_up(path)
        _quiet(["rm", "-rf", "--one-file-system", "--", str(path)])
    if os.path.lexists(path):
        raise AttemptFault(Reason.ENGINE_ERROR, f"cannot remove {path}")


def tree_bytes(path: Path) -> int | None:
    """Disk use of a tree in bytes, None when it cannot be told in a minute or while it changes."""
    try:
        asked = subprocess.run(
            ["du", "-s", "-x", "--block-size=1", "--", str(path)], capture_output=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    told = asked.stdout.split(b"\t", 1)[0]
    return int(told) if told.isdigit() else None


def open_up(path: Path) -> None:
    """Let the owner read and enter everything below a path."""
    _quiet(["chmod", "-R", "u+rwX", "--", str(path)])


def _quiet(argv: list[str], *, cwd: str | None = None, keep: int | None = None) -> None:
    null = subprocess.DEVNULL
    kept = () if keep is None else (keep,)
    subprocess.run(argv, stdin=null, stdout=null, stderr=null, cwd=cwd, pass_fds=kept, check=False)
