"""Read an attempt's `wire.ndjson`."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from windtunnel.domain.wire import Record
from windtunnel.errors import FileDamaged
from windtunnel.store.files import read_lines

__all__ = ["read_wire"]


def read_wire(path: Path) -> tuple[Record, ...]:
    """All whole records in order; none when the file is not there (no call was made). Raises FileDamaged."""
    if not path.exists():
        return ()
    records: list[Record] = []
    for number, line in enumerate(read_lines(path), 1):
        try:
            records.append(msgspec.convert(json.loads(line), Record))
        except (ValueError, msgspec.MsgspecError) as error:
            raise FileDamaged(path, f"line {number} is no wire record: {error}", "Verify the run") from error
    return tuple(records)
