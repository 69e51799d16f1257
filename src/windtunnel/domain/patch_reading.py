"""What a git patch says about each file: is it there afterwards, and which lines were added.

The patch is the agent's work: hunks are followed by their line counts, so that an added line that looks like a
file header is never taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["FileChange", "read_patch"]

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}


@dataclass
class FileChange:
    """`deleted`: the file is gone afterwards. `added`: its new lines, without the line ends."""

    deleted: bool = False
    added: list[bytes] = field(default_factory=list)


def read_patch(data: bytes) -> dict[str, FileChange]:
    """Path after the change -> what happened to it. Lines that belong to no file are passed over."""
    changes: dict[str, FileChange] = {}
    lines = iter(data.split(b"\n"))
    change = FileChange()
    for line in lines:
        hunk = _HUNK.match(line)
        if line.startswith(b"diff --git "):
            change = FileChange()
            name = _new_name(line[len(b"diff --git ") :])
            if name:
                changes[name] = change
        elif line.startswith(b"deleted file mode "):
            change.deleted = True
        elif hunk:
            change.added += _added(lines, *(1 if count is None else int(count) for count in hunk.groups()))
    return changes


def _added(lines: Iterator[bytes], old: int, new: int) -> Iterator[bytes]:
    while old > 0 or new > 0:
        line = next(lines, None)
        if line is None:
            return
        if line.startswith(b"+"):
            new -= 1
            yield line[1:]
        elif line.startswith(b"-"):
            old -= 1
        elif not line.startswith(b"\\"):
            old, new = old - 1, new - 1


def _new_name(header: bytes) -> str | None:
    """The second name of `a/x b/x`; git quotes a name with unusual bytes like a C string."""
    if header.endswith(b'"'):
        start = header.rfind(b' "b/')
        raw = _ESCAPE.sub(_unescape, header[start + 4 : -1]) if start >= 0 else b""
        return raw.decode("utf-8", "surrogateescape") or None
    # A name may hold " b/" itself; without a rename both halves are the same, which settles it.
    half = (len(header) - 1) // 2
    if header[2:half] == header[half + 3 :]:
        return header[half + 3 :].decode("utf-8", "surrogateescape") or None
    return header.rpartition(b" b/")[2].decode("utf-8", "surrogateescape") or None


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes([int(code, 8) & 0xFF]) if len(code) == 3 else _NAMED.get(code, code)
