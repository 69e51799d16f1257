"""Read a subject's own records: JSON lines that an agent could have written. Nothing here raises on garbage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windtunnel.domain.wire import Tokens
from windtunnel.store.box import read_plain_file

__all__ = ["TokenSum", "count", "mapping", "records", "text"]

_FILE_LIMIT = 64 * 1024 * 1024
_FILES_LIMIT = 50
_LARGEST = 2**53  # beyond it a JSON number is no exact count any more


def records(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file name, object) for every line that is a JSON object, of every plain `*.jsonl` file, in name order."""
    try:
        names = sorted(path.name for path in folder.iterdir() if path.name.endswith(".jsonl"))
    except OSError:
        return
    for name in names[:_FILES_LIMIT]:
        for line in (read_plain_file(folder / name, _FILE_LIMIT) or b"").split(b"\n"):
            value = _parse(line)
            if isinstance(value, dict):
                yield name, value


def _parse(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except (ValueError, RecursionError):  # msgspec's own errors are ValueErrors
        return None


def mapping(value: object) -> Mapping[str, Any]:
    """The value when it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def text(value: object, limit: int = 2_000) -> str | None:
    """The value when it is a non-empty string, cut at `limit` characters."""
    return value[:limit] if isinstance(value, str) and value else None


def count(value: object) -> int | None:
    """The value when it is a count."""
    return value if type(value) is int and 0 <= value < _LARGEST else None


class TokenSum:
    """Adds up the usage objects of a transcript. A field that none of them has stays None."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        """`fields`: name in `Tokens` -> name in the usage object."""
        self._fields = fields
        self._sums: dict[str, int] = {}

    def add(self, usage: object) -> None:
        for ours, theirs in self._fields.items():
            value = count(mapping(usage).get(theirs))
            if value is not None:
                self._sums[ours] = self._sums.get(ours, 0) + value

    @property
    def tokens(self) -> Tokens | None:
        """The sums, None when there was no usage at all."""
        return Tokens(**self._sums) if self._sums else None
