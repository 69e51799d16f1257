"""A build context: which files of a task folder go into an image, and the content hash of them.

`.dockerignore` is honoured in its common form: `*`, `**`, `?`, `!` and comments; the last matching line wins.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from windtunnel.store.files import sha256_file

__all__ = ["context_files", "context_hash", "ignore_rule"]


def ignore_rule(text: str) -> Callable[[str], bool]:
    """Whether a path (relative, `/`) is left out, by the lines of a `.dockerignore`."""
    rules: list[tuple[re.Pattern[str], bool]] = []
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line.startswith("#"):
            continue
        keeps = line.startswith("!")
        pattern = line.removeprefix("!").strip().strip("/").removeprefix("./")
        rules.append((re.compile(_regex(pattern) + "(/.*)?"), not keeps))

    def left_out(path: str) -> bool:
        verdict = False
        for pattern, leaves_out in rules:
            if pattern.fullmatch(path):
                verdict = leaves_out
        return verdict

    return left_out


def _regex(pattern: str) -> str:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return "".join(meaning.get(part, re.escape(part)) for part in parts)


def context_files(context: Path) -> list[tuple[str, Path]]:
    """(relative name, host path) of every entry, directories and links included, sorted. Raises OSError."""
    ignore = context / ".dockerignore"
    left_out = ignore_rule(ignore.read_text("utf-8", "replace")) if ignore.is_file() else lambda path: False
    found: list[tuple[str, Path]] = []
    for directory, folders, files in os.walk(context):
        for name in (*folders, *files):
            path = Path(directory) / name
            relative = path.relative_to(context).as_posix()
            if relative == "Dockerfile" or not left_out(relative):
                found.append((relative, path))
    return sorted(found)


def context_hash(context: Path) -> str:
    """64 hex digits over names, modes and bytes of the whole context."""
    digest = hashlib.sha256()
    for name, path in context_files(context):
        if path.is_symlink():
            kind = f"link {path.readlink()}"
        elif path.is_dir():
            kind = "directory"
        else:
            kind = f"file {path.stat().st_mode & 0o111 != 0} {sha256_file(path)}"
        digest.update(f"{name}\0{kind}\0".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
