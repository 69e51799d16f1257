"""A patch made from two file trees, for work directories that are no git repository.

Evidence for people, in git's own text form; binary and very large files are named with both hashes instead.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping

__all__ = ["BUDGET", "count_files", "tree_patch"]

BUDGET = 4_000_000  # pairs of lines, over all files of a patch


def tree_patch(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> bytes:
    """The change from one tree (path -> content) to another, files in path order; empty when equal."""
    parts, budget = [], BUDGET
    for path in sorted(before.keys() | after.keys()):
        old, new = before.get(path), after.get(path)
        if old != new:
            work = _work(old, new)
            parts.append(_file_patch(path, old, new, lines=work <= budget))
            budget -= min(work, budget)
    return b"".join(parts)


def _work(old: bytes | None, new: bytes | None) -> int:
    """How much comparing two files may cost: it is quadratic in the worst case, and an agent can write that case."""
    return ((old or b"").count(b"\n") + 1) * ((new or b"").count(b"\n") + 1)


def count_files(patch: bytes) -> int:
    """How many files a git patch touches."""
    return sum(line.startswith(b"diff --git ") for line in patch.split(b"\n"))


def _file_patch(path: str, old: bytes | None, new: bytes | None, *, lines: bool) -> bytes:
    name = path.encode("utf-8", "surrogateescape")
    head = b"diff --git a/" + name + b" b/" + name + b"\n"
    if old is None:
        head += b"new file mode 100644\n"
    if new is None:
        head += b"deleted file mode 100644\n"
    if b"\0" in (old or b"")[:8000] or b"\0" in (new or b"")[:8000]:
        return head + b"Binary files differ: " + _hash(old) + b" " + _hash(new) + b"\n"
    if not lines:
        return head + b"Files differ, too big to compare: " + _hash(old) + b" " + _hash(new) + b"\n"
    changes = difflib.diff_bytes(
        difflib.unified_diff,
        (old or b"").splitlines(keepends=True),
        (new or b"").splitlines(keepends=True),
        b"/dev/null" if old is None else b"a/" + name,
        b"/dev/null" if new is None else b"b/" + name,
    )
    return head + b"".join(_with_newline(line) for line in changes)


def _with_newline(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n"


def _hash(data: bytes | None) -> bytes:
    return b"-" if data is None else hashlib.sha256(data).hexdigest().encode()
