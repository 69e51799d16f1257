"""`manifest.sha256`: the hashes of an attempt's files and of the result made from it, as `sha256sum -c` reads them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from windtunnel.store.files import write_atomic
from windtunnel.store.layout import AttemptDir, CellDir

__all__ = ["check_manifest", "seal"]

_RESULT = b"../../result.json"
_ESCAPES = {b"\\": b"\\\\", b"\n": b"\\n", b"\r": b"\\r"}


def seal(attempt: AttemptDir, result_bytes: bytes | None) -> None:
    """Write the manifest over every regular file of the attempt but its box; `result_bytes`: the result.json that is
    about to be published from it, None when none is. Nothing of the attempt may be written afterwards."""
    hashes = {name: _sha256(path) for name, path in _files(attempt)}
    if result_bytes is not None:
        hashes[_RESULT] = hashlib.sha256(result_bytes).hexdigest()
    write_atomic(attempt.manifest, b"".join(_line(name, hashes[name]) for name in sorted(hashes)))


def check_manifest(attempt: AttemptDir, cell: CellDir, *, published: bool = True) -> list[str]:
    """What is no longer as it was sealed: missing, changed and added files, each by name; empty when all is well.

    `published`: the cell's result.json was made from this attempt, so it is checked too. Never raises for what is on
    disk."""
    try:
        sealed = _parse(attempt.manifest.read_bytes())
    except (OSError, ValueError) as error:
        return [f"manifest.sha256 cannot be read: {error}"]
    known = sealed.pop(_RESULT, None)
    there = dict(_files(attempt))
    problems = [_compare(name, digest, there.get(name)) for name, digest in sorted(sealed.items())]
    problems += [f"{os.fsdecode(name)}: added after the attempt was sealed" for name in sorted(there.keys() - sealed)]
    if published:
        problems.append(_check_result(cell, known))
    return [problem for problem in problems if problem is not None]


def _check_result(cell: CellDir, digest: str | None) -> str | None:
    if digest is None:
        return "result.json: not in the manifest of the attempt it is made from"
    return _compare(b"result.json", digest, cell.result if cell.result.is_file() else None)


def _compare(name: bytes, digest: str, path: Path | None) -> str | None:
    shown = os.fsdecode(name)
    if path is None:
        return f"{shown}: missing"
    try:
        now = _sha256(path)
    except OSError as error:
        return f"{shown}: cannot be read: {error.strerror}"
    return None if now == digest else f"{shown}: changed: sealed sha256:{digest}, now sha256:{now}"


def _files(attempt: AttemptDir) -> Iterator[tuple[bytes, Path]]:
    """Relative names of the regular files, links not followed, without the box and the manifest itself."""
    for folder, folders, names in os.walk(attempt.root):
        if Path(folder) == attempt.root:
            folders[:] = [name for name in folders if name != attempt.box.name]
        for name in names:
            path = Path(folder, name)
            if path != attempt.manifest and stat.S_ISREG(path.lstat().st_mode):
                yield os.fsencode(path.relative_to(attempt.root)), path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _line(name: bytes, digest: str) -> bytes:
    """GNU form: a name with a backslash or line end is escaped and the line says so with a leading backslash."""
    escaped = name
    for raw, written in _ESCAPES.items():
        escaped = escaped.replace(raw, written)
    return (b"" if escaped == name else b"\\") + digest.encode() + b"  " + escaped + b"\n"


def _parse(data: bytes) -> dict[bytes, str]:
    """Name to hash; of two lines for one name the later counts (a regrade appends). Raises ValueError."""
    if data and not data.endswith(b"\n"):
        raise ValueError("its last line is torn")
    hashes: dict[bytes, str] = {}
    for line in data.split(b"\n")[:-1]:
        digest, gap, name = line.removeprefix(b"\\").partition(b"  ")
        if len(digest) != 64 or not gap or not name:
            raise ValueError(f"not a sha256sum line: {line[:80]!r}")
        hashes[_unescape(name) if line.startswith(b"\\") else name] = digest.decode("ascii")
    return hashes


def _unescape(name: bytes) -> bytes:
    raw = {written[1:]: raw for raw, written in _ESCAPES.items()}
    parts = name.split(b"\\")
    out = [parts[0]]
    rest = iter(parts[1:])
    for part in rest:
        if part == b"":  # an escaped backslash: what follows it is text
            out += [b"\\", next(rest, b"")]
        else:
            out += [raw.get(part[:1], b"\\" + part[:1]), part[1:]]
    return b"".join(out)
