"""What comes out of a sandbox lands on the host by one set of rules, whichever adapter fetched it.

Only regular files and directories are made, owned by the caller, with plain modes (0644 or 0755). Links, devices and
names that would leave the target are left behind and listed. The content is untrusted; the names are too.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from windtunnel.domain.outcome import Reason
from windtunnel.environments.interface import Fetched
from windtunnel.errors import AttemptFault

__all__ = ["DEPTH_LIMIT", "ENTRY_LIMIT", "OVER", "Intake", "Readable", "shown"]

DEPTH_LIMIT = 200  # directories below the target; deeper trees are an attack on whoever walks them
ENTRY_LIMIT = 200_000  # entries of all kinds, those that are left behind included
OVER = "over the limit"
_SKIPPED_LIMIT = 1000
_CHUNK = 1024 * 1024


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def shown(parts: Sequence[str]) -> str:
    """A name as text that every log can hold: undecodable bytes and control characters escaped."""
    text = "/".join(parts).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)[:300] or "."


class Intake:
    """Fills one host path. `parts` of an entry are relative to it; `()` is the fetched thing itself."""

    def __init__(self, target: Path, *, limit_bytes: int) -> None:
        self._target = target
        self._left = limit_bytes
        self._entries = 0
        self._is_over = False
        self._bytes = 0
        self._files = 0
        self._found = False
        self._skipped: list[str] = []
        target.parent.mkdir(parents=True, exist_ok=True)

    @property
    def left(self) -> int:
        """Bytes that may still be written."""
        return self._left

    def skip(self, parts: Sequence[str], why: str) -> None:
        """Note an entry that is left behind."""
        self._found = True
        first_over = why.startswith(OVER) and not self._is_over
        self._is_over |= first_over
        if len(self._skipped) < _SKIPPED_LIMIT or first_over:  # that something is missing is never lost in the rest
            self._skipped.append(f"{shown(parts)}: {why}")

    def admit(self, parts: Sequence[str]) -> bool:
        """Count an entry, before anything else is done with it; False: there were too many, stop walking."""
        self._entries += 1
        if self._entries > ENTRY_LIMIT:
            self.skip(parts, f"{OVER} of {ENTRY_LIMIT} entries")
            return False
        return True

    def directory(self, parts: Sequence[str]) -> bool:
        """Make a directory; False when it had to be left behind."""
        path = self._place(parts)
        if path is None:
            return False
        try:
            if not path.is_dir():
                path.mkdir(parents=True)
        except OSError as error:
            self.skip(parts, _why(error))
            return False
        self._found = True
        return True

    def file(self, parts: Sequence[str], source: Readable, size: int, *, executable: bool) -> Path | None:
        """Write a file of `size` bytes; None when it had to be left behind (then nothing of it is kept)."""
        path = self._place(parts)
        if path is None:
            return None
        if size > self._left:
            self.skip(parts, f"{OVER} ({size} bytes)")
            return None
        try:
            written = _write(path, _chunks(source, size), 0o755 if executable else 0o644)
        except OSError as error:
            self.skip(parts, _why(error))
            return None
        self._left -= written
        self._bytes += written
        self._files += 1
        self._found = True
        return path

    def result(self) -> Fetched:
        """What was done."""
        return Fetched(found=self._found, files=self._files, bytes=self._bytes, skipped=tuple(self._skipped))

    def _place(self, parts: Sequence[str]) -> Path | None:
        if any(part in {"", ".", ".."} or "/" in part or "\0" in part for part in parts):
            self.skip(parts, "name leaves the target")
            return None
        if len(parts) > DEPTH_LIMIT:
            self.skip(parts[:3], "too deep")
            return None
        return self._target.joinpath(*parts)


def _chunks(source: Readable, size: int) -> Iterator[bytes]:
    while size > 0:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            return
        size -= len(chunk)
        yield chunk


def _write(path: Path, chunks: Iterator[bytes], mode: int) -> int:
    """Replace what we made there before; a directory in the way is an OSError. A half-written file is not kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(fd, mode)
            return sum(file.write(chunk) for chunk in chunks)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _why(error: OSError) -> str:
    """A full disk is not the entry's fault and must not pass for one."""
    if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
        raise AttemptFault(Reason.DISK_FULL, f"cannot write what came out of the sandbox: {error}") from error
    return error.strerror or "cannot be written"
